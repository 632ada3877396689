"""The tables of a directory that another process writes.

*Theory of operation.* What exists is in the catalog, which is looked at for each call:
it may have changed. What a table has is read from its files and from what its log has
behind them. Nobody keeps the files for a reader: once a table was dropped they go, and
what fails for that reason says that the table is gone.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from braidlog import _native
from braidlog.errors import (
    BeyondEndError,
    MissingFileError,
    NotFoundError,
    NotReadyError,
    ReadOnlyError,
)
from braidlog.store.tables.entry import TableEntry
from braidlog.store.tables.opened import (
    OpenSnapshot,
    Reads,
    advising,
    definition_of,
    figures,
    options_of,
)
from braidlog.suggestions import does_not_exist

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from braidlog._native import Record
    from braidlog.store.backend import FollowerBackend

__all__ = ["FollowedTable", "FollowedTables"]

# A table that is dropped and made again so often while it is opened is no table.
_ATTEMPTS: Final = 16

_POLL_S: Final = 0.05


class FollowedStore(Protocol):
    """The store that tables are in, as they need it."""

    def _check_open(self) -> None: ...


class FollowedTable(Reads):
    """A table that another process may be writing, as of one state of the catalog."""

    def __init__(
        self, tables: FollowedTables, native: _native.TableFollower, entry: TableEntry
    ) -> None:
        """Wrap a table that is open."""
        self._tables = tables
        self._native = native
        self._entry = entry
        self._lost = {name: reason for name, _, reason in native.lost()}

    def fits(self, entry: TableEntry) -> bool:
        """Whether the table still has the indexes that this one reads."""
        return _active(entry) == _active(self._entry)

    @contextlib.contextmanager
    def _looking(self) -> Iterator[None]:
        """Say of a file that is gone if the table is gone, too."""
        try:
            yield
        except MissingFileError:
            now = self._tables.current(self._entry)
            if now.id == self._entry.id and self.fits(now):
                raise
            msg = f"table {now.name!r} was changed while it was read"
            raise NotReadyError(msg) from None

    def _snapshot(self, after: int | None) -> _native.TableSnapshot:
        with self._looking():
            found = self._native.snapshot()
        if after is not None and after > found.position:
            end = found.position + 1
            msg = f"position {after} is not durable yet: the log ends at {end}"
            raise BeyondEndError(msg, next=end)
        return found

    def get(self, key: Buffer, after: int | None = None) -> Record | None:
        """Return the record that has the value of a key."""
        if after is not None:
            return super().get(key, after)
        with self._looking():
            return self._native.get(key)

    def _check_index(self, name: str) -> None:
        reason = self._lost.get(name)
        if reason is not None:
            msg = f"index {name!r} of table {self._entry.name!r} is lost: {reason}"
            index = self._entry.index(name)
            tree = "" if index is None else f"{index.tree:032x}"
            path = self._tables.directory / f"{self._entry.id:032x}" / tree
            raise MissingFileError(msg, path=str(path)).advising(
                "The process that writes the directory builds it anew when it opens it"
            )

    def scan_index(
        self, name: str, after: int | None = None, **bounds: Any
    ) -> Iterator[Record]:
        """Iterate in the order of an index."""
        self._check_index(name)
        return super().scan_index(name, after, **bounds)

    def batches_index(
        self, name: str, after: int | None = None, **bounds: Any
    ) -> _native.TableBatches:
        """Scan an index as Arrow batches."""
        self._check_index(name)
        return super().batches_index(name, after, **bounds)

    def at(self, position: int | None) -> OpenSnapshot:
        """Return the table at a position, or at the last one of the log."""
        with self._looking():
            return OpenSnapshot(self._native.snapshot(position))

    def apply(self) -> int:
        """Look at what the log has; return its last position."""
        with self._looking():
            return self._native.refresh()

    def flush(self, progress: Any = None) -> NoReturn:
        """Refuse: there is no writer here."""
        _refuse()

    def verify(self, progress: Any = None) -> tuple[int, int]:
        """Read everything, and compare indexes with records."""
        for name in self._lost:
            self._check_index(name)
        with self._looking():
            return self._native.verify(progress)

    def stats(self) -> dict[str, Any]:
        """Return the fields of `TableStats`, and what descriptions need beside them."""
        self.apply()
        # What the writer did since it was opened only the writer knows.
        return figures(self._native.stats(), flushes=0, merges=0)


def _refuse() -> NoReturn:
    msg = "the directory was opened read-only, and only its writer changes tables"
    raise ReadOnlyError(msg)


def _active(entry: TableEntry) -> set[tuple[str, int]]:
    return {(index.name, index.tree) for index in entry.indexes if index.active}


class FollowedTables:
    """All tables of one store that was opened read-only."""

    def __init__(
        self, store: FollowedStore, backend: FollowerBackend, directory: Path
    ) -> None:
        """Open none yet; ``directory`` is that of all tables."""
        self._store = store
        self._backend = backend
        self.directory = directory
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._cache = _native.TableCache()
        self._open: dict[int, FollowedTable] = {}
        self._opening = threading.Lock()

    @property
    def changed(self) -> None:
        """How often the catalog changed, which only its writer knows."""
        return

    def changed_at_last(self) -> None:
        """Return the same."""

    def entries(self) -> list[TableEntry]:
        """Return the tables of the catalog, by name."""
        self._store._check_open()
        return sorted(self._backend.tables(), key=lambda table: table.name)

    def entry(self, name: str) -> TableEntry:
        """Return a table of the catalog.

        Raises:
            NotFoundError: there is none of that name.
        """
        self._store._check_open()
        found = self._backend.table(name)
        if found is None:
            known = [table.name for table in self.entries()]
            raise NotFoundError(does_not_exist("table", name, known))
        return found

    def current(self, entry: TableEntry) -> TableEntry:
        """Return a table as it is now: renamed, truncated or rebuilt meanwhile.

        Raises:
            NotFoundError: it was dropped.
        """
        tables = self.entries()
        same = [table for table in tables if table.id == entry.id]
        for table in same or tables:
            if table.is_of(entry):
                return table
        msg = f"table {entry.name!r} was dropped"
        raise NotFoundError(msg)

    def native(self, entry: TableEntry) -> FollowedTable:
        """Return the open files of a table.

        Raises:
            MissingFileError: a file of it is gone.
            CorruptionError: it is damaged, or its log is not the one that it was made
                of.
        """
        if self._process != os.getpid():
            # A thread of the parent may have held any lock: none of it is used again.
            _LEFT_BEHIND.append((self._open, self._cache, self._opening))
            self._begin()
        with self._opening:
            self._store._check_open()
            for _ in range(_ATTEMPTS):
                found = self._open.get(entry.id)
                if found is not None and found.fits(entry):
                    return found
                try:
                    found = self._opened(entry)
                except MissingFileError:
                    now = self.current(entry)
                    if (now.id, _active(now)) == (entry.id, _active(entry)):
                        raise
                    entry = now
                else:
                    there = {table.id for table in self._backend.tables()}
                    for gone in self._open.keys() - there:
                        del self._open[gone]
                    self._open[entry.id] = found
                    return found
        msg = f"table {entry.name!r} was changed each time that it was opened"
        raise NotReadyError(msg)

    def _opened(self, entry: TableEntry) -> FollowedTable:
        log = self._backend.entry(entry.log)
        if log is None:
            msg = f"log {entry.log!r}, and with it table {entry.name!r}, was deleted"
            raise NotFoundError(msg)
        definition = definition_of(entry, self._backend.node(), built=True)
        with advising(entry):
            native = _native.TableFollower.open(
                self._backend.view(log),
                self.directory,
                definition,
                self._cache,
                **options_of(entry),
            )
            native.check()
        return FollowedTable(self, native, entry)

    def change(self) -> NoReturn:
        """Refuse: there is no writer here."""
        _refuse()

    def failure(self, entry: TableEntry) -> None:
        """Return why the upkeep of a table fails, which only its writer knows."""

    def refused(self, entry: TableEntry, name: str) -> None:
        """Return why an index was given up, which only the writer knows."""

    def built(self, table: int, tree: int) -> int:
        """Return how far a building is, which only the writer knows."""
        return 0

    def wait_index(self, entry: TableEntry, name: str, timeout: float | None) -> bool:
        """Wait until the writer has built an index; False if ``timeout`` passes first.

        Raises:
            NotFoundError: it was dropped, or its building was given up.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            now = self.current(entry)
            index = now.index(name)
            if index is None:
                known = [each.name for each in now.indexes]
                what = f"table {now.name!r}: index"
                raise NotFoundError(does_not_exist(what, name, known))
            if index.active:
                return True
            left = _POLL_S if deadline is None else deadline - time.monotonic()
            if not left > 0:
                return False
            time.sleep(min(_POLL_S, left))

    def close(self) -> None:
        """Let go of all files. Idempotent."""
        self._open.clear()


_LEFT_BEHIND: list[object] = []
