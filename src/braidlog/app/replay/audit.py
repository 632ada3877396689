"""Comparing the state of a host with a replay of its log.

A host commits its partitions one after the other, so each of its databases is looked at
as it is, and compared with the replayed partition at the position that it says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from braidlog.app.execution.definition import ApplicationDefinition
from braidlog.app.replay.inputs import Input
from braidlog.app.replay.run import Replay, Replayed
from braidlog.app.replay.target import Target
from braidlog.app.state.read_only import look
from braidlog.app.state.sqlite import database_path
from braidlog.paths import local_path


@dataclass(frozen=True, slots=True)
class Seen:
    """A partition of a live state, as it was when it was looked at."""

    partition: int
    position: int
    """Everything up to here is in it."""
    hash: bytes
    stopped: bool
    """It has diverged, and executes nothing any more."""


@dataclass(frozen=True, slots=True)
class PartitionFinding:
    """A partition whose content is not what its log gives."""

    partition: int
    position: int
    hash: bytes
    replayed: bytes
    stopped: bool


@dataclass(frozen=True, slots=True)
class Audit:
    """What one comparison found."""

    position: int
    """The furthest position that was compared."""
    compared: tuple[int, ...]
    """The partitions."""
    waiting: tuple[int, ...]
    """Partitions for the next comparison: the replay had passed them already, or they
    have what cannot be read of the log yet."""
    findings: tuple[PartitionFinding, ...]


def look_at(directory: Path, partitions: Sequence[int] | None = None) -> list[Seen]:
    """Look at the databases of a state, also while its host goes on.

    At all of them, or only at some ``partitions``.

    Raises:
        NotFoundError: there is none.
    """
    seen = []
    with contextlib.ExitStack() as stack:
        views = []
        # All are opened before the first is hashed: hashing takes a while.
        for number in _there(directory) if partitions is None else partitions:
            progress, view = look(database_path(directory, number))
            stack.callback(view.close)
            views.append((number, progress, view))
        for number, progress, view in views:
            stopped = progress.stopped is not None
            seen.append(Seen(number, progress.applied, view.hash(), stopped))
    return seen


def _there(directory: Path) -> Sequence[int]:
    """Return the partitions of a state, as the first of them says."""
    progress, view = look(database_path(directory, 0))
    view.close()
    return range(progress.shared.get("partitions", 1))


def compare(going: Replay, seen: Sequence[Seen]) -> Audit:
    """Go on with a replay to what was seen, and compare.

    Raises:
        DivergedError: a command gave another outcome than the log says.
    """
    compared, waiting, findings = [], [], []
    for each in sorted(seen, key=lambda each: each.position):
        if each.position > going.position:
            going.advance(each.position)
        if each.partition not in going.partitions:
            continue  # It is not replayed here, or there are other ones by now.
        # A host knows its own log a moment before those who read it beside it.
        behind = each.position > going.position
        if behind or going.last(each.partition) > each.position:
            waiting.append(each.partition)
            continue
        compared.append(each.partition)
        (replayed,) = going.hashes([each.partition]).values()
        if replayed != each.hash:
            findings.append(
                PartitionFinding(
                    each.partition, each.position, each.hash, replayed, each.stopped
                )
            )
    return Audit(
        going.position,
        tuple(sorted(compared)),
        tuple(sorted(waiting)),
        tuple(sorted(findings, key=lambda each: each.partition)),
    )


def replay_and_compare(
    application: ApplicationDefinition,
    source: Input,
    directory: str | Path,
    looks: Iterable[Sequence[Seen]],
    *,
    cut: str = "strict",
    **options: Any,
) -> tuple[Replayed, list[Audit]]:
    """Replay as `braidlog.app.replay.run.replay`, and compare with states on the way.

    Those of ``looks``, in the order of their positions, that lie between the start and
    the end of the replay. The state that was made is durable on return.
    """
    audits = []
    target = Target(
        local_path(directory, "the directory of a replay"), application, cut=cut
    )
    with Replay(application, source, target, **options) as going:
        for seen in looks:
            span = range(going.position, going.end + 1)
            if reached := [each for each in seen if each.position in span]:
                audits.append(compare(going, reached))
        going.advance()
        going.compare_ahead()
        going.resize()
        going.sync()
        return going.result(), audits
