"""What the leader sends to the nodes: configurations and cuts.

*Theory of operation.* A configuration goes out when it, or what all nodes know, has
changed, to every node that has the stream, and again until the node reports the epoch;
to a learner, as long as it is one. A cut goes out once when it is applied, to every
node with a stream of the log. Who reports that it has not moved although there is more
gets the cuts from the first one that gave it something; if that is forgotten here it
gets the newest, sees the gap, and asks another replica. What the last cuts gave to
others does not show in reports; it is sent again after a connection was made, and a few
times when a log has come to rest.

*Invariants.* Nothing is sent faster than its interval, and no message has more than
`CUTS_MAX` cuts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from braidlog.logstream.states import ReplicaState
from braidlog.metarepo.leader.collector import Collector
from braidlog.metarepo.machine.repository import Repository
from braidlog.metarepo.machine.state import (
    HISTORY_CUTS_MIN,
    LogState,
    State,
    StreamState,
)
from braidlog.metarepo.machine.views import shared_features
from braidlog.wire.messages import Commit, Configure, LogCut, Report, StreamReport

CUTS_MAX: Final = 256
REPEATS: Final = 3
_BROKEN: Final = frozenset({ReplicaState.INVALID, ReplicaState.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherSettings:
    """Intervals, in seconds."""

    configure: float = 0.1
    """Between repeats of a configuration; doubles up to `configure_max`."""
    configure_max: float = 1.0
    resend: float = 0.05
    """A replica that has not moved for so long gets cuts again."""


@dataclass(slots=True)
class _Sent:
    """A configuration that a node was sent."""

    changed: int
    features: int
    at: float
    wait: float


@dataclass(slots=True)
class _Tail:
    """How often a node was sent the end of a log that is at rest."""

    version: int
    at: float
    repeats: int


class Publisher:
    """What was sent to whom."""

    def __init__(self, settings: PublisherSettings) -> None:
        """Begin with nothing sent."""
        self._settings = settings
        self._sent: dict[int, dict[int, _Sent]] = {}
        self._dropped: dict[int, dict[int, float]] = {}
        self._stuck: dict[tuple[int, int], tuple[int, float]] = {}
        self._tails: dict[tuple[int, bytes], _Tail] = {}
        self._revision = -1
        self._features = 0
        self._nodes: dict[bytes, set[int]] = {}
        self._streams: dict[int, list[int]] = {}

    def unsent(self, node: int) -> None:
        """Forget what a node was sent: it may be lost."""
        self._sent.pop(node, None)
        self._dropped.pop(node, None)
        for tail in [key for key in self._tails if key[0] == node]:
            del self._tails[tail]

    def _refresh(self, state: State) -> None:
        """Compute who has what: that has changed."""
        self._revision = state.revision
        self._nodes, self._streams = {}, {}
        self._features = shared_features(state)
        for stream in state.streams.values():
            self._nodes.setdefault(stream.log, set()).update(stream.replicas)
            for node in (*stream.replicas, *stream.learners):
                self._streams.setdefault(node, []).append(stream.stream)
        for known in (self._sent, self._dropped):
            for node in known.keys() - state.nodes.keys():
                del known[node]
        for pair in [p for p in self._stuck if p[1] not in state.streams]:
            del self._stuck[pair]
        for key in [k for k in self._tails if k[1] not in state.logs]:
            del self._tails[key]

    # --- cuts

    def applied(
        self, repository: Repository, cuts: Sequence[LogCut]
    ) -> list[tuple[int, Commit]]:
        """Return what to send when cuts were applied, to primaries first."""
        state = repository.state
        if self._revision != state.revision:
            self._refresh(state)
        by_node: dict[int, list[LogCut]] = {}
        first: set[int] = set()
        for cut in cuts:
            for node in self._nodes.get(cut.log, ()):
                by_node.setdefault(node, []).append(cut)
            for run in cut.runs:
                if (stream := state.streams.get(run.stream)) is not None:
                    first.add(stream.replicas[0])
        messages = []
        whole = Commit(tuple(cuts))
        # Who waits for a commit waits at the primary.
        for node in (*sorted(by_node.keys() & first), *sorted(by_node.keys() - first)):
            mine = by_node[node]
            each = whole if len(mine) == len(cuts) else Commit(tuple(mine))
            messages.append((node, each))
        return messages

    def reported(
        self, repository: Repository, report: Report, now: float
    ) -> list[tuple[int, Commit]]:
        """Return the cuts that a node lacks, as far as its report shows it."""
        state = repository.state
        if self._revision != state.revision:
            self._refresh(state)
        behind: dict[bytes, int] = {}
        quiet: dict[bytes, int] = {}
        for each in report.streams:
            stream = state.streams.get(each.stream)
            if stream is None or report.node not in stream.replicas:
                continue
            if each.committed >= stream.committed:
                if self._stuck:
                    self._stuck.pop((report.node, stream.stream), None)
            elif self._is_stuck(report.node, stream, each, now):
                lacks = _lacks(state.logs[stream.log], each)
                behind[stream.log] = min(lacks, behind.get(stream.log, lacks))
                continue
            if each.version < state.logs[stream.log].version:
                version = min(each.version, quiet.get(stream.log, each.version))
                quiet[stream.log] = version
        for log, version in quiet.items():
            if self._repeat_tail(report.node, state.logs[log], now):
                behind.setdefault(log, version)
        if not behind:
            return []
        cuts = [
            cut
            for log, version in behind.items()
            for cut in self._following(repository, state.logs[log], version)
        ]
        return [
            (report.node, Commit(tuple(cuts[at : at + CUTS_MAX])))
            for at in range(0, len(cuts), CUTS_MAX)
        ]

    def _is_stuck(
        self, node: int, stream: StreamState, report: StreamReport, now: float
    ) -> bool:
        """Tell whether a replica that lacks something has not moved for too long."""
        key = node, stream.stream
        committed, since = self._stuck.get(key, (-1, now))
        if committed != report.committed:
            self._stuck[key] = report.committed, now
            return False
        if now - since < self._settings.resend:
            return False
        self._stuck[key] = committed, now
        return True

    def _repeat_tail(self, node: int, log: LogState, now: float) -> bool:
        tail = self._tails.get((node, log.log))
        if tail is None or tail.version != log.version:
            self._tails[node, log.log] = _Tail(log.version, now, 0)
            return False
        wait = self._settings.resend * 2.0**tail.repeats
        if tail.repeats >= REPEATS or now - tail.at < wait:
            return False
        tail.at, tail.repeats = now, tail.repeats + 1
        return True

    def _following(
        self, repository: Repository, log: LogState, version: int
    ) -> tuple[LogCut, ...]:
        cuts = repository.cuts_since(log.log, version, CUTS_MAX)
        return tuple(log.history[-HISTORY_CUTS_MIN:]) if cuts is None else cuts

    # --- configurations

    def configure(
        self, repository: Repository, collector: Collector, node: int, now: float
    ) -> Configure | None:
        """Return the configurations that a node has to be sent now."""
        state = repository.state
        if self._revision != state.revision:
            self._refresh(state)
        configs = tuple(
            repository.config(number)
            for number in self._streams.get(node, ())
            if self._due(state.streams[number], collector, node, now)
        )
        dropped = tuple(self._unwanted(repository, collector, node, now))
        if not configs and not dropped:
            return None
        return Configure(repository.index, configs, dropped)

    def _due(
        self, stream: StreamState, collector: Collector, node: int, now: float
    ) -> bool:
        sent = self._sent.setdefault(node, {})
        last = sent.get(stream.stream)
        known = (stream.changed, self._features)
        if last is None or (last.changed, last.features) != known:
            sent[stream.stream] = _Sent(*known, now, self._settings.configure)
            return True
        if _settled(stream, collector.report(node, stream.stream), node):
            return False
        if now - last.at < last.wait:
            return False
        last.at = now
        last.wait = min(2 * last.wait, self._settings.configure_max)
        return True

    def _unwanted(
        self, repository: Repository, collector: Collector, node: int, now: float
    ) -> Iterator[int]:
        """Return the streams that a node has and must let go."""
        state = repository.state
        mine = set(self._streams.get(node, ()))
        sent = self._dropped.setdefault(node, {})
        reported = collector.streams(node)
        for gone in sent.keys() - reported.keys():
            del sent[gone]
        for number, report in reported.items():
            # A number that was not given out yet is of a state that this one lost.
            if number in mine or number >= state.stream_next:
                continue
            if number in state.orphans:
                continue
            stream = state.streams.get(number)
            if stream and report.state not in _BROKEN and _wanting(repository, stream):
                continue
            if now - sent.get(number, -1e9) >= self._settings.configure_max:
                sent[number] = now
                yield number


def _lacks(log: LogState, report: StreamReport) -> int:
    """Return the version before the first cut that a replica has to be sent.

    Cuts that gave it nothing are skipped: it takes a run that continues what it has.
    """
    for cut in log.history:
        for run in cut.runs:
            end = run.llsn_begin + run.length
            if run.stream == report.stream and end > report.committed:
                return cut.version - 1
    return log.version - 1


def _settled(stream: StreamState, report: StreamReport | None, node: int) -> bool:
    if report is None or report.state == ReplicaState.STARTING:
        return False
    # What a learner reports does not show which configuration it goes by: it may be the
    # replica that it was, or copy from one that is gone. So it is told until it joins.
    return node not in stream.learners and report.epoch >= stream.epoch


def _wanting(repository: Repository, stream: StreamState) -> bool:
    """Tell whether a stream lacks replicas, so that an old copy may be of use."""
    wanted = repository.state.logs[stream.log].replication
    return len(stream.replicas) + len(stream.learners) < wanted
