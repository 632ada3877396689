"""The log as a host needs it: whose order is executed, and where calls are appended.

A host runs over anything that satisfies `CommandLog`; the embedded log does.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from braidlog.app.executor import RecordLike
from braidlog.errors import ClosedError
from braidlog.storage.node import open_node

__all__ = ["LOG_NAME", "CommandLog", "EmbeddedLog"]

LOG_NAME: Final = "commands"
"""Of the log in the directory of an application."""


class CommandLog(Protocol):
    """A log that a host appends to and reads. Safe to use from many threads."""

    @property
    def first(self) -> int:
        """First position that can be read."""

    @property
    def end(self) -> int:
        """One past the last position that is durable."""

    def submit(
        self, value: bytes, key: bytes | None, failed: Callable[[Exception], None]
    ) -> None:
        """Append without waiting; ``failed`` is called if it does not get in.

        Calls from one thread are placed in their order. What is refused at once raises,
        and is not in the log; ``failed`` is called later, by another thread. An
        implementation whose failures show in `wait` does not call it.
        """

    def append(self, value: bytes) -> int:
        """Append, and return the position once it is durable."""

    def read(self, begin: int, limit: int) -> Iterable[RecordLike]:
        """Return up to ``limit`` durable records from ``begin`` on."""

    def wait(self, position: int, timeout: float) -> bool:
        """Wait until a position is durable; False after ``timeout`` or a `wake`."""

    def wake(self) -> None:
        """End the waits; waits that come later return at once."""

    def close(self) -> None:
        """Release the log."""


class EmbeddedLog:
    """The log of an application in a directory of its own, in this process."""

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Open the directory as its writer; options as `braidlog.open`."""
        self._node = open_node(path, **options)
        self._log = self._node.create_log(LOG_NAME, exist_ok=True)

    @property
    def first(self) -> int:
        """First position that can be read."""
        return self._log.first

    @property
    def end(self) -> int:
        """One past the last position that is durable."""
        return self._log.end

    def submit(
        self, value: bytes, key: bytes | None, failed: Callable[[Exception], None]
    ) -> None:
        """Append without waiting. A failure later on shows in `wait`."""
        self._log.submit(value, key=key)

    def append(self, value: bytes) -> int:
        """Append, and return the position once it is durable."""
        return self._log.append(value)

    def read(self, begin: int, limit: int) -> Iterable[RecordLike]:
        """Return up to ``limit`` durable records from ``begin`` on."""
        return self._log.read(begin, limit=limit)

    def wait(self, position: int, timeout: float) -> bool:
        """Wait until a position is durable; False after ``timeout`` or a `wake`.

        Raises:
            StoreFailedError: nothing more will come.
        """
        return self._log.wait(position, timeout=timeout)

    def wake(self) -> None:
        """End the waits."""
        with contextlib.suppress(ClosedError):
            self._log._view.cancel()

    def close(self) -> None:
        """Make everything durable and release the directory."""
        self._node.close()
