"""The collector of the leader as it is in the core, in Python.

It can take the place of the real one: bugs of collectors are planted in it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from braidlog.logstream.states import ReplicaState
from braidlog.metarepo.machine.state import State, StreamState
from braidlog.wire.commands import Cut, encode_call
from braidlog.wire.messages import LogCut, Report, StreamReport, StreamRun, StreamStatus
from property.metarepo.answers import AnswerTimes

CUT_RUNS_MAX: Final = 4096
FORGET_EVERY: Final = 16
POSITION_MAX: Final = 2**63 - 1
COUNTED: Final = frozenset(
    {ReplicaState.RUNNING, ReplicaState.SEALED, ReplicaState.CATCHING_UP}
)
"""States in which what a replica reports can be relied on for a cut."""


@dataclass(slots=True)
class NodeReport:
    """What a node said last."""

    incarnation: int
    number: int
    full: bool = False
    """Whether all of its replicas are in here."""
    features: int = 0
    """`Feature`s that it knows."""
    streams: dict[int, StreamReport] = field(default_factory=dict)


class _Flight(Struct, frozen=True):
    """A cut that was proposed and not seen again."""

    index: int
    cut: Cut


class Ends:
    """Latest reports, and cuts in flight."""

    def __init__(self, in_flight_max: int = 4) -> None:
        """Know nothing yet."""
        self.reports: dict[int, NodeReport] = {}
        self._in_flight_max = in_flight_max
        self._flights: list[_Flight] = []
        self._stalled = False
        self._committed: dict[int, int] = {}
        self._logs: dict[bytes, tuple[int, int]] = {}
        self._fresh: set[int] = set()
        self._made: Cut | None = None
        self.times = AnswerTimes()
        self.stirred = True
        """A replica is in another state or epoch than before, or damaged."""

    # --- reports

    def take(self, report: Report) -> bool:
        """Note a report; tell whether it was news."""
        known = self.reports.get(report.node)
        if known is None or known.incarnation < report.incarnation:
            known = NodeReport(report.incarnation, 0)
            self.reports[report.node] = known
        elif known.incarnation > report.incarnation or known.number >= report.number:
            return False
        known.number, known.features = report.number, report.features
        before = known.streams
        if report.full:
            known.full = True
            known.streams = {}
        for each in report.streams:
            last = before.get(each.stream)
            if last is None or _standing(last) != _standing(each):
                self.stirred = True
            known.streams[each.stream] = each
            # A heartbeat that repeats what is known lets nothing be committed.
            if last != each:
                self._fresh.add(each.stream)
        # A full report may lack what the one before had.
        self.stirred |= not known.streams.keys() >= before.keys()
        return True

    def measure(self, state: State, report: Report, now: float) -> None:
        """Measure the answer times of a report that was news."""
        self.times.heard(state, self, report, now)

    def take_lags(self, state: State, now: float, least: float) -> dict[int, float]:
        """Return the median lag of each node since the last call, in seconds."""
        return self.times.take(state, now, least)

    def forget_lags(self) -> None:
        """Drop what was measured."""
        self.times.forget()

    def take_latencies(self) -> list[float]:
        """Return nothing: no cut is measured here."""
        return []

    def forget_nodes(self, known: set[int]) -> None:
        """Drop reports of nodes that were removed."""
        for node in self.reports.keys() - known:
            del self.reports[node]

    def node(self, node: int) -> NodeReport | None:
        """Return what a node said of itself, None if nothing."""
        return self.reports.get(node)

    def streams(self, node: int) -> dict[int, StreamReport]:
        """Return what a node said of its replicas."""
        known = self.reports.get(node)
        return dict(known.streams) if known else {}

    def report(self, node: int, stream: int) -> StreamReport | None:
        """Return what a node said of its replica, None if nothing."""
        known = self.reports.get(node)
        return known.streams.get(stream) if known else None

    def entered(self, stream: StreamState) -> tuple[int, ...]:
        """Return the replicas that are in the current epoch of a stream."""
        return tuple(n for n in stream.replicas if self._end(n, stream) is not None)

    def _end(self, node: int, stream: StreamState) -> int | None:
        """Return how far a replica holds the stream, None if it does not count."""
        report = self.report(node, stream.stream)
        if report is None or report.epoch != stream.epoch:
            return None
        return report.end if report.state in COUNTED else None

    # --- cuts

    @property
    def has_fresh(self) -> bool:
        """Tell whether something was reported of a stream since it was looked at."""
        return bool(self._fresh)

    def ripe(self, state: State, excluded: Collection[int] = ()) -> bool:
        """Tell whether `cut` may find something; forget what it would find nothing in.

        Of the reports of all replicas of a stream only the last one lets it.
        """
        for number in sorted(self._fresh):
            if number in excluded:
                continue
            if self._gain(state, number) is not None:
                return True
            self._fresh.discard(number)
        return False

    def cut(
        self,
        state: State,
        excluded: Collection[int] = (),
        dead: Collection[int] = (),
    ) -> bytes | None:
        """Return the call that commits what can be committed, or None.

        `excluded` are streams that change, which are left out; `dead` are the nodes for
        which no cuts are kept where another replica can tell them.
        """
        self.dropped()
        if self._stalled or len(self._flights) >= self._in_flight_max:
            return None
        runs: dict[bytes, list[tuple[StreamState, int, int]]] = {}
        for number in sorted(self._fresh - set(excluded))[:CUT_RUNS_MAX]:
            self._fresh.discard(number)
            gain = self._gain(state, number)
            if gain is not None:
                runs.setdefault(gain[0].log, []).append(gain)
        if not runs:
            return None
        made = self._numbered(state, runs, dead)
        if not made.cuts:
            return None
        self._made = made
        return encode_call(made)

    def _gain(self, state: State, number: int) -> tuple[StreamState, int, int] | None:
        """Return a stream and what of it can be committed, None if nothing."""
        stream = state.streams.get(number)
        if stream is None or stream.status is not StreamStatus.RUNNING:
            return None
        begin = self._committed.get(number, stream.committed)
        end = self._common_end(stream)
        return (stream, begin, end) if end > begin else None

    def _common_end(self, stream: StreamState) -> int:
        ends = [self._end(node, stream) or 0 for node in stream.replicas]
        return min(ends, default=0)

    def _numbered(
        self,
        state: State,
        runs: dict[bytes, list[tuple[StreamState, int, int]]],
        dead: Collection[int],
    ) -> Cut:
        """Hand out GLSNs and versions."""
        cuts, forget = [], []
        for log in sorted(runs):
            known = state.logs[log]
            at = known.version, known.high_watermark
            version, glsn = self._logs.get(log, at)
            made = []
            for stream, begin, end in runs[log]:
                number, length, epoch = stream.stream, end - begin, stream.epoch
                if glsn + length > POSITION_MAX:
                    continue
                made.append(StreamRun(number, begin, glsn + 1, length, epoch))
                glsn += length
            if not made:
                continue
            cuts.append(LogCut(log, version + 1, glsn, tuple(made)))
            if (version + 1) % FORGET_EVERY == 0:
                forget.append((log, self.durable_version(state, log, dead)))
        return Cut(tuple(cuts), tuple(forget))

    def durable_version(
        self, state: State, log: bytes, dead: Collection[int] = ()
    ) -> int:
        """Return the last cut of a log that no replica needs from here any more.

        Who is dead, or not in the epoch, may never report: what it lacks it gets from a
        replica that has everything, and only if there is none the cuts are kept for it.
        """
        found = state.logs[log]
        versions = [found.version]
        for number in found.streams:
            stream = state.streams[number]
            told = self._has_all(stream, dead)
            for node in stream.replicas:
                report = self.report(node, number)
                known = report.version if report else 0
                # A replica that has its last run on the disk lacks nothing after it:
                # its next run will continue what it has, whatever lies between.
                if known >= stream.last_version:
                    continue
                away = report is None or report.epoch != stream.epoch or node in dead
                if not (told and away):
                    versions.append(known)
        return min(versions)

    def _has_all(self, stream: StreamState, dead: Collection[int]) -> bool:
        """Tell whether a replica has the place of everything committed on its disk."""
        return any(
            report is not None
            and node not in dead
            and report.epoch == stream.epoch
            and report.state in COUNTED
            and report.version >= stream.last_version
            for node in stream.replicas
            for report in [self.report(node, stream.stream)]
        )

    def proposed(self, index: int) -> None:
        """Note that the last cut is in the log, and build on what it leaves."""
        cut, self._made = self._made, None
        if cut is None:
            raise ValueError("no cut was made")
        self._flights.append(_Flight(index, cut))
        for each in cut.cuts:
            self._logs[each.log] = each.version, each.high_watermark
            for run in each.runs:
                self._committed[run.stream] = run.llsn_begin + run.length

    def dropped(self) -> None:
        """Note that the last cut could not be logged."""
        if self._made is not None:
            self._look_again(self._made)
            self._made = None

    def _look_again(self, cut: Cut) -> None:
        self._fresh |= {run.stream for each in cut.cuts for run in each.runs}

    def settled(self, index: int, *, refused: bool) -> tuple[bytes, ...] | None:
        """Note that an entry was applied; return the logs that it cut."""
        cuts = [each.cut for each in self._flights if each.index == index]
        if not cuts:
            return None
        self._stalled |= refused
        if refused:
            for flight in self._flights:
                self._look_again(flight.cut)
        self._flights = [each for each in self._flights if each.index > index]
        if not self._flights:
            self._stalled = False
            self._committed, self._logs = {}, {}
        return tuple(each.log for each in cuts[0].cuts)

    @property
    def in_flight(self) -> int:
        """Return how many cuts are on their way."""
        return len(self._flights)

    @property
    def flying(self) -> tuple[int, ...]:
        """Return the entries of the cuts that are on their way."""
        return tuple(each.index for each in self._flights)

    def copying(self, state: State) -> dict[int, int]:
        """Return how many committed records nodes have to copy, if any."""
        lacking: dict[int, int] = {}
        for stream in state.streams.values():
            for node in (*stream.replicas, *stream.learners):
                report = self.report(node, stream.stream)
                if report is not None and report.end < stream.committed:
                    lacks = stream.committed - report.end
                    lacking[node] = lacking.get(node, 0) + lacks
        return lacking


def _standing(report: StreamReport) -> tuple[int, int, bool]:
    return report.epoch, report.state, report.damaged
