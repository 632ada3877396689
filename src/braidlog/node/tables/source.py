"""The end of a copy that has the table: pinned versions, and parts of their files.

*Invariants.* A pin ends when it is let go of, when nobody has asked for a part of it
for a while, or when its table is closed here. There are at most ``pins_max``, and no
connection has so many that others get none.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Final

from braidlog.errors import InvalidArgumentError, NotReadyError
from braidlog.node.share import share_of_one
from braidlog.node.tables.engine import HostedTable, Pinned
from braidlog.node.tables.settings import TableSettings
from braidlog.node.tables.worker import Worker
from braidlog.wire.rows import FetchRun, PinnedRuns, PinRuns, RunPart

__all__ = ["Pins"]

_PATH_SHOWN: Final = 200
"""Of a path that is refused; it may be as long as a request."""


@dataclass(slots=True)
class _Pin:
    table: bytes
    owner: Hashable
    """The connection that pinned it."""
    pinned: Pinned
    lease_s: float
    ends: float
    readers: int = 0


class Pins:
    """All versions of this node's tables that others copy."""

    def __init__(
        self,
        settings: TableSettings,
        worker: Worker,
        first: int,
        connections: Callable[[], int],
        is_gone: Callable[[Hashable], bool],
    ) -> None:
        """Begin with none; numbers begin at ``first``, so that none comes twice.

        Args:
            settings: how many there may be, and for how long.
            worker: reads the files.
            first: the number before that of the first pin.
            connections: how many connections the node has.
            is_gone: says of the owner of a pin whether its connection has ended.
        """
        self._settings = settings
        self._is_gone = is_gone
        self._connections = connections
        self._worker = worker
        self._next = first
        self._pins: dict[int, _Pin] = {}
        self._begun: Counter[Hashable] = Counter()
        # All runs are read that were never pinned: who is asked again and again, or for
        # many tables, must have threads left for everything else.
        self._reading = asyncio.Semaphore(1)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._pins)

    async def pin(
        self, table: HostedTable, message: PinRuns, owner: Hashable, now: float
    ) -> PinnedRuns:
        """Pin a version of a table for a connection.

        Raises:
            NotReadyError: too many are pinned, of all or of the connection.
            CorruptionError: some of it is damaged.
        """
        self._require_place(owner)
        self._begun[owner] += 1
        try:
            async with self._reading:
                pinned = await self._worker.run(table.pin)
        finally:
            self._begun[owner] -= 1
            if not self._begun[owner]:
                del self._begun[owner]
        lease = min(message.lease_ms / 1000, self._settings.pin_s)
        self._next += 1
        self._pins[self._next] = _Pin(message.table, owner, pinned, lease, now + lease)
        return PinnedRuns(self._next, pinned.flushed, pinned.files)

    def _require_place(self, owner: Hashable) -> None:
        settings = self._settings
        most, of_one = settings.pins_max, settings.pins_of_one_max
        count = len(self._pins) + self._begun.total()
        if count >= most:
            raise NotReadyError(f"this node has {count} pinned versions")
        mine = sum(1 for pin in self._pins.values() if pin.owner is owner)
        mine += self._begun[owner]
        if mine >= share_of_one(count, most, of_one, self._connections()):
            msg = f"this connection has {mine} pinned versions already"
            raise NotReadyError(msg).advising("Let one of them go first")

    async def fetch(self, message: FetchRun, now: float) -> tuple[RunPart, bytes]:
        """Read a part of a pinned file.

        Raises:
            NotReadyError: it is pinned no more.
            InvalidArgumentError: it is no file of the version.
        """
        pin = self._pins.get(message.pin)
        if pin is None:
            raise NotReadyError(f"pin {message.pin} has ended: pin a version again")
        known = next((f for f in pin.pinned.files if f.path == message.path), None)
        if known is None:
            shown = message.path[:_PATH_SHOWN]
            raise InvalidArgumentError(f"{shown!r} is no file of the version")
        pin.ends = now + pin.lease_s
        size = min(message.bytes_max, self._settings.part_bytes)
        read = partial(pin.pinned.read, message.path, message.offset, size)
        pin.readers += 1
        try:
            data = await self._worker.run(read)
        finally:
            pin.readers -= 1
            if self._pins.get(message.pin) is not pin and not pin.readers:
                pin.pinned.release()
        return RunPart(message.offset), data

    def let_go(self, number: int, owner: Hashable) -> None:
        """Let go of a pin for a connection; nothing happens if it has ended.

        Raises:
            InvalidArgumentError: another connection pinned it, and still copies.
        """
        pin = self._pins.get(number)
        if pin is None:
            return
        # Who was cut off goes on over a new connection, and lets go there.
        if pin.owner is not owner and not self._is_gone(pin.owner):
            raise InvalidArgumentError(f"another connection pinned version {number}")
        self._unpin(number)

    def _unpin(self, number: int) -> None:
        pin = self._pins.pop(number, None)
        if pin is not None and not pin.readers:
            pin.pinned.release()

    def tick(self, now: float) -> None:
        """Let go of those that nobody has asked for."""
        for number in [n for n, pin in self._pins.items() if now >= pin.ends]:
            self._unpin(number)

    def drop(self, table: bytes) -> None:
        """Let go of those of a table that is closed."""
        for number in [n for n, pin in self._pins.items() if pin.table == table]:
            self._unpin(number)
