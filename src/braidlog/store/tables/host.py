"""The tables of an open store, and the thread that works for them.

*Theory of operation.* What exists is in the catalog alone. The host opens the files of
a table when somebody asks for it, and keeps them open; after a change of the catalog it
lets go of what is gone. Its thread does what nobody waits for: it applies records, asks
`upkeep` whether to flush, merges, and builds indexes, a piece at a time.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from braidlog.errors import (
    ClosedError,
    InvalidArgumentError,
    LogError,
    NotFoundError,
)
from braidlog.store.tables.change import FollowedLog, TableChanges
from braidlog.store.tables.entry import IndexEntry, TableEntry
from braidlog.store.tables.upkeep import Pressure, flush_is_due
from braidlog.store.threads import start_thread
from braidlog.suggestions import does_not_exist

if TYPE_CHECKING:
    from braidlog.store.backend import Backend
    from braidlog.store.tables.opened import OpenTable, OpenTables

__all__ = ["TableHost"]

_log = logging.getLogger(__name__)

UPKEEP_S: Final = 1.0
"""How often the thread looks for what tables need."""

# Merges of one table before the others get their turn.
_MERGES: Final = 4
_POLL_S: Final = 0.01

# Indexes of which it is known why they were given up.
_REFUSED_MAX: Final = 1024

# Replaced tables of which it is known what they became. An object for a table that was
# replaced longer ago finds it by its name.
_BECAME_MAX: Final = 4096


class TableStore(Protocol):
    """The store that tables are in, as they need it."""

    _backend: Backend
    read_only: bool

    @property
    def closed(self) -> bool: ...

    def _check_open(self) -> None: ...
    def _followed(self, log: str) -> FollowedLog: ...
    def _retention_waits(self, log: str, pin: int) -> bool: ...


class TableHost:
    """All tables of one store."""

    def __init__(self, store: TableStore, tables: OpenTables) -> None:
        """Open none yet."""
        self._store = store
        self._tables = tables
        self._open: dict[int, OpenTable] = {}
        self._attached: dict[int, set[int]] = {}
        self._dropped: dict[int, OpenTable] = {}
        # Kind and message of the last failure of each table's upkeep.
        self._failures: dict[int, tuple[str, str]] = {}
        self._refused: dict[tuple[int, str], str] = {}
        self._orphans = not store.read_only
        self._became: dict[int, int] = {}
        self._changes = 0
        self._built: dict[tuple[int, int], int] = {}
        # Held while tables are opened and let go of, and while the catalog is changed.
        self._changing = threading.RLock()
        self._upkeeping = threading.Lock()
        self._stopping = threading.Event()
        self._wanted = threading.Event()
        self._said = ""
        self._tended = 0.0
        self._thread: threading.Thread | None = None
        if not store.read_only and self.entries():
            self._start()

    @property
    def changed(self) -> int | None:
        """How often the catalog changed; None if another process may change it."""
        return None if self._store.read_only else self._changes

    def changed_at_last(self) -> int | None:
        """Return the same once a change that is under way has been made."""
        with self._changing:
            return self.changed

    # -- catalog -----------------------------------------------------------------

    def entries(self) -> list[TableEntry]:
        """Return the tables of the catalog, by name."""
        self._store._check_open()
        found = self._store._backend.tables()
        return sorted(found, key=lambda table: table.name)

    def tables(self) -> list[TableEntry]:
        """Return the tables of the catalog; what changes are checked against."""
        return self.entries()

    def followed(self, log: str) -> FollowedLog:
        """Return what a change has to know of a log."""
        return self._store._followed(log)

    def check_field(self, field: str) -> None:
        """Refuse what describes no field of a record."""
        self._tables.check_field(field)

    def entry(self, name: str) -> TableEntry:
        """Return a table of the catalog.

        Raises:
            NotFoundError: there is none of that name.
        """
        self._store._check_open()
        found = self._store._backend.table(name)
        if found is None:
            known = [table.name for table in self.entries()]
            raise NotFoundError(does_not_exist("table", name, known))
        return found

    def current(self, entry: TableEntry) -> TableEntry:
        """Return a table as it is now: renamed, truncated or rebuilt meanwhile.

        Raises:
            NotFoundError: it was dropped.
        """
        wanted = entry.id
        while wanted in self._became:
            wanted = self._became[wanted]
        tables = self.entries()
        for table in tables:
            if table.id == wanted:
                return table
        for table in tables:  # By another process, which this one follows.
            if table.is_of(entry):
                return table
        msg = f"table {entry.name!r} was dropped"
        raise NotFoundError(msg)

    @contextlib.contextmanager
    def change(self) -> Iterator[TableChanges]:
        """Gather changes, and make all of them when the block ends."""
        _ = self._store._backend.store  # Refuses a store that is read only.
        self._store._check_open()
        changes = TableChanges(self)
        yield changes
        if changes:
            self.commit(changes.changes, changes.created)

    def commit(
        self, changes: list[tuple[Any, ...]], created: Iterable[TableEntry] = ()
    ) -> None:
        """Make changes, all or none; durable on return."""
        with self._changing:
            for table in created:
                self._tables.prepare(table)
            self._orphans = True  # Also if the entry is refused.
            begun: list[tuple[int, int]] = []
            try:
                changes = [self._begin(change, begun) for change in changes]
                self._store._backend.store.change_tables(changes)
            except BaseException:
                for of_table, tree in begun:
                    self._open[of_table].detach(tree)
                    self._attached[of_table].discard(tree)
                raise
            self._changes += 1
            for change in changes:
                if change[0] == "replace":
                    self._became[change[1]] = change[2]
                    if len(self._became) > _BECAME_MAX:
                        del self._became[next(iter(self._became))]
            self._let_go()
        if self._thread is None:
            self._start()
        self._wanted.set()

    def _begin(
        self, change: tuple[Any, ...], begun: list[tuple[int, int]]
    ) -> tuple[Any, ...]:
        """Begin the index of a change that says no position, and add where it is."""
        if change[0] != "build" or change[-1] is not None:
            return change
        _, table, tree, name, field, _ = change
        entry = next(each for each in self.entries() if each.id == table)
        native = self.native(entry)
        index = IndexEntry(name, field.decode(), tree, active=False, position=1)
        position = native.begin(index)
        self._refused.pop((table, name), None)
        self._attached[table].add(tree)
        begun.append((table, tree))
        return (*change[:-1], position)

    def _let_go(self) -> None:
        """Close what is no table any more, and forget indexes that are none."""
        there = {table.id: table for table in self._store._backend.tables()}
        gone = [table for table in self._open if table not in there]
        for table in gone:
            native = self._open.pop(table)
            native.abandon()
            _end(native)
            self._dropped[table] = native
            self._failures.pop(table, None)
            del self._attached[table]
        for table, native in self._open.items():
            attached = self._attached[table]
            for tree in attached - {index.tree for index in there[table].indexes}:
                native.detach(tree)
                attached.discard(tree)

    # -- files -------------------------------------------------------------------

    def native(self, entry: TableEntry) -> OpenTable:
        """Return the open files of a table."""
        with self._changing:
            self._store._check_open()
            found = self._open.get(entry.id)
            if found is None:
                entry = self.current(entry)
                # What came in its place may be open: never are files opened twice.
                found = self._open.get(entry.id)
            if found is None:
                found = self._tables.open(entry)
                self._open[entry.id] = found
                lost = found.lost
                of_lost = {tree for _, tree, _ in lost}
                trees = {index.tree for index in entry.indexes}
                self._attached[entry.id] = trees - of_lost
                if lost:
                    self._build_anew(entry, lost)
            return found

    def _build_anew(
        self, entry: TableEntry, lost: Iterable[tuple[str, int, str]]
    ) -> None:
        """Begin again each index whose files are gone: the table has what it needs."""
        changes: list[tuple[Any, ...]] = []
        for name, tree, reason in lost:
            _log.warning(
                "index %r of table %r is built anew: %s", name, entry.name, reason
            )
            index = entry.index(name)
            if index is not None:
                new = secrets.randbits(128) | 1
                changes += [
                    ("unindex", entry.id, tree),
                    ("build", entry.id, new, name, index.field.encode(), None),
                ]
        self.commit(changes)

    # -- upkeep ------------------------------------------------------------------

    def _start(self) -> None:
        self._thread = start_thread("braidlog-tables", self._keep)

    def _keep(self) -> None:
        while not self._stopping.is_set():
            self._wanted.wait(UPKEEP_S)
            self._wanted.clear()
            if self._stopping.is_set():
                return
            try:
                self.maintain()
            except ClosedError:
                return
            except Exception as error:
                # What fails for one table is in `describe` and in the log already.
                if not self._failures and self._said != str(error):
                    _log.exception("the upkeep of tables failed")
                self._said = str(error)
                self._stopping.wait(UPKEEP_S)

    def wake(self) -> None:
        """Let the thread look now."""
        self._wanted.set()

    def maintain(self) -> None:
        """Apply, flush, merge and build what is due.

        A table that fails does not keep the others from it; the first error is raised.
        """
        with self._upkeeping:
            first = self._tend(self._maintain)
            if self._orphans:
                self._collect()
        if first is not None:
            raise first

    def _tend(self, maintain: Callable[[TableEntry], object]) -> Exception | None:
        """Maintain each table; return the first error."""
        first: Exception | None = None
        for entry in self.entries():
            try:
                maintain(entry)
            except (NotFoundError, ClosedError):
                self._store._check_open()  # Else it was dropped meanwhile.
            except Exception as error:
                first = first or error
                self._note(entry, error)
            else:
                self._failures.pop(entry.id, None)
        self._tended = time.monotonic()
        return first

    def _note(self, entry: TableEntry, error: Exception) -> None:
        known = self._failures.get(entry.id)
        self._failures[entry.id] = type(error).__name__, str(error)
        # It is tried each second, and each time with another file.
        if known is None or known[0] != type(error).__name__:
            _log.error("the upkeep of table %r failed", entry.name, exc_info=error)

    def failure(self, entry: TableEntry) -> str | None:
        """Return why the upkeep of a table fails; None if it does not."""
        _, said = self._failures.get(entry.id, (None, None))
        return said

    def _collect(self) -> None:
        """Remove files that are of no table, and that nobody reads any more."""
        with self._changing:  # So that none is just being created.
            self._dropped = {
                table: native for table, native in self._dropped.items() if native.read
            }
            known = [(table, native.trees) for table, native in self._dropped.items()]
            reading = bool(self._dropped)
            for entry in self.entries():
                native = self._open.get(entry.id)
                dropped = [] if native is None else native.dropped
                reading = reading or bool(dropped)
                trees = [entry.primary, *(index.tree for index in entry.indexes)]
                known.append((entry.id, trees + dropped))
            self._tables.collect_orphans(known)
            self._orphans = reading

    def _maintain(self, entry: TableEntry) -> None:
        native = self._keep_up(entry)
        for index in entry.indexes:
            if not index.active:
                self._build(entry, index, native)

    def _keep_up(self, entry: TableEntry) -> OpenTable:
        """Apply, flush and merge."""
        native = self.native(entry)
        native.apply()
        if flush_is_due(self._pressure(entry, native)):
            native.flush()
        native.move_pin()  # Reading may have flushed, too.
        for _ in range(_MERGES):
            if self._stopping.is_set() or not native.merge():
                break
        return native

    def _pressure(self, entry: TableEntry, native: OpenTable) -> Pressure:
        raw, store = native.stats(), self._store._backend.store.stats()
        return Pressure(
            memory_bytes=raw["memory_bytes"],
            memory_bytes_max=entry.options.memory_bytes,
            held=max(0, raw["applied"] - raw["flushed"]),
            segments=store["segments"],
            segments_max=store["segments_max"],
            retention_waits=self._store._retention_waits(entry.log, entry.pin),
        )

    def _build(self, entry: TableEntry, index: IndexEntry, native: OpenTable) -> None:
        def goes_on(read: int) -> bool:
            self._built[entry.id, index.tree] = read
            # A building takes long, and a table that does not flush holds its log.
            if time.monotonic() - self._tended > UPKEEP_S:
                self._tend(self._keep_up)
            return not self._stopping.is_set()

        # Dropped meanwhile, with its table or alone: nothing is left to activate.
        with contextlib.suppress(NotFoundError, ClosedError):
            try:
                built = native.build(index.tree, goes_on)
            except NotFoundError:
                raise  # Dropped meanwhile, so nobody gave it up.
            except InvalidArgumentError as error:
                # Of a record that must not be missing, and cannot be there.
                _log.warning("table %r: %s", entry.name, error)
                self._refused[entry.id, index.name] = error.message
                if len(self._refused) > _REFUSED_MAX:
                    del self._refused[next(iter(self._refused))]
                self._settle("abort", entry, index)
            else:
                if built:
                    self._settle("activate", entry, index)
        self._built.pop((entry.id, index.tree), None)

    def _settle(self, how: str, entry: TableEntry, index: IndexEntry) -> None:
        end = self._store._followed(entry.log).end
        self.commit([(how, entry.id, index.tree, end)])

    def refused(self, entry: TableEntry, name: str) -> str | None:
        """Return why the last index of a name was given up; None if it was not.

        That is known until the store is closed, or an index of that name is created.
        """
        return self._refused.get((entry.id, name))

    def built(self, table: int, tree: int) -> int:
        """Return how many records were read for an index that is being built."""
        return self._built.get((table, tree), 0)

    def wait_index(self, entry: TableEntry, name: str, timeout: float | None) -> bool:
        """Wait until an index is used; False if ``timeout`` seconds pass first."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self.native(entry)  # Which says if its files are lost.
        self.wake()
        while True:
            now = self.current(entry)
            index = now.index(name)
            if index is None:
                refused = self.refused(now, name)
                if refused is not None:
                    raise InvalidArgumentError(refused)
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
        """Stop the thread and let go of all files. Idempotent."""
        self._stopping.set()
        self._wanted.set()
        with self._changing:
            for native in self._open.values():
                native.abandon()  # A long task ends here.
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._changing:
            while self._open:
                _end(self._open.popitem()[1])


def _end(native: OpenTable) -> None:
    """Close a table. An open finds its files as after a crash if the disk is full."""
    try:
        native.close()
    except LogError as error:
        _log.warning("a table was not closed in order: %s", error)
