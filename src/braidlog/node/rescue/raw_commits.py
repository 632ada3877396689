"""Commits that are on no disk of a dead cluster, from the log of its repository.

*Theory of operation.* What was committed in the last moment may be on all disks without
the commit: nodes write that with their next sync. The cuts are in the log of the
metadata repository, which is in the directories too, also in those that are left out:
it is read as a rescue reads it, and each replica is told the commits that it lacks.

*Invariants.* A position that the disks give is never changed. If the copies of the
repository are older than the disks, they say nothing about that log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

from braidlog.errors import LogError
from braidlog.faultlog.record import FaultRecord
from braidlog.faultlog.rule import Unreadable
from braidlog.logstream.storage import CommitContext, StoredStream
from braidlog.metarepo.last_cuts import last_commits
from braidlog.metarepo.succession import Copy, Recovered, recover_members
from braidlog.node.rescue.files import read_copy
from braidlog.store.merge import Standing
from braidlog.store.raw_streams import Run

Streams: TypeAlias = dict[int, int]
"""Stream of a directory to the number that it has in all of them."""


class _Directory(Protocol):
    """A directory, as far as it says where its streams stand."""

    def state(self, stream: int) -> Standing:
        """Return where a stream stands."""


D = TypeVar("D", bound=_Directory)


@dataclass(frozen=True, slots=True)
class MissingCommits:
    """Commits that a replica lacks, rising."""

    source: int
    """Which of the sources has the replica."""
    local: int
    """Number of the stream in it."""
    epoch: int
    commits: tuple[CommitContext, ...]

    @property
    def runs(self) -> tuple[Run, ...]:
        """The commits as (LLSN, GLSN, length)."""
        return tuple(
            (each.llsn_begin, each.glsn_begin, each.length) for each in self.commits
        )


@dataclass(frozen=True, slots=True)
class LogCuts:
    """What the copies of the repository say of a log."""

    lacking: tuple[MissingCommits, ...]
    notes: tuple[str, ...]
    """What may be missing, and why."""
    end: int | None
    """Position behind the last one that was committed; None: nobody knows for sure."""


def lacking(
    records: Sequence[tuple[Path, FaultRecord | Unreadable]],
    logs: Collection[bytes],
    sources: Sequence[tuple[D, Streams]],
) -> LogCuts:
    """Return the commits that replicas of logs lack, and notes on what may be missing.

    ``records`` are all directories with what their fault logs say last. No node may run
    on one of them.

    Raises:
        CorruptionError: the cuts and a disk give one position twice.
    """
    recovered, notes = _recover(records)
    if recovered is None or not recovered.complete:
        there = len(recovered.heard) if recovered else 0
        voters = len(recovered.voters) if recovered else 0
        notes.append(
            f"only {there} of {voters or 'the'} voters of the metadata "
            "repository have a readable copy of it, so records acknowledged in "
            "the last moment may be missing"
        )
    if recovered is None:
        return LogCuts((), tuple(notes), None)
    found: list[MissingCommits] = []
    ends: list[int] = []
    for log in sorted(logs):
        known = recovered.state.logs.get(log)
        if known is None:
            continue
        mine = list(_replicas_of(known.streams, sources))
        newest = max((stored.context.version for *_, stored in mine), default=0)
        if newest > known.version:
            notes.append(
                f"the replicas are at cut {newest}, but the copies of the metadata "
                f"repository end at cut {known.version}: the copies were not used"
            )
            continue
        ends.append(known.high_watermark + 1)
        for at, local, number, stored in mine:
            commits = tuple(last_commits(stored, number, known.history))
            found.append(MissingCommits(at, local, stored.epoch, commits))
    # Of several logs of one name each has an order of its own.
    known_end = recovered.complete and len(ends) == len(logs) == 1
    return LogCuts(tuple(found), tuple(notes), ends[0] if known_end else None)


def _replicas_of(
    numbers: Collection[int], sources: Sequence[tuple[D, Streams]]
) -> Iterator[tuple[int, int, int, StoredStream]]:
    """Yield the replicas of streams: source, number in it, stream, where it stands."""
    for at, (directory, streams) in enumerate(sources):
        for local, number in streams.items():
            if number in numbers:
                yield at, local, number, _standing(directory, local)


def _recover(
    records: Sequence[tuple[Path, FaultRecord | Unreadable]],
) -> tuple[Recovered | None, list[str]]:
    copies: list[tuple[FaultRecord, Copy]] = []
    notes: list[str] = []
    for path, record in records:
        if not isinstance(record, FaultRecord):
            continue
        try:
            copy = read_copy(path, record.node, locked=True)
        except LogError as error:
            why = error.message
            notes.append(
                f"{path}: the copy of the metadata repository cannot be read: {why}"
            )
            continue
        if copy is not None:
            copies.append((record, copy))
    members = [record for _, record in records if isinstance(record, FaultRecord)]
    return recover_members(members, copies), notes


def _standing(directory: _Directory, local: int) -> StoredStream:
    low, committed, following, _, epoch, epochs, context = directory.state(local)
    return StoredStream(
        low, committed, following, epoch, tuple(epochs), CommitContext(*context)
    )
