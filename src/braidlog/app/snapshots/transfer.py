"""Taking the state of another host: for hosts that have none, and for files of it."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from braidlog.app.caller.caller import AsyncCaller, Caller
from braidlog.app.errors import ApplicationMismatchError, SnapshotDamagedError
from braidlog.app.log.clustered import ClusteredLog
from braidlog.app.log.stop import Stop
from braidlog.app.snapshots.copies import file_of
from braidlog.app.snapshots.files import SnapshotFiles
from braidlog.app.snapshots.restore import forget_restore, restore_if_needed
from braidlog.app.state.sqlite import SqliteState
from braidlog.errors import CorruptionError, LogError, TrimmedError
from braidlog.wire.messages import SnapshotPart

__all__ = ["Progress", "make_state", "take_copy"]

_LOGGER = logging.getLogger("braidlog")

Progress = Callable[[int, int], None]
"""Hears how many bytes of how many came."""


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
                error.add_note("join a host that has a newer state")
                raise
            _LOGGER.warning("the state of another host is taken: %s", error)
        else:
            return
    elif others is None:
        if first == 1:
            return  # All of it is in the log.
        msg = f"the log begins at {first}, there is no state: join a host that has one"
        raise TrimmedError(msg, first=first)
    try:
        with stop.telling(others.interrupt), others:
            made = take_copy(others, incoming)
    except LogError as error:
        if first > 1 or stop.is_set():
            raise
        _LOGGER.warning("no host gave its state (%s): the whole log is read", error)
        return
    if len(made.sizes) != partitions:
        msg = f"the other host has {len(made.sizes)} partitions, not {partitions}"
        raise ApplicationMismatchError(msg)
    shutil.rmtree(state, ignore_errors=True)
    incoming.rename(state)
    forget_restore(files)
    _LOGGER.info("took the state of another host, as of position %d", made.position)


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
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
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
                msg = f"partition {number} did not come as the other host has it"
                raise CorruptionError(msg, path=str(file_of(directory, number)))
    finally:
        state.close()
