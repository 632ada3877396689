"""The log as a host needs it: whose order is executed, and where calls are appended.

A host runs over anything that satisfies `CommandLog`; the embedded log does.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from braidlog.app.execution.record import RecordLike
from braidlog.errors import ClosedError
from braidlog.sources.plan import Bounds, extents_of, plan_bytes
from braidlog.store.internals import end_waits, pinned, usable_bytes
from braidlog.store.store import open_store

LOG_NAME: Final = "commands"
"""Of the log in the directory of an application."""


class CommandLog(Protocol):
    """A log that a host appends to and reads. Safe to use from many threads."""

    @property
    def first(self) -> int:
        """First position that can be read."""

    @property
    def end(self) -> int:
        """One past the last position that is durable, as far as it is known here."""

    @property
    def as_of(self) -> tuple[float, int]:
        """A moment of the monotonic clock, and the end of the log then or later."""

    def latest(self, timeout: float | None = None) -> int:
        """Return one past the last position that is durable now, whoever wrote it.

        Raises:
            DeadlineError: that could not be found out in ``timeout`` seconds.
        """

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
        """Return up to ``limit`` durable records from ``begin`` on.

        At least one, waiting for it, unless there was a `wake`.
        """

    def wait(self, position: int, timeout: float) -> bool:
        """Wait until a position is durable; False after ``timeout`` or a `wake`."""

    def wake(self) -> None:
        """End the waits; waits that come later return at once."""

    def close(self) -> None:
        """Release the log."""


class TrimmableLog(CommandLog, Protocol):
    """A log that a host may trim: what snapshots need besides."""

    @property
    def identity(self) -> str:
        """What no other log has."""

    @property
    def capacity(self) -> int | None:
        """Bytes that it may have, None if it has no bound."""

    def size(self, begin: int, end: int) -> int:
        """Return about how many bytes there are from ``begin`` to ``end``."""

    def trim(self, before: int) -> int:
        """Let what is below ``before`` go, as far as pins allow; return the first."""

    def pinned(self) -> int | None:
        """Return the lowest position that a cursor holds, or None."""

    def cursors(self) -> dict[str, int]:
        """Return the positions of the named cursors whose lease has not ended."""

    def set_cursor(self, name: str, position: int, lease_s: float | None) -> None:
        """Store a cursor that does not pin; durable on return."""


class EmbeddedLog:
    """The log of an application in a directory of its own, in this process."""

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Open the directory as its writer; options as `braidlog.open`."""
        self._node = open_store(path, **options)
        self._log = self._node.create_log(LOG_NAME, exist_ok=True)

    @property
    def first(self) -> int:
        """First position that can be read."""
        return self._log.first

    @property
    def end(self) -> int:
        """One past the last position that is durable."""
        return self._log.end

    @property
    def as_of(self) -> tuple[float, int]:
        """Now, and the end of the log: nobody else writes it."""
        return time.monotonic(), self._log.end

    def latest(self, timeout: float | None = None) -> int:  # noqa: ARG002, RUF100
        """Return one past the last position that is durable."""
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

    @property
    def identity(self) -> str:
        """What no other log has."""
        return self._log.id

    @property
    def capacity(self) -> int | None:
        """Bytes that it may have."""
        return usable_bytes(self._node)

    def size(self, begin: int, end: int) -> int:
        """Return about how many bytes there are from ``begin`` to ``end``."""
        return plan_bytes(extents_of(self._log.segments()), Bounds(begin, end))

    def trim(self, before: int) -> int:
        """Let what is below ``before`` go, as far as pins allow; return the first."""
        return self._log.trim(before)

    def pinned(self) -> int | None:
        """Return the lowest position that a cursor holds, or None."""
        return pinned(self._log, time.time_ns() // 1000)

    def cursors(self) -> dict[str, int]:
        """Return the positions of the named cursors."""
        return {cursor.name: cursor.position for cursor in self._log.cursors()}

    def set_cursor(self, name: str, position: int, lease_s: float | None) -> None:  # noqa: ARG002, RUF100
        """Store a cursor; nobody else's is here, so none has a lease."""
        self._log.set_cursor(name, position)

    def wake(self) -> None:
        """End the waits."""
        with contextlib.suppress(ClosedError):
            end_waits(self._log)

    def close(self) -> None:
        """Make everything durable and release the directory."""
        self._node.close()
