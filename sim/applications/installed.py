"""Puts simulated threads, clocks, randomness and syncs in the place of the system's.

The modules of `braidlog.app` say ``threading.Lock()``, and `braidlog.durable` says
``os.fsync()``. As long as a world lasts, these names stand for what follows its seed.
Nothing else of them changes.
SQLite gets a file system that passes everything on and tells of each sync.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeVar

import apsw

from braidlog import _native, durable
from braidlog.app.caller import caller
from braidlog.app.execution import executor
from braidlog.app.host import cluster_host
from braidlog.app.log import clustered
from braidlog.app.serve import process
from braidlog.app.snapshots import files
from braidlog.app.state import sqlite_partition
from braidlog.client.background import BackgroundLoop
from braidlog.errors import ClosedError
from braidlog.store.threads import start_thread
from sim.applications.disk import HostDisk
from sim.errors import MisuseError
from sim.locks import Locks, Time
from sim.threads import Threads

__all__ = ["install"]

T = TypeVar("T")

# Small, so that databases are checkpointed many times in a few virtual seconds.
_CHECKPOINT_PAGES: Final = 40
_UNSETTLED_MAX: Final = 20
_VFS: Final = "braidlog-sim"
_PACKAGE: Final = "braidlog.app."
# Loaded here, or they would be loaded with the system's.
_HOSTS: Final = (cluster_host, process)


class _Syncs:
    """Tells the disk that a path is on of its syncs."""

    def __init__(self) -> None:
        self.disks: Sequence[HostDisk] = ()

    def sync(self, path: Path, *, named: bool = False) -> None:
        for disk in self.disks:
            disk.sync(path, named=named)

    def synced(self, path: Path) -> None:
        for disk in self.disks:
            disk.synced(path)


_SYNCS: Final = _Syncs()


class _File(apsw.VFSFile):
    """A file of SQLite's."""

    def __init__(self, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        text = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._path = Path(text) if text else None
        # SQLite syncs the directory too, when it does so for the first time.
        self._named = bool(flags[0] & apsw.SQLITE_OPEN_WAL)

    def xSync(self, flags: int) -> None:
        if self._path is not None:
            try:
                _SYNCS.sync(self._path, named=self._named)
            except OSError as error:
                raise apsw.exception_for(apsw.SQLITE_IOERR_FSYNC) from error


class _FileSystem(apsw.VFS):
    """The file system of SQLite, which tells of each sync."""

    def __init__(self) -> None:
        super().__init__(_VFS, "unix")

    def xOpen(self, name: Any, flags: list[int]) -> _File:
        return _File(name, flags)


_REGISTERED: list[_FileSystem] = []


class _Os:
    """Stands in for the module `os`."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def urandom(self, size: int) -> bytes:
        return self._threads.random.randbytes(size)

    def fsync(self, descriptor: int) -> None:
        _SYNCS.sync(Path(f"/proc/self/fd/{descriptor}").readlink())


class _Listing:
    """The list of snapshots; each edit of it is durable, or was never made."""

    def __init__(self, path: Path, *rest: Any) -> None:
        self._path = path
        self._entries = _native.Listing(path, *rest)
        _SYNCS.synced(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entries, name)

    def commit(self, add: Any, remove: Any) -> None:
        _SYNCS.sync(self._path)
        self._entries.commit(add, remove)
        _SYNCS.synced(self._path)


class _Background(BackgroundLoop):
    """Runs calls on the loop of the world, as the process that made it."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._open = True
        self._stopped = False
        self._tasks: dict[asyncio.Task[Any], None] = {}

    @property
    def alive(self) -> bool:
        return self._open

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        if self._stopped:
            call.close()
            raise ClosedError("the call was interrupted")
        try:
            return self.finish(call)
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            raise ClosedError("the call was interrupted") from None

    def interrupt(self) -> None:
        self._stopped = True
        for task in self._tasks:
            task.cancel()

    def finish(self, call: Coroutine[Any, Any, T]) -> T:
        if not self._open:
            call.close()
            raise ClosedError("the client is closed")
        thread = self._threads.current
        if thread is None:
            call.close()
            raise MisuseError("the loop would wait for itself")
        task = self._threads.loop.create_task(call)
        self._tasks[task] = None
        task.add_done_callback(lambda _: self._threads.wake(thread))
        while not task.done():
            self._threads.block()
        del self._tasks[task]
        return task.result()

    def begin(self, call: Coroutine[Any, Any, T]) -> Any:
        raise MisuseError("simulated callers await")

    def post(self, function: Callable[[], object]) -> None:
        if not self._open:
            raise ClosedError("the client is closed")
        self._threads.loop.call_soon(function)

    def close(self) -> None:
        self._open = False


def install(
    threads: Threads,
    disks: Sequence[HostDisk],
    wall_s: Callable[[], float],
    *,
    copies_max: int,
) -> None:
    """Let hosts run on these threads and disks, until the loop is closed.

    So many partitions, ``copies_max``, each store what a command did. ``wall_s`` is the
    time of day, on which hosts agree: they compare leases with it.
    """
    loop = threads.loop
    locks = Locks(threads)

    def begin(name: str, target: Callable[[], object]) -> Any:
        thread = locks.Thread(target=target, name=name, daemon=True)
        thread.start()
        return thread

    stand_ins: dict[str, tuple[object, object]] = {
        "threading": (threading, locks),
        "start_thread": (start_thread, begin),
        "time": (time, Time(threads, wall_s)),
        "os": (os, _Os(threads)),
    }
    changes: list[tuple[Any, str, Any]] = [
        (module, name, stand_in)
        for module in _modules()
        for name, (real, stand_in) in stand_ins.items()
        if getattr(module, name, None) is real
    ]
    changes += [
        (clustered, "BackgroundLoop", lambda: _Background(threads)),
        (caller, "BackgroundLoop", lambda: _Background(threads)),
        (files, "_native", SimpleNamespace(Listing=_Listing)),
        (sqlite_partition, "_CHECKPOINT_PAGES", _CHECKPOINT_PAGES),
        (executor, "_UNSETTLED_MAX", _UNSETTLED_MAX),
        (executor, "_COPIES_MAX", copies_max),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]

    def put_back() -> None:
        _SYNCS.disks = ()
        apsw.set_default_vfs("unix")
        for module, name, value in before:
            setattr(module, name, value)

    loop.on_close.append(put_back)
    for module, name, value in changes:
        setattr(module, name, value)
    if not _REGISTERED:
        _REGISTERED.append(_FileSystem())
    apsw.set_default_vfs(_VFS)
    _SYNCS.disks = disks


def _modules() -> list[Any]:
    names = [name for name in sorted(sys.modules) if name.startswith(_PACKAGE)]
    return [durable, *(sys.modules[name] for name in names)]
