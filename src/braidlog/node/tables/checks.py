"""Tables of this node that are read whole because somebody asked whether they are.

*Theory of operation.* Reading a large table takes minutes, longer than a request may
take. So who asks names a check, and asks again with that name: each answer says how far
it is, and the last one what it came to. A check that is not here any more, because the
node was restarted or nobody asked for long, begins anew.

*Invariants.* One table is read at a time, so that reading holds up no flush. A check
ends when nobody has asked for it for ``check_s``, and when its table is closed. There
are at most ``checks_max``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from braidlog.errors import CorruptionError, LogError, NotReadyError
from braidlog.node.tables.host import TableHost
from braidlog.node.tables.settings import TableSettings
from braidlog.node.tables.worker import Worker
from braidlog.wire.rows import TableCheck, VerifyTable

__all__ = ["Checks"]


@dataclass(slots=True)
class _Check:
    table: bytes
    ends: float
    stopped: bool = False
    read: int = 0
    task: asyncio.Task[None] | None = None
    done: TableCheck | None = None
    """What it came to."""
    error: LogError | None = field(default=None)
    """Why it came to nothing."""


class Checks:
    """All checks of a node."""

    def __init__(self, settings: TableSettings, worker: Worker) -> None:
        """Begin with none."""
        self._settings = settings
        self._worker = worker
        self._checks: dict[bytes, _Check] = {}
        self._reading = asyncio.Semaphore(1)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._checks)

    def knows(self, check: bytes) -> bool:
        """Tell whether a check has begun."""
        return check in self._checks

    def begin(self, check: bytes, host: TableHost, now: float) -> None:
        """Begin to read the table of a host, under a name.

        Raises:
            NotReadyError: it cannot be read now, or too many are read.
        """
        if len(self._checks) >= self._settings.checks_max:
            msg = f"this node checks {len(self._checks)} tables already: try later"
            raise NotReadyError(msg)
        found = _Check(host.info.table, now + self._settings.check_s)
        found.task = asyncio.get_running_loop().create_task(self._read(found, host))
        self._checks[check] = found

    async def answer(self, message: VerifyTable, wait: float, now: float) -> TableCheck:
        """Return how far a check is, after ``wait`` seconds at most.

        Raises:
            NotReadyError: its table was closed meanwhile.
            LogError: why it came to nothing.
        """
        check = self._checks[message.check]
        check.ends = now + wait + self._settings.check_s
        assert check.task is not None, "it has begun"
        await asyncio.wait([check.task], timeout=wait)
        if check.error is not None:
            # Asked again, it begins anew.
            self._checks.pop(message.check, None)
            raise check.error
        return check.done or TableCheck(check.read, done=False)

    async def _read(self, check: _Check, host: TableHost) -> None:
        def goes_on(read: int) -> bool:
            check.read = read
            return not check.stopped

        try:
            async with self._reading:
                table = host.table
                found = await self._worker.run(lambda: table.verify(goes_on))
        except CorruptionError as error:
            check.done = TableCheck(
                check.read,
                done=True,
                damage=error.message,
                path=error.path,
                offset=error.offset,
            )
            host.breaks(error)
        except LogError as error:
            check.error = error
        else:
            if found is None:
                check.error = NotReadyError("the table was closed while it was read")
            else:
                read, entries = found
                check.done = TableCheck(read + entries, True, read, entries)

    def tick(self, now: float) -> None:
        """End those that nobody has asked for."""
        for name in [n for n, each in self._checks.items() if now >= each.ends]:
            self._checks.pop(name).stopped = True

    def drop(self, table: bytes) -> None:
        """End those of a table that is closed; what they have found stays."""
        for check in self._checks.values():
            if check.table == table:
                check.stopped = True

    async def close(self) -> None:
        """End all, and wait until nothing is read."""
        tasks = []
        for check in self._checks.values():
            check.stopped = True
            if check.task is not None:
                tasks.append(check.task)
        self._checks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
