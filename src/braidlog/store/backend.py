"""The two ways to hold a directory: as its one writer, or following a writer.

`WriterBackend` is the one owner of the native store and of the threads that work for
it, for `Store` and `NodeStore` alike. With the keyword ``disk`` the directory is in
memory.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, cast

from braidlog import _native
from braidlog.errors import (
    ClosedError,
    DeadlineError,
    LockedError,
    LogError,
    ReadOnlyError,
)
from braidlog.store.catalog import CatalogEntry
from braidlog.store.tables.entry import TableEntry
from braidlog.store.threads import start_thread

_log = logging.getLogger(__name__)

HOUSEKEEPING_S: Final = 1.0
"""How often a writer looks for what its segments need."""

# One of these is in every directory of logs, however damaged.
_SIGNS: Final = ("LOCK", "IDENTITY", "CURRENT", "wal")


def holds_logs(directory: Path) -> bool:
    """Tell whether a directory is one of logs."""
    return any((directory / name).exists() for name in _SIGNS)


class ViewedLog(Protocol):
    """A log that has a view; a follower gives it another when the writer began anew."""

    _stream: int
    _view: _native.LogView

    @property
    def name(self) -> str:
        """Name of the log."""


class Backend(Protocol):
    """What a node needs of the native core."""

    closed: bool
    report: dict[str, Any]

    @property
    def store(self) -> _native.Store:
        """The writer; raises ReadOnlyError where there is none."""

    def catalog(self) -> dict[str, CatalogEntry]:
        """Return the logs by name."""

    def entry(self, name: str) -> CatalogEntry | None:
        """Return one log of the catalog, if it is there."""

    def tables(self) -> list[TableEntry]:
        """Return the tables of the catalog."""

    def table(self, name: str) -> TableEntry | None:
        """Return one table of the catalog, if it is there."""

    def view(self, entry: CatalogEntry) -> _native.LogView:
        """Return the readers' side of a log."""

    def lend(self, log: ViewedLog) -> None:
        """Remember who has a view of this."""

    def refresh(self) -> None:
        """Make what became durable elsewhere visible."""

    def follow(self) -> _native.Follower:
        """Open the directory once more, to read what is durable."""

    def start_syncer(self, notify: int = -1) -> None:
        """Start the thread that makes submitted records durable, once.

        Raises:
            ReadOnlyError: there is no writer here.
        """

    def close(self, timeout: float | None = None) -> None:
        """Release the directory."""


def _sync(store: _native.Store, notify: int) -> None:
    try:
        store.run_syncer(notify)
    finally:
        if notify >= 0:
            os.close(notify)


def _entries(state: dict[str, Any]) -> dict[str, CatalogEntry]:
    return {name: CatalogEntry.of(name, row) for name, row in state.items()}


class WriterBackend:
    """Holds the directory for writing, and owns the threads that sync and keep house.

    In a directory in memory a close is made by its caller, and nothing outlives the
    process.
    """

    def __init__(self, path: Path, keywords: dict[str, Any]) -> None:
        """Open, creating the directory if there is none."""
        self.in_memory = keywords.get("disk") is not None
        self._process = os.getpid()
        holder = "simulation" if self.in_memory else f"process {self._process}"
        try:
            opened = _native.Store.open(path, holder=holder, **keywords)
        except LockedError as error:
            where = path.resolve()
            if self.in_memory or not any(o._is_at(where) for o in list(_OPEN)):
                raise
            msg = f"this very {holder} has {error.path} open for writing already"
            raise LockedError(msg, path=error.path) from None
        self.store, self.report = opened
        self.path = path
        self._disk = keywords.get("disk")
        self.closed = False
        self._where = None if self.in_memory else path.resolve()
        self._syncer: threading.Thread | None = None
        self._housekeeper: threading.Thread | None = None
        self._starting = threading.Lock()
        _OPEN.add(self)

    def _is_at(self, where: Path) -> bool:
        """Whether it was opened there by this process, and not by its parent."""
        return (self._where, self._process) == (where, os.getpid())

    def catalog(self) -> dict[str, CatalogEntry]:
        """Return the logs by name."""
        return _entries(self.store.state())

    def entry(self, name: str) -> CatalogEntry | None:
        """Return one log of the catalog, if it is there."""
        row = self.store.entry(name)
        return None if row is None else CatalogEntry.of(name, row)

    def tables(self) -> list[TableEntry]:
        """Return the tables of the catalog."""
        return [TableEntry.of(row) for row in self.store.tables()]

    def table(self, name: str) -> TableEntry | None:
        """Return one table of the catalog, if it is there."""
        row = self.store.table_row(name)
        return None if row is None else TableEntry.of(row)

    def view(self, entry: CatalogEntry) -> _native.LogView:
        """Return the readers' side of a log."""
        return self.store.view(entry.stream, entry.name)

    def lend(self, log: ViewedLog) -> None:
        """Do nothing: in the child of a fork all views refuse."""

    def refresh(self) -> None:
        """Do nothing: the writer sees everything at once."""

    def follow(self) -> _native.Follower:
        """Open the directory once more, to read what is durable."""
        return _native.Follower.open(self.path, disk=self._disk)

    def start_syncer(self, notify: int = -1) -> None:
        """Start the thread that makes submitted records durable, once.

        After each sync 1 is added to the eventfd ``notify``, which the thread closes.

        Raises:
            UnavailableError: the system gives no more threads.
        """
        with self._starting:
            if self._syncer is None:
                run = functools.partial(_sync, self.store, notify)
                try:
                    self._syncer = start_thread("braidlog-sync", run)
                except LogError:
                    if notify >= 0:
                        os.close(notify)
                    raise

    def start_housekeeper(
        self, prepare: Callable[[], object], maintain: Callable[[], object]
    ) -> None:
        """Start the thread that keeps house.

        It calls ``maintain`` every second, and ``prepare`` as soon as a spare segment
        is due.

        Raises:
            UnavailableError: the system gives no more threads.
        """
        run = functools.partial(self._keep_house, prepare, maintain)
        self._housekeeper = start_thread("braidlog-house", run)

    def _keep_house(
        self, prepare: Callable[[], object], maintain: Callable[[], object]
    ) -> None:
        due = time.monotonic() + HOUSEKEEPING_S
        while (wanted := self.store.wait_housekeeping(HOUSEKEEPING_S)) is not None:
            try:
                if wanted:
                    prepare()
                if time.monotonic() >= due:
                    due = time.monotonic() + HOUSEKEEPING_S
                    maintain()
            except ClosedError:
                return
            except Exception:
                # Appends meet the same trouble and report it to somebody who can act.
                _log.exception("the housekeeping of %s failed", self.path)
                time.sleep(HOUSEKEEPING_S)

    def close(self, timeout: float | None = None) -> None:
        """Make everything durable and release the directory. Idempotent.

        Raises:
            DeadlineError: not closed after ``timeout`` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        self.closed = True
        try:
            self.store.close(timeout)
        except DeadlineError:
            raise  # The sync thread may be what hangs.
        except LogError:
            _join(self._syncer, None)
            raise
        _join(self._syncer, None)
        if not _join(self._housekeeper, deadline):
            raise DeadlineError("the housekeeping thread has not stopped yet")


def _join(thread: threading.Thread | None, deadline: float | None) -> bool:
    """Wait for a thread to end, at most until the deadline; return whether it did."""
    # In the child of a fork the thread is not there, and a thread may close by itself.
    if thread is None or thread is threading.current_thread():
        return True
    if thread.is_alive():
        thread.join(None if deadline is None else deadline - time.monotonic())
    return not thread.is_alive()


_OPEN: weakref.WeakSet[WriterBackend] = weakref.WeakSet()


def _begin_in_child() -> None:
    # Parent and child would write the same files; the threads are gone as well.
    for backend in _OPEN:
        backend.store.set_forked()
    for follower in list(_FOLLOWING):
        follower.open_again()


os.register_at_fork(after_in_child=_begin_in_child)


def _close_at_exit() -> None:
    # What was submitted and not waited for becomes durable; a failure was reported to
    # whoever waits, and there is nobody left to tell.
    for backend in list(_OPEN):
        if not backend.in_memory:
            with contextlib.suppress(LogError):
                backend.close()
    # A daemon thread may call on: it must not be in the core when the interpreter ends.
    _native.exiting()


atexit.register(_close_at_exit)


_FOLLOWING: weakref.WeakSet[FollowerBackend] = weakref.WeakSet()
_LEFT_BEHIND: list[object] = []


class _Lost:
    """Stands for what the child of a fork could not open."""

    def __init__(self, error: LogError) -> None:
        self._error = error

    def close(self) -> None:
        """Do nothing: there is nothing to let go of."""

    def __getattr__(self, name: str) -> Any:
        raise self._error


class FollowerBackend:
    """Follows a directory that another process may be writing."""

    def __init__(self, path: Path, keywords: dict[str, Any]) -> None:
        """Open an existing directory; takes no lock and writes nothing."""
        self.report: dict[str, Any] = {}
        self._follower = _native.Follower.open(path, **keywords)
        self._opening = (path, keywords)
        self._lent: weakref.WeakSet[ViewedLog] = weakref.WeakSet()
        self.closed = False
        _FOLLOWING.add(self)

    def node(self) -> int:
        """Return the identity of the node whose directory it is."""
        return self._follower.node()

    def open_again(self) -> None:
        """Begin anew in the child of a fork.

        A thread of the parent may have held a lock of the former handles, or have been
        in the middle of a change: they are not used again, and not freed.
        """
        if self.closed:
            return
        _LEFT_BEHIND.append(self._follower)
        path, keywords = self._opening
        try:
            if keywords.get("disk") is not None:
                raise ClosedError("a store in memory stays in the process that made it")
            self._follower = _native.Follower.open(path, **keywords)
        except LogError as error:
            self._follower = cast("_native.Follower", _Lost(error))
        for log in list(self._lent):
            _LEFT_BEHIND.append(log._view)
            try:
                log._view = self._follower.view(log._stream, log.name)
            except LogError as error:
                log._view = cast("_native.LogView", _Lost(error))

    @property
    def store(self) -> _native.Store:
        """Refuse: there is no writer here."""
        raise ReadOnlyError("the directory was opened read-only")

    def catalog(self) -> dict[str, CatalogEntry]:
        """Return the logs by name, as durable now."""
        self._follower.refresh()
        return _entries(self._follower.state())

    def entry(self, name: str) -> CatalogEntry | None:
        """Return one log of the catalog as durable now, if it is there."""
        self._follower.refresh()
        row = self._follower.entry(name)
        return None if row is None else CatalogEntry.of(name, row)

    def tables(self) -> list[TableEntry]:
        """Return the tables of the catalog, as durable now."""
        self._follower.refresh()
        return [TableEntry.of(row) for row in self._follower.tables()]

    def table(self, name: str) -> TableEntry | None:
        """Return one table of the catalog as durable now, if it is there."""
        self._follower.refresh()
        row = self._follower.table_row(name)
        return None if row is None else TableEntry.of(row)

    def view(self, entry: CatalogEntry) -> _native.LogView:
        """Return the readers' side of a log."""
        return self._follower.view(entry.stream, entry.name)

    def lend(self, log: ViewedLog) -> None:
        """Remember who has a view of this."""
        self._lent.add(log)

    def refresh(self) -> None:
        """Make what became durable elsewhere visible."""
        self._follower.refresh()

    def follow(self) -> _native.Follower:
        """Open the directory once more, to read what is durable."""
        path, keywords = self._opening
        return _native.Follower.open(path, **keywords)

    def start_syncer(self, notify: int = -1) -> None:
        """Refuse: there is no writer here."""
        _ = self.store

    def close(self, timeout: float | None = None) -> None:
        """End what was made from this; a follower holds no lock."""
        self.closed = True
        self._follower.close()
