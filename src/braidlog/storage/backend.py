"""The two ways to hold a directory: as its one writer, or following a writer."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from pathlib import Path
from typing import Any, Protocol

from braidlog import _native
from braidlog.errors import (
    LockedError,
    LogError,
    NotFoundError,
    ReadOnlyError,
    TimeoutError_,
)
from braidlog.storage.catalog import CatalogEntry

__all__ = ["Backend", "FollowerBackend", "WriterBackend"]


class Backend(Protocol):
    """What a node needs of the native core."""

    @property
    def store(self) -> _native.Store:
        """The writer; raises ReadOnlyError where there is none."""

    def catalog(self) -> dict[str, CatalogEntry]:
        """Return the logs by name."""

    def entry(self, name: str) -> CatalogEntry | None:
        """Return one log of the catalog, if it is there."""

    def view(self, stream: int) -> _native.LogView:
        """Return the readers' side of a stream."""

    def refresh(self) -> None:
        """Make what became durable elsewhere visible."""

    def close(self, timeout: float | None = None) -> None:
        """Release the directory."""


def _entries(state: dict[str, Any]) -> dict[str, CatalogEntry]:
    return {name: CatalogEntry.of(name, row) for name, row in state.items()}


class WriterBackend:
    """Holds the directory for writing. Owns the sync thread."""

    def __init__(self, path: Path, keywords: dict[str, Any]) -> None:
        """Open, creating the directory if there is none."""
        self._process = os.getpid()
        holder = f"process {self._process}"
        try:
            opened = _native.Store.open(path, holder=holder, **keywords)
        except LockedError as error:
            where = path.resolve()
            if not any(other._is_at(where) for other in list(_OPEN)):
                raise
            msg = f"{error.path} is open for writing in this very {holder}"
            raise LockedError(msg, path=error.path) from None
        self.store, self.report = opened
        self._where = path.resolve()
        self._syncer: threading.Thread | None = None
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

    def view(self, stream: int) -> _native.LogView:
        """Return the readers' side of a stream."""
        return self.store.view(stream)

    def refresh(self) -> None:
        """Do nothing: the writer sees everything at once."""

    def start_syncer(self, notify: int = -1) -> None:
        """Start the thread that makes submitted records durable, once."""
        with self._starting:
            if self._syncer is None:
                self._syncer = threading.Thread(
                    target=self.store.run_syncer,
                    args=(notify,),
                    name="braidlog-sync",
                    daemon=True,
                )
                self._syncer.start()

    def close(self, timeout: float | None = None) -> None:
        """Make everything durable and release the directory. Idempotent."""
        try:
            self.store.close(timeout)
        except TimeoutError_:
            raise  # The sync thread may be what hangs.
        except LogError:
            self._join()
            raise
        self._join()

    def _join(self) -> None:
        # In the child of a fork the thread is not there.
        syncer = self._syncer
        if syncer is not None and syncer.is_alive():
            syncer.join()


_OPEN: weakref.WeakSet[WriterBackend] = weakref.WeakSet()


def _refuse_in_child() -> None:
    # Parent and child would write the same files; the threads are gone as well.
    for backend in _OPEN:
        backend.store.set_forked()


os.register_at_fork(after_in_child=_refuse_in_child)


def _close_at_exit() -> None:
    # What was submitted and not waited for becomes durable; a failure was reported to
    # whoever waits, and there is nobody left to tell.
    for backend in list(_OPEN):
        with contextlib.suppress(LogError):
            backend.close()


atexit.register(_close_at_exit)


class FollowerBackend:
    """Follows a directory that another process may be writing."""

    def __init__(self, path: Path, keywords: dict[str, Any]) -> None:
        """Open an existing directory; takes no lock and writes nothing."""
        if not path.is_dir():
            msg = f"there is no directory {path}"
            raise NotFoundError(msg)
        self._follower = _native.Follower.open(path, **keywords)

    @property
    def store(self) -> _native.Store:
        """Refuse: there is no writer here."""
        msg = "this directory was opened read-only"
        raise ReadOnlyError(msg)

    def catalog(self) -> dict[str, CatalogEntry]:
        """Return the logs by name, as durable now."""
        self._follower.refresh()
        return _entries(self._follower.state())

    def entry(self, name: str) -> CatalogEntry | None:
        """Return one log of the catalog as durable now, if it is there."""
        self._follower.refresh()
        row = self._follower.entry(name)
        return None if row is None else CatalogEntry.of(name, row)

    def view(self, stream: int) -> _native.LogView:
        """Return the readers' side of a stream."""
        return self._follower.view(stream)

    def refresh(self) -> None:
        """Make what became durable elsewhere visible."""
        self._follower.refresh()

    def close(self, timeout: float | None = None) -> None:
        """End what was made from this; a follower holds no lock."""
        self._follower.close()
