"""Where a replay begins: the first record, or a snapshot that is old enough."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from braidlog.app.errors import ApplicationMismatchError
from braidlog.app.execution.definition import ApplicationDefinition
from braidlog.app.replay.inputs import Input
from braidlog.app.replay.prescan import Survey
from braidlog.app.state.sqlite import SqliteState


class Start(Protocol):
    """A snapshot that a replay can begin from."""

    @property
    def position(self) -> int:
        """All partitions are as they were after this position."""

    @property
    def partitions(self) -> int:
        """How many partitions it has."""

    @property
    def log(self) -> str:
        """Identity of the log that it is of; empty if it does not say."""

    def restore(self, state: SqliteState, partitions: Collection[int]) -> None:
        """Put its partitions into an empty state."""


Starts: TypeAlias = Callable[[int | None], Start | None]
"""Gives the newest usable snapshot, at a position or before, if there is one."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time of the log: everything before the first record that is later."""

    microseconds: int
    """Since the epoch."""


def choose(
    application: ApplicationDefinition,
    source: Input,
    starts: Starts | None,
    until: int | Moment | None,
) -> Start | None:
    """Return the snapshot to begin from; None for the first record.

    Raises:
        ApplicationMismatchError: the snapshot is of another log.
    """
    if starts is None:
        return None
    if isinstance(until, Moment):
        # Where the moment is in the log shows only while it is read.
        survey = Survey(application)
        survey.add(source.records(None), time_max=until.microseconds)
        start = starts(survey.position)
    else:
        start = starts(until)
    known = source.id
    if start is not None and start.log not in ("", known) and known:
        raise ApplicationMismatchError(
            f"the snapshot at {start.position} belongs to log {start.log}, "
            f"not to {known}: choose a snapshot of this log"
        )
    return start
