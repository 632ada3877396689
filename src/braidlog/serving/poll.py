"""A selector that reads and writes open connections itself, for the loop of a node.

The loop of asyncio asks it what is ready. What an append does between the nodes never
gets that far: the core takes it where it waits (`braidlog._native.Poll`). With TLS the
bytes of a socket are not those of the connection, so the loop reads them.
"""

from __future__ import annotations

import selectors
from collections.abc import Mapping
from typing import Any, Final

from braidlog.wire.connection import Poll

_EVENTS: Final = selectors.EVENT_READ | selectors.EVENT_WRITE


class LaneSelector(selectors.BaseSelector):
    """Waits for descriptors, and lets the core have those of open connections."""

    def __init__(self, spin_us: int = 0) -> None:
        """Look for up to ``spin_us`` after the last append before the thread sleeps.

        Raises:
            OSError: the system gives no descriptor.
        """
        self.poll = Poll(spin_us)
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(
        self, fileobj: Any, events: int, data: Any = None
    ) -> selectors.SelectorKey:
        """Wait for something."""
        if not events or events & ~_EVENTS:
            raise ValueError(f"invalid events: {events}")
        descriptor = _descriptor(fileobj)
        if descriptor in self._keys:
            raise KeyError(f"descriptor {descriptor} is registered already")
        key = selectors.SelectorKey(fileobj, descriptor, events, data)
        self.poll.register(descriptor, events)
        self._keys[descriptor] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Wait for it no more."""
        key = self._keys.pop(_descriptor(fileobj))
        self.poll.unregister(key.fd)
        return key

    def modify(
        self, fileobj: Any, events: int, data: Any = None
    ) -> selectors.SelectorKey:
        """Wait for something else."""
        descriptor = _descriptor(fileobj)
        key = self._keys[descriptor]
        if events != key.events:
            try:
                self.poll.modify(descriptor, events)
            except BaseException:
                # It was closed: the next one of that number begins anew.
                del self._keys[descriptor]
                self.poll.unregister(descriptor)
                raise
        key = self._keys[descriptor] = key._replace(events=events, data=data)
        return key

    def select(
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready and not the core's."""
        keys = self._keys
        ready = self.poll.wait(timeout)
        return [(keys[each], events) for each, events in ready if each in keys]

    def close(self) -> None:
        """Let go of everything."""
        self._keys.clear()
        self.poll.close()

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        """Return what is waited for.

        Raises:
            KeyError: nothing is.
        """
        return self._keys[_descriptor(fileobj)]

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """Return what is waited for, by the descriptor."""
        return self._keys


def _descriptor(fileobj: Any) -> int:
    return fileobj if isinstance(fileobj, int) else int(fileobj.fileno())
