"""One replica of a log stream, as a state machine.

*Theory of operation.* The node hands in what happens: configurations, appends,
messages of other replicas, cuts, syncs that are over, ticks. The replica writes to the
buffer of its storage, which never waits, and returns effects: messages, answers, a
report. Nothing it sends needs a sync first but the report, and that says only what is
durable.

    append      primary: place, write, send to the backups                `sequencer`
    replicate   backup: write what is next                                `backup`
    synced      what is durable grew: report                              `reporter`
    commit      a cut gave GLSNs: write that, answer, wake readers        `committer`
    configure   a new epoch: leave the old one, catch up, enter           `epochs`
    fetch, entries   copy from one another what was missed       `source`, `fetch`

Sources: reports, cuts and the commit context are Varlog's. It has no epochs and keeps
what a seal refused; here every message, every run of a cut and every write carries the
epoch, and the tail behind the end of an epoch is dropped before the next is entered.

*Invariants*, checked in release as in tests; a broken one raises
`ReplicaInvariantError` and makes the replica FAILED:

1. low <= committed <= next. Commits are dense, versions and GLSNs rise.
2. What is committed is never rolled back; only a copy that starts over forgets it.
3. A cut of this replica's epoch has nothing that is not durable here: it takes the
   minimum of the reports, and reports say only what is durable.
4. A batch is wholly in one cut.
5. An append is answered once: with its place when it is committed, or refused.
6. Positions are given only by the first replica of an epoch that it durably entered,
   and never in an epoch that was entered by an earlier start.
7. Nothing of another epoch is written to the uncommitted tail.
8. An epoch is entered only where the log ends, and is committed, at its start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from braidlog.errors import (
    CorruptionError,
    NotReadyError,
    StoreFailedError,
    TooLargeError,
    UnavailableError,
)
from braidlog.logstream import (
    backup,
    committer,
    epochs,
    fetch,
    reading,
    recovery,
    reporter,
    sequencer,
    source,
)
from braidlog.logstream.core import Core, Outbox
from braidlog.logstream.effects import Limits, ReplicaEffects, Request
from braidlog.logstream.errors import ReplicaInvariantError
from braidlog.logstream.states import ReplicaState
from braidlog.logstream.storage import Batch, StreamStorage
from braidlog.wire.messages import (
    Entries,
    Feature,
    Fetch,
    LogCut,
    Read,
    Records,
    Replicate,
    StreamConfig,
    StreamReport,
)

__all__ = ["Replica"]


class Replica:
    """A replica of one log stream; see the module.

    Every call but `read` and `report` may have effects. All calls take duplicates and
    messages that are late. If the store fails, the replica is FAILED: it refuses what
    waits, says so in its report, and takes no further input. An input for which the
    disk has no room is as good as lost, and `lacks_room` says so: who sent it repeats
    it, and what follows from time alone is tried again with the ticks.
    """

    def __init__(
        self,
        node: int,
        stream: int,
        storage: StreamStorage,
        limits: Limits | None = None,
    ) -> None:
        """Start from what the disk holds, in no epoch."""
        self._core = Core(node, stream, storage, limits or Limits())
        self.defect = recovery.defect(storage.state())
        """What is wrong with what the disk has; empty if nothing."""
        if self.defect:
            self._core.state = ReplicaState.INVALID

    @property
    def core(self) -> Core:
        """Return what a lane drives while nothing but appends happens."""
        return self._core

    @property
    def state(self) -> ReplicaState:
        """Return what the replica is."""
        return self._core.state

    @property
    def dropped(self) -> bool:
        """Tell whether the stream goes on without this replica: it may be deleted."""
        return self._core.dropped

    @property
    def committed(self) -> int:
        """Return the first LLSN that is not committed here."""
        return self._core.committed

    @property
    def stopped(self) -> bool:
        """Tell whether it serves no reads."""
        return self._core.stopped

    @property
    def low(self) -> int:
        """Return the first LLSN that is kept."""
        return self._core.low

    @property
    def high_watermark(self) -> int:
        """Return the GLSN up to which nothing of the stream is missing here."""
        return self._core.high_watermark

    @property
    def lacks_room(self) -> str:
        """Return what the disk said when it had no room; empty if it has."""
        return self._core.lacks_room

    @property
    def waiting(self) -> int:
        """Return how many appends wait for their commit."""
        return self._core.waiting + len(self._core.repeats)

    def configure(self, config: StreamConfig) -> None:
        """Become what the configuration says; older ones and repeats are ignored.

        A configuration without this node drops the replica.

        Raises:
            RemoteProtocolError: the configuration contradicts itself.
        """
        self._input(epochs.configure, config)

    def drop(self) -> None:
        """Stop, because the stream goes on without this replica."""
        self._input(epochs.drop)

    def append(
        self, group: Sequence[tuple[Request, int, Batch]], *, repeat: bool = False
    ) -> None:
        """Append batches: (request, epoch that the client knows or 0, batch).

        With `repeat` attempts before may have stored them.
        Each is answered by the effects of this or a later call, once: with its place
        when it is committed, or with the error that refused it. One refusal does not
        touch the others of the group.
        """
        self._input(sequencer.append, group, repeat=repeat)

    def repeated(self, request: Request, llsn: int, count: int) -> None:
        """Answer a batch that the lane found stored before, when it is committed."""
        self._input(sequencer.repeated, request, llsn, count)

    def mark(self) -> tuple[int, ...]:
        """Return what every append that does anything changes."""
        core = self._core
        return core.next, core.waiting, len(core.repeats), len(core.out.answers)

    def untouched(self, mark: tuple[int, ...]) -> bool:
        """Tell whether nothing was appended since a mark, in memory and on the disk."""
        core = self._core
        return self.mark() == mark and core.storage.state().next == core.next

    def replicate(self, message: Replicate, batches: Sequence[Batch]) -> None:
        """Write what the primary sends.

        Raises:
            RemoteProtocolError: the batches are not what the message says.
        """
        self._input(backup.replicate, message, batches)

    def fetch(self, peer: int, message: Fetch) -> None:
        """Send another replica what it misses."""
        self._input(self._fetch, peer, message)

    def _fetch(self, core: Core, peer: int, message: Fetch) -> None:
        try:
            source.fetch(core, peer, message)
        except CorruptionError as error:
            core.met = error  # It gets no answer, and asks the next one.
        self._tell_met()

    def entries(self, peer: int, message: Entries, batches: Sequence[Batch]) -> None:
        """Take the answer to the fetch that is on its way; others are ignored.

        Raises:
            RemoteProtocolError: the batches are not what the message says.
        """
        self._input(fetch.entries, peer, message, batches)

    def commit(self, cut: LogCut) -> None:
        """Apply what a cut gave to this stream, if it is the next that did.

        The cut must have the runs of all streams of the log: the sum of their lengths
        tells where the log ended before.

        Raises:
            RemoteProtocolError: the run names no epoch.
        """
        self._input(committer.commit, cut)

    def synced(self, ticket: int) -> None:
        """Note that every write up to `ticket` is durable."""
        self._input(Core.synced, ticket)

    def tick(self, now: float) -> bool:
        """Let time pass: `now` in seconds, never falling.

        Returns whether there is something to do for it; mostly there is nothing.
        """
        core = self._core
        core.now = max(now, core.now)
        # A settled replica waits for nothing but commits.
        looks = not core.resting and (not core.is_settled or core.now >= core.probe_at)
        if looks:
            self._input(_tick)
        out = core.out
        # An input unsettles it, so its effects have to be taken.
        return looks or bool(
            out.messages or out.answers or out.advanced or out.report_due
        )

    def read(
        self, message: Read, *, expired: bool = False
    ) -> tuple[Records, tuple[Batch, ...]] | None:
        """Return committed batches and their places.

        None means that there is nothing yet: ask again when effects say `advanced`, or
        with `expired` when the time is over, which always returns an answer.

        Raises:
            NotReadyError: this replica cannot say.
            TrimmedError: the position was trimmed.
            CorruptionError: the disk is damaged, and there is no other replica.
        """
        try:
            return reading.read(self._core, message, expired=expired)
        except CorruptionError as error:
            self._core.met = error
            if self.is_alone:
                raise
            msg = f"the replica of stream {self._core.stream} on this node is damaged"
            raise NotReadyError(msg) from error
        finally:
            self._tell_met()

    def report(self) -> StreamReport:
        """Return the report for a heartbeat."""
        return reporter.report(self._core)

    def effects(self) -> ReplicaEffects:
        """Return what has to be done since the last call."""
        core, out = self._core, self._core.out
        report = reporter.due(core)
        core.out = Outbox(report_due=False)
        self._settle()
        return ReplicaEffects(
            tuple(out.messages),
            tuple(out.answers),
            report,
            out.advanced,
            core.is_unsynced,
            (self.defect, core.lacks_room, core.refused),
        )

    def _settle(self) -> None:
        """Let the core do what appends ask for, if there is nothing else to do."""
        core, config = self._core, self._core.config
        if config is None:
            return
        calm = (
            core.state is ReplicaState.RUNNING
            and core.is_member
            and core.epoch == config.epoch
            and core.lacks_nothing
            and not (core.asked or core.repeats or core.damaged or core.dropped)
            and not (self.defect or core.lacks_room or core.refused)
        )
        if calm:
            nulls = bool(core.features & Feature.NULL_VALUES)
            primary = core.is_primary
            backups = config.replicas[1:] if primary else ()
            core.settle(primary, nulls, backups)

    @property
    def is_alone(self) -> bool:
        """Tell whether there is no other replica, as far as is known."""
        config = self._core.config
        alone = config is not None and len(config.replicas) == 1
        return alone and self._core.is_member

    def damaged(self, error: CorruptionError) -> None:
        """Say that some records here cannot be read, so that a whole replica comes.

        It serves what it has until then: others may be damaged elsewhere, and only
        together they have everything. A copy that is being made begins anew.
        """
        core = self._core
        core.unsettle()
        self.defect = error.message
        core.out.report_due = core.out.report_due or not core.damaged
        core.damaged = True
        if core.state is ReplicaState.LEARNING:
            epochs.invalidate(core)

    def _tell_met(self) -> None:
        if (error := self._core.met) is not None:
            self._core.met = None
            self.damaged(error)

    def _input(
        self, take: Callable[..., None], *given: object, **named: object
    ) -> None:
        """Have the core take an input, then do what follows from it; mostly nothing."""
        core = self._core
        core.unsettle()
        try:
            take(core, *given, **named)
        except Exception as error:
            if not self._bears(error):
                raise
        else:
            if not core.lacks_nothing:
                self._follow()

    def _follow(self) -> None:
        core = self._core
        try:
            if not core.lacks_room or core.now >= core.retry_at:
                epochs.advance(core)
                fetch.pump(core)
        except Exception as error:
            if not self._bears(error):
                raise
            self._pause()

    def _bears(self, error: Exception) -> bool:
        """Do what an error of an input asks for; tell whether nobody has to hear it."""
        if isinstance(error, StoreFailedError | ReplicaInvariantError):
            self._fail()
            return isinstance(error, StoreFailedError)
        if isinstance(error, CorruptionError):
            self._invalid(error)
            return True
        if isinstance(error, UnavailableError | TooLargeError):
            self._core.lacks_room = str(error)
            return True
        return False

    def _pause(self) -> None:
        """Let some time pass before what no input asks for is tried again."""
        self._core.retry_at = self._core.now + self._core.limits.poll_interval

    def _invalid(self, error: CorruptionError) -> None:
        """Serve nothing more: not even what the replica is can be read.

        Raises:
            CorruptionError: it is the last one, which nobody could repair.
        """
        if self.is_alone:
            raise error
        self.defect = error.message
        if not self._core.stopped:
            epochs.invalidate(self._core)

    def _fail(self) -> None:
        core = self._core
        core.state = ReplicaState.FAILED
        core.out.report_due = True
        sequencer.give_up(core, 0, core.epoch, unknown=True)


def _tick(core: Core) -> None:
    fetch.tick(core)
    sequencer.probe(core)
