"""Replay: the state of an application, made again from snapshots and its log.

*Theory of operation.* The log is surveyed first, without executing anything: so missing
code, another environment, and commands on partitions that were not asked for are
refused at the beginning. Then the same executor that hosts use is fed from the newest
usable snapshot on, and the outcomes that the log names are compared with those that
come out.

*Invariants.* The state after a position depends on the log alone: not on where the
replay began, whether it was killed and went on, or in how many processes the partitions
are. Nothing is answered, appended or trimmed.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Collection
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from braidlog.app.errors import (
    ApplicationMismatchError,
    DivergedError,
    ResizeRefusedError,
)
from braidlog.app.execution.definition import (
    ApplicationDefinition,
    check_partitions,
)
from braidlog.app.execution.entries import Create, Outcomes, unpack
from braidlog.app.execution.executor import Executor
from braidlog.app.execution.resizing import OUTSIDE
from braidlog.app.execution.total import total_hash
from braidlog.app.fingerprint import EnvironmentRule, check
from braidlog.app.replay.inputs import Input, readable
from braidlog.app.replay.prescan import Survey
from braidlog.app.replay.result import Difference, Replayed, ReplayProgress
from braidlog.app.replay.start import Moment, Start, Starts, choose
from braidlog.app.replay.target import Target
from braidlog.closable import Closable
from braidlog.errors import BeyondEndError, InvalidArgumentError, TrimmedError
from braidlog.paths import local_path

__all__ = [
    "Difference",
    "Moment",
    "Replay",
    "ReplayProgress",
    "Replayed",
    "Start",
    "Starts",
    "replay",
]

Check: TypeAlias = Literal["strict", "report", "off"]
"""Of a difference to the log: raise, go on and report it, or do not look."""

Across: TypeAlias = Literal["include", "refuse"]
"""Partitions that commands on the chosen ones touch as well."""

# More than a host takes: nobody waits for an answer, and commits are cheaper by the
# command.
_ROUND: Final = 8192
# A host logs outcomes at least so often, so this far behind a position are those of it.
_AHEAD_RECORDS: Final = 16_384


class Replay(Closable):
    """A replay in progress: it reads a log and executes it over a state."""

    def __init__(
        self,
        application: ApplicationDefinition,
        source: Input,
        target: Target,
        *,
        until: int | Moment | None = None,
        partitions: Collection[int] | None = None,
        across: Across = "include",
        outcomes: Check = "strict",
        environment: EnvironmentRule = "refuse",
        starts: Starts | None = None,
        progress: Callable[[ReplayProgress], None] | None = None,
        survey: Survey | None = None,
        resize: int | None = None,
    ) -> None:
        """Scan the log and open the state; nothing is executed yet.

        ``until`` is the last position, or a `Moment`; None is the end of the log.
        ``partitions`` limits the replay to these; if commands on them touch others,
        ``across`` says to "include" those as well, or to "refuse". ``outcomes`` and
        ``environment`` say what to do with differences: stop ("strict", "refuse"),
        "report" them, or ignore them ("off"). ``starts`` gives snapshots to begin from.
        ``survey`` is a scan of the log that was made before. ``resize`` is how many
        partitions the result gets, whatever the log has; see `resize`.

        Raises:
            ApplicationMismatchError: the log belongs to another application.
            UnknownProcedureError: the program lacks code that the log needs.
            EnvironmentMismatchError: outcomes were computed in another environment.
            InvalidArgumentError: the partitions do not exist, or commands touch others.
            ResizeRefusedError: some partitions alone cannot get another number.
            BeyondEndError: the log ends before ``until``.
            TrimmedError: the log was trimmed, and no snapshot goes that far.
        """
        self.application = application
        self.differences: list[Difference] = []
        self._source = source
        self._outcomes = outcomes
        self._progress = progress
        self._seconds = 0.0
        self._commands = 0
        start = choose(application, source, starts, until)
        self.survey = self._look_ahead(start, until) if survey is None else survey
        self.survey.check_code()
        self.environment = self._compare_environment(environment)
        self._only = self._chosen(partitions, across)
        self._resize = self._checked_resize(resize)
        self._open(target, start, self.survey.position)
        self._check_identity()
        facts = self._executor.shared.environment
        check(facts, self.application.environment, environment)

    # -- before anything is executed ---------------------------------------------

    def _check_identity(self) -> None:
        """Refuse a state that was begun from the log of another application.

        What is in its databases would be taken for what this log gave.
        """
        mine = self._executor.shared.identity
        if not mine:
            return  # Nothing is in them yet.
        first = next(iter(self._source.records(None, 2)), None)
        if first is None or first.position != 1:
            return  # The entry that has the identity was trimmed.
        created = unpack(first.value, 1)
        if isinstance(created, Create) and mine != created.application:
            self.close()
            raise ApplicationMismatchError(
                f"the state belongs to application {mine.hex()}, the log to "
                f"{created.application.hex()}: choose another directory or other "
                "snapshots"
            )

    def _look_ahead(self, start: Start | None, until: int | Moment | None) -> Survey:
        at, count = (0, 0) if start is None else (start.position, start.partitions)
        survey = Survey(self.application, position=at, partitions=count)
        if isinstance(until, Moment):
            survey.add(self._source.records(at + 1), time_max=until.microseconds)
        else:
            end = None if until is None else until + 1
            survey.add(self._source.records(at + 1, end))
        if survey.first > at + 1:
            msg = f"the log begins at {survey.first}, and no snapshot goes that far"
            raise TrimmedError(msg, first=survey.first)
        if isinstance(until, int) and until > survey.position:
            msg = (
                f"the log ends at {survey.position}, before the requested "
                f"position {until}"
            )
            raise BeyondEndError(msg, next=survey.position + 1)
        if until is not None:
            self._add_given_up(survey)
        return survey

    def _add_given_up(self, survey: Survey) -> None:
        # A command is given up by a record behind it, which may be beyond the end.
        beyond = Survey(self.application, aborts=survey.aborts)
        following = readable(self._source.records(survey.position + 1))
        beyond.add(itertools.islice(following, _AHEAD_RECORDS))

    def _compare_environment(self, rule: EnvironmentRule) -> tuple[str, ...]:
        mine = self.application.environment
        return tuple(
            f"from {position} on {difference}"
            for position, theirs in self.survey.environments
            for difference in check(theirs, mine, rule)
        )

    def _chosen(
        self, partitions: Collection[int] | None, across: Across
    ) -> frozenset[int] | None:
        """Return the partitions to execute; None for all."""
        if partitions is None:
            return None
        everything = frozenset(range(self.survey.partitions))
        chosen = frozenset(partitions)
        if not chosen or not chosen <= everything:
            raise InvalidArgumentError(
                f"partitions are 0 to {len(everything) - 1}; choose at least one "
                f"of them, not {sorted(chosen)}"
            )
        closed = self.survey.closed(chosen)
        if closed != chosen and self.survey.resizes:
            raise InvalidArgumentError(
                f"the log changes the number of partitions at {self.survey.resizes[0]}:"
                " replay all of them, or begin at a snapshot behind that"
            )
        if closed != chosen and across == "refuse":
            raise InvalidArgumentError(
                f"commands on partitions {sorted(chosen)} also touch "
                f"{sorted(closed - chosen)}: choose these too, or pass "
                "across='include'"
            )
        return None if closed == everything else closed

    def _checked_resize(self, count: int | None) -> int | None:
        if count is None:
            return None
        check_partitions(count)
        if self._only is not None:
            raise ResizeRefusedError(
                f"only {sorted(self._only)} are replayed, and rows of a partition may"
                " belong to any other: replay all of them"
            )
        if not self.application.row_keys:
            raise ResizeRefusedError(f"{self.application!r} has no row_keys=")
        return count

    def _open(self, target: Target, start: Start | None, end: int) -> None:
        self._end = end
        self._target = target
        looks = self._outcomes != "off"
        same = self._outcomes == "strict"
        only, count = self._only, self.survey.partitions
        begun = target.begun(only)
        if begun and (not looks or target.compared(same=same)):
            self._state = target.open(only, count)
            self._executor = self._execute()
            at = 0 if start is None else start.position
            fits = at <= self._executor.position and self._executor.highest <= end
            if self._executor.shared.routing == OUTSIDE:
                # It is no state to go on from, only the end that was asked for.
                same_end = self._executor.position == end
                fits = same_end and self._resize == len(self._state.partitions)
            if fits and not (looks and self._forgot()):
                self.start = self._executor.position
                if self._outcomes == "report":
                    self.differences = [
                        Difference(place, name, what, tuple(numbers))
                        for place, name, what, numbers in target.differences
                    ]
                return
            self._state.close()
        target.start_over(only)
        self._state = target.open(only, count)
        if start is not None:
            wanted = range(count) if only is None else only | {0}
            start.restore(self._state, wanted)
        target.restored(only)
        self._executor = self._execute()
        self.start = self._executor.position

    def _forgot(self) -> bool:
        """Whether outcomes are ahead of commands that are not to be compared any more.

        A replay that was killed keeps their digests as long as the results of calls.
        """
        shared, at = self._executor.shared, self._executor.position
        following = readable(self._source.records(at + 1))
        entries = (
            unpack(record.value, record.position)
            for record in itertools.islice(following, _AHEAD_RECORDS)
        )
        return any(
            isinstance(entry, Outcomes) and shared.lacks(at, entry) for entry in entries
        )

    def _execute(self) -> Executor:
        executor = Executor(
            self.application,
            self._state,
            given_up=self._given_up,
            environment="off",  # All of it was looked at.
            partitions=self._only,
        )
        executor.shared.on_difference = self._differs
        return executor

    def _given_up(self, position: int) -> str | None:
        return self.survey.given_up(position, self._executor.shared.terms)

    def _differs(
        self, position: int, procedure: str, component: str, numbers: tuple[int, ...]
    ) -> None:
        if self._outcomes == "off":
            return
        found = Difference(position, procedure, component, numbers)
        if found not in self.differences:  # An interrupted replay found it before.
            self.differences.append(found)
        if self._outcomes == "strict":
            # The same call must not go on behind what it stopped at.
            self._target.unfinished(self._only)
            raise DivergedError(
                str(found),
                position=position,
                procedure=procedure,
                component=component,
                partitions=numbers,
            )

    # -- executing ---------------------------------------------------------------

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions that are replayed, as they are now."""
        if self._only is not None:
            return self._only
        return frozenset(range(len(self._state.partitions)))

    @property
    def position(self) -> int:
        """Everything up to here is executed and committed."""
        return self._executor.position

    @property
    def end(self) -> int:
        """Where the replay ends."""
        return self._end

    def last(self, partition: int) -> int:
        """Return the position of the last command that a partition executed."""
        return self._executor.last(partition)

    def advance(self, position: int | None = None) -> None:
        """Execute up to a position, or up to the end, and commit.

        Raises:
            DivergedError: a command gave another outcome than the log says.
            ExecutionError: the machine failed; a replay to the same directory goes on.
        """
        target = self._end if position is None else min(position, self._end)
        began = time.perf_counter()
        before = self._seconds
        executor, source = self._executor, self._source
        if self._outcomes == "off" and executor.position < target:
            self._target.uncompared()
        records = source.records(executor.position + 1, target + 1)
        while chunk := list(itertools.islice(records, _ROUND)):
            if source.gaps:
                for record in chunk:
                    executor.pass_over(record.position - 1)
                    self._commands += len(executor.feed((record,)))
            else:
                self._commands += len(executor.feed(chunk))
            self._note_differences()
            executor.commit()
            self._seconds = before + time.perf_counter() - began
            self._tell()
        if source.gaps:
            executor.pass_over(target)
        executor.commit(everywhere=True)
        self._seconds = before + time.perf_counter() - began

    def _note_differences(self) -> None:
        """Keep what was found: once it is committed, nobody finds it again."""
        if self._outcomes == "report":
            self._target.note([[*astuple(each)] for each in self.differences])

    def _tell(self) -> None:
        if self._progress is None:
            return
        done = self.position - self.start
        left = (self._end - self.position) * self._seconds / max(done, 1)
        rate = self._commands / max(self._seconds, 1e-9)
        self._progress(ReplayProgress(self.position, self._end, rate, left))

    def compare_ahead(self) -> None:
        """Compare with outcomes that the log names behind the position.

        Raises:
            DivergedError: a command gave another outcome than the log says.
        """
        shared = self._executor.shared
        following = readable(self._source.records(self.position + 1))
        for record in itertools.islice(following, _AHEAD_RECORDS):
            if not shared.uncompared:
                break
            entry = unpack(record.value, record.position)
            if isinstance(entry, Outcomes):
                shared.compare(record.position, entry)
        self._note_differences()

    def resize(self) -> None:
        """Give the result as many partitions as were asked for; it ends here.

        The rows are spread over them by their keys, and the total hashes of before and
        behind it compared. The log has no entry that says so: nothing of it can be
        executed on these partitions. Nothing if no number was asked for.

        Raises:
            ResizeRefusedError: the rows allow no other partitions.
        """
        if self._resize is None or self._executor.shared.routing == OUTSIDE:
            return
        self._executor.spread_outside(self._resize, self.application.row_keys)

    def total_hash(self) -> bytes:
        """Return the total hash: it is the same for the same rows in any partitions."""
        tables = self.application.row_keys.items()
        everywhere = [table for table, key in tables if key is None]
        tallies = []
        for partition in self._state.partitions:
            with contextlib.closing(partition.view()) as view:
                tallies.append(view.tally())
        return total_hash(tallies, everywhere)

    def hashes(self, partitions: Collection[int] | None = None) -> dict[int, bytes]:
        """Return the state hash of partitions, by default of all that are replayed."""
        found = {}
        for number in sorted(self.partitions if partitions is None else partitions):
            view = self._state.partitions[number].view()
            try:
                found[number] = view.hash()
            finally:
                view.close()
        return found

    def result(self) -> Replayed:
        """Return what was done so far."""
        survey = self.survey
        return Replayed(
            application=self.application.name,
            source=self._source.name,
            start=self.start,
            position=self.position,
            time=survey.time,
            records=survey.records,
            commands=self._commands,
            log_bytes=survey.log_bytes,
            seconds=self._seconds,
            commands_per_second=self._commands / max(self._seconds, 1e-9),
            compared=self._executor.shared.compared,
            differences=tuple(self.differences),
            environment=self.environment,
            missing=survey.missing,
            hashes=self.hashes(),
            total_hash=self.total_hash() if self._resize is not None else b"",
        )

    def go_on(self) -> None:
        """Take what came to the log since as the new end.

        Raises:
            UnknownProcedureError: the program lacks code that the log needs by now.
        """
        self.survey.add(self._source.records(self._end + 1))
        self.survey.check_code()
        self._end = max(self._end, self.survey.position)

    def sync(self) -> None:
        """Make the state durable, so that it outlives a crash of the machine."""
        self._state.settle()
        self._target.synced(self._only)

    def close(self) -> None:
        """Close the state; a replay that is not at its end can go on from it."""
        self._executor.rollback()
        self._state.close()


def replay(
    application: ApplicationDefinition,
    source: Input,
    directory: str | Path,
    *,
    cut: str = "strict",
    **options: Any,
) -> Replayed:
    """Compute the state of an application from its log, into a directory.

    The state is durable on return. If the call is interrupted, call it again: it
    resumes and gives the same state. After a crash of the machine it starts over.
    Options are those of `Replay`, which also lists what it refuses.

    Raises:
        AlreadyExistsError: the directory has files of something else.
        DivergedError: a command had a different outcome than the log says.
    """
    target = Target(
        local_path(directory, "the directory of a replay"), application, cut=cut
    )
    with Replay(application, source, target, **options) as going:
        going.advance()
        going.compare_ahead()
        going.resize()
        going.sync()
        return going.result()
