"""Taking the state of another host: for hosts that have none, and for files of it."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from braidlog.app.copies import file_of
from braidlog.app.errors import ApplicationMismatchError
from braidlog.app.remote import AsyncCaller, Caller
from braidlog.app.sqlite import SqliteState
from braidlog.errors import CorruptionError, LogError, TrimmedError
from braidlog.wire.messages import SnapshotPart

__all__ = ["Progress", "make_state", "take_copy"]

_LOGGER = logging.getLogger("braidlog")

Progress = Callable[[int, int], None]
"""Hears how many bytes of how many came."""


def make_state(
    state: Path, incoming: Path, partitions: int, first: int, others: Caller | None
) -> None:
    """Take the state of another host, if the log does not reach the one that is there.

    Raises:
        TrimmedError: the log begins at ``first``, behind the state, and there is no
            other host to ask.
        LogError: no other host gave its state.
    """
    stored = _stored(state, partitions)
    if stored is not None and stored + 1 >= first:
        return
    if others is None:
        if first == 1:
            return  # All of it is in the log.
        msg = (
            f"the log begins at {first}, the state in {state} ends at {stored or 0}:"
            " join a host that has one"
        )
        raise TrimmedError(msg, first=first)
    try:
        with others:
            made = take_copy(others, incoming)
    except LogError as error:
        if first > 1:
            raise
        _LOGGER.warning("no host gave its state (%s): the whole log is read", error)
        return
    if len(made.sizes) != partitions:
        msg = f"the other host has {len(made.sizes)} partitions, not {partitions}"
        raise ApplicationMismatchError(msg)
    shutil.rmtree(state, ignore_errors=True)
    incoming.rename(state)
    _LOGGER.info("took the state of another host, as of position %d", made.position)


def _stored(state: Path, partitions: int) -> int | None:
    """Return the position of the state that is there, None if there is none."""
    if not file_of(state, 0).exists():
        return None
    opened = SqliteState(state, partitions)
    try:
        return min(partition.load().applied for partition in opened.partitions)
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
