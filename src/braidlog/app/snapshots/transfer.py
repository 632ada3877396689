"""The state of one host for another: giving a copy of it, and taking one."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from braidlog import durable
from braidlog.app.caller.caller import AsyncCaller, Caller
from braidlog.app.errors import (
    DivergedError,
    SnapshotDamagedError,
)
from braidlog.app.log.clustered import ClusteredLog
from braidlog.app.log.stop import Stop
from braidlog.app.snapshots.files import SnapshotFiles, close_all
from braidlog.app.snapshots.live_state import LiveState
from braidlog.app.snapshots.restore import forget_restore, restore_if_needed
from braidlog.app.state.failures import breakage_at
from braidlog.app.state.sqlite import SqliteState
from braidlog.errors import (
    CorruptionError,
    InvalidArgumentError,
    LogError,
    NotFoundError,
    TrimmedError,
)
from braidlog.wire.messages import FetchSnapshot, SnapshotPart

_log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Hears how many bytes of how many came."""

PART_BYTES_MAX: Final = 1 << 20
"""Bytes of a copy in one answer."""


def file_of(directory: Path, partition: int) -> Path:
    """Return the file of a partition in a directory of databases."""
    return directory / f"partition-{partition:04}.db"


class StateCopies:
    """The one copy that a host has for others; made when one is asked for."""

    def __init__(self, runner: LiveState, directory: Path) -> None:
        """Forget copies of an earlier start."""
        self._runner = runner
        self._directory = directory
        self._lock = threading.Lock()
        self._made: SnapshotPart | None = None
        shutil.rmtree(directory, ignore_errors=True)

    def part(self, asked: FetchSnapshot) -> tuple[SnapshotPart, bytes]:
        """Return what the copy is, and bytes of it.

        Raises:
            NotFoundError: the copy is gone: begin again.
            InvalidArgumentError: there is no such partition.
            ClosedError: the host stopped.
            DivergedError: the state is none to go on from.
            UnavailableError: the disk failed.
        """
        with self._lock:
            if asked.copy == 0:
                with breakage_at(self._directory):
                    self._made = self._make()
            made = self._made
            if made is None or asked.copy not in (0, made.copy):
                raise NotFoundError(
                    f"the copy {asked.copy} of the state no longer exists: begin again"
                )
            if asked.partition >= len(made.sizes):
                raise InvalidArgumentError(f"there is no partition {asked.partition}")
            count = min(asked.bytes_max or PART_BYTES_MAX, PART_BYTES_MAX)
            with breakage_at(self._directory):
                return made, self._read(asked, count)

    def _read(self, asked: FetchSnapshot, count: int) -> bytes:
        with file_of(self._directory, asked.partition).open("rb") as file:
            file.seek(asked.offset)
            return file.read(count)

    def _make(self) -> SnapshotPart:
        if stopped := self._runner.stopped_partitions():
            msg = f"partitions {stopped} of this host have diverged: ask another host"
            raise DivergedError(msg, partitions=stopped)
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        image = self._runner.mark()
        sizes, hashes = [], []
        with close_all(image.views):
            for number, view in enumerate(image.views):
                file = file_of(self._directory, number)
                view.copy(file)
                sizes.append(file.stat().st_size)
                hashes.append(view.hash())
        number = self._made.copy + 1 if self._made is not None else 1
        return SnapshotPart(number, image.position, tuple(sizes), tuple(hashes))

    def forget(self) -> None:
        """Remove the copy."""
        with self._lock:
            self._made = None
            shutil.rmtree(self._directory, ignore_errors=True)


def make_state(
    state: Path,
    incoming: Path,
    partitions: int,
    files: SnapshotFiles,
    log: ClusteredLog,
    others: Caller | None,
    stop: Stop,
) -> None:
    """Bring the state to where the log can go on from.

    A state that the log reaches stays. Otherwise it is that of the newest snapshot of
    this host, or else that of another host.

    Raises:
        TrimmedError: the log begins behind state and snapshots, and there is no other
            host to ask.
        SnapshotDamagedError: the snapshots that the log reaches are damaged, and there
            is no other host to ask.
        LogError: no other host gave its state.
        ClosedError: it was told to ``stop``.
    """
    end, first = log.latest(), log.first
    if file_of(state, 0).exists() or files.listed():
        try:
            _own(state, partitions, files, log.identity, first, end, stop)
        except (TrimmedError, SnapshotDamagedError) as error:
            if others is None:
                error.add_note("pass a host with a newer state to join")
                raise
            _log.warning("copying the state of another host: %s", error)
        else:
            return
    elif others is None:
        if first == 1:
            return  # All of it is in the log.
        msg = (
            f"the log begins at {first}, and this host has no state: pass a "
            "host that has one to join"
        )
        raise TrimmedError(msg, first=first)
    try:
        with stop.telling(others.interrupt), others:
            made = take_copy(others, incoming)
    except LogError as error:
        if first > 1 or stop.is_set():
            raise
        _log.warning("no host offered its state (%s); reading the whole log", error)
        return
    shutil.rmtree(state, ignore_errors=True)
    # Not by `durable`: a crash that undoes it has the state taken again.
    incoming.rename(state)
    forget_restore(files)
    _log.info("copied the state of another host, as of position %d", made.position)


def _own(
    state: Path,
    partitions: int,
    files: SnapshotFiles,
    log: str,
    first: int,
    end: int,
    stop: Stop,
) -> None:
    opened = SqliteState(state, partitions)
    try:
        restore_if_needed(opened, files, log, first, end, stop.check)
    finally:
        opened.close()


def take_copy(
    caller: Caller, directory: Path, progress: Progress | None = None
) -> SnapshotPart:
    """Write the state of a host to a new directory; checked and durable on return.

    What is there is replaced.

    Raises:
        CorruptionError: it is not what the host has.
        LogError: no host gave its state.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    made = caller.run(lambda host: _receive(host, directory, progress))
    _check(made, directory)
    for path in (*directory.iterdir(), directory):
        durable.sync(path)
    return made


async def _receive(
    host: AsyncCaller, directory: Path, progress: Progress | None
) -> SnapshotPart:
    done = 0
    made: SnapshotPart | None = None
    with ExitStack() as stack:
        files: dict[int, Any] = {}
        async for part, partition, data in host.copy():
            made = part
            if partition not in files:
                file = file_of(directory, partition).open("wb")
                files[partition] = stack.enter_context(file)
            files[partition].write(data)
            done += len(data)
            if progress is not None:
                progress(done, sum(part.sizes))
    assert made is not None, "a database is never empty"
    return made


def _check(made: SnapshotPart, directory: Path) -> None:
    state = SqliteState(directory, len(made.sizes))
    try:
        for number, partition in enumerate(state.partitions):
            view = partition.view()
            try:
                found = view.hash()
            finally:
                view.close()
            if found != made.hashes[number]:
                msg = (
                    f"the copy of partition {number} differs from that of the other "
                    "host"
                )
                raise CorruptionError(msg, path=str(file_of(directory, number)))
    finally:
        state.close()
