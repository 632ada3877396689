"""A store in memory; see `braidlog.testing.memory`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Self

from braidlog.client.rows import Rows
from braidlog.errors import (
    AlreadyExistsError,
    ClosedError,
    NotFoundError,
    ReadOnlyError,
)
from braidlog.names import checked_name, checked_new_name
from braidlog.store.arguments import DurationLike
from braidlog.store.catalog import LogOptions
from braidlog.store.retention import retention_of
from braidlog.suggestions import does_not_exist
from braidlog.testing.contents import Contents, Directory, now_us
from braidlog.testing.memory import MemoryLog
from braidlog.types import Compression

__all__ = ["MemoryStore"]


class MemoryStore:
    """A store in memory: ``with MemoryStore() as store``; see `Store`."""

    def __init__(
        self,
        *,
        record_bytes_max: int = 16 << 20,
        clock: Callable[[], int] = now_us,
        read_only: bool = False,
    ) -> None:
        """Begin empty; ``clock`` gives timestamps that callers leave out."""
        self.read_only = read_only
        self.closed = False
        self._options = (record_bytes_max, clock)
        self._rows = Rows(record_bytes_max, clock)
        self._directory = Directory()

    def __repr__(self) -> str:
        """Show the mode."""
        return f"<MemoryStore {'read-only' if self.read_only else 'writer'}>"

    @property
    def _changed(self) -> threading.Condition:
        return self._directory.changed

    def reopen(self, *, read_only: bool = False) -> MemoryStore:
        """Return another store with the same contents, as after a restart."""
        size, clock = self._options
        store = MemoryStore(record_bytes_max=size, clock=clock, read_only=read_only)
        store._directory = self._directory
        return store

    def __enter__(self) -> Self:
        """Return the store."""
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the store."""
        self.close()

    def close(self, timeout: DurationLike | None = None) -> None:
        """Refuse all calls from now on; subscriptions end. Idempotent."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self.closed:
            msg = "the store is closed"
            raise ClosedError(msg)

    def _check_writer(self) -> None:
        if self.read_only:
            msg = "the store was opened read-only"
            raise ReadOnlyError(msg)

    def logs(self) -> list[str]:
        """Return the names of all logs, sorted."""
        self._check_open()
        return sorted(self._directory.logs)

    def log(self, name: str) -> MemoryLog:
        """Return an existing log.

        Raises:
            NotFoundError: there is no log of that name.
        """
        self._check_open()
        contents = self._directory.logs.get(name)
        if contents is None:
            raise NotFoundError(does_not_exist("log", name, self.logs()))
        return MemoryLog(self, name, contents)

    def create_log(
        self,
        name: str,
        *,
        exist_ok: bool = False,
        compression: Compression = "none",
        retention_ms: int | timedelta | None = None,
        retention_bytes: int | None = None,
    ) -> MemoryLog:
        """Create a log; see `Store.create_log`."""
        age = retention_of(retention_ms)
        options = LogOptions(compression, age, retention_bytes)
        with self._changed:
            self._check_open()
            self._check_writer()
            name = checked_name(name, "log")
            if name not in self._directory.logs:
                checked_new_name(name, "log")
                self._directory.made += 1
                made = Contents(self._directory.made, self._options[1](), options)
                self._directory.logs[name] = made
            elif not exist_ok:
                msg = f"log {name!r} exists already"
                raise AlreadyExistsError(msg)
            return self.log(name)

    def delete_log(self, name: str) -> None:
        """Delete a log with everything in it.

        Raises:
            NotFoundError: there is no log of that name.
        """
        with self._changed:
            self.log(name)
            self._check_writer()
            self._directory.logs.pop(name).deleted = True
            self._changed.notify_all()

    def sync(self) -> None:
        """Do nothing: there is no disk."""
        self._check_open()

    def maintain(self, now_us: int | None = None) -> None:
        """Do nothing: retention is not applied in memory."""
        self._check_open()
