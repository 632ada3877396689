"""Python model of answer times: how much later than the first replica others are.

*Theory of operation.* A cut waits for the last replica of a stream, so what counts is
when the leader hears from each of them that it has the same records on its disk. The
first one that reports a new end sets a mark; how long the mark waits for another
replica is the lag of that one. A stream has one mark at a time, so a report costs the
same however many appends are on their way. The lags of a node are gathered over a
window. A mark that still waits at the end of a window counts with its age, or a replica
that does not answer at all would not be seen.

*Invariants.* Marks are set in an epoch that all replicas have entered, so none of them
has something else to do first. Whoever is heard is measured by the leader's clock
alone. Marks and lags are bounded.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Final, Protocol

from msgspec import Struct

from braidlog.logstream.states import ReplicaState
from braidlog.metarepo.machine.state import State, StreamState
from braidlog.wire.messages import Report, StreamReport

__all__ = ["AnswerTimes"]

SAMPLES_MAX: Final = 128
"""Lags of one node in a window."""
MARKS_MAX: Final = 256
"""Marks that wait at a time: a cluster with many streams is measured by some."""


class Reports(Protocol):
    """Who has the latest reports."""

    def report(self, node: int, stream: int) -> StreamReport | None:
        """Return what a node said of one replica, None if nothing."""


class _Mark(Struct):
    """An end that one replica has reached and others are waited for."""

    epoch: int
    end: int
    since: float
    waiting: set[int]
    top: int
    """The greatest end that any replica has reported: behind it comes the next mark."""


class AnswerTimes:
    """Lags of the replicas, as the leader sees them."""

    def __init__(self) -> None:
        """Have seen nothing."""
        self._marks: dict[int, _Mark] = {}
        self._open: dict[int, None] = {}  # a dict, for its order
        self._lags: dict[int, list[float]] = {}

    def heard(
        self, state: State, collector: Reports, report: Report, now: float
    ) -> None:
        """Take a report that the collector has taken."""
        if report.full:
            # A heartbeat comes when it is time: it may end a wait and begins none.
            for number in list(self._open):
                each = collector.report(report.node, number)
                mark = self._marks[number]
                if each is not None and each.epoch == mark.epoch:
                    self._reached(number, mark, report.node, each.end, now)
            return
        for each in report.streams:
            known = self._marks.get(each.stream)
            if known is not None and known.epoch == each.epoch:
                if known.waiting:
                    self._reached(each.stream, known, report.node, each.end, now)
                    continue
                if each.end <= known.top:
                    continue
            self._begin(state, collector, report.node, each, now)

    def _reached(
        self, number: int, mark: _Mark, node: int, end: int, now: float
    ) -> None:
        mark.top = max(mark.top, end)
        if end >= mark.end and node in mark.waiting:
            mark.waiting.discard(node)
            self._note(node, now - mark.since)
            if not mark.waiting:
                self._open.pop(number, None)

    def _begin(
        self,
        state: State,
        collector: Reports,
        node: int,
        first: StreamReport,
        now: float,
    ) -> None:
        stream = state.streams.get(first.stream)
        if stream is None or node not in stream.replicas or len(stream.replicas) < 2:
            return
        if len(self._open) >= MARKS_MAX:
            return
        if first.epoch != stream.epoch:
            return
        top, waiting = 0, set()
        for each in stream.replicas:
            report = collector.report(each, first.stream)
            if report is None or report.epoch != stream.epoch:
                return
            if report.state != ReplicaState.RUNNING:
                return
            top = max(top, report.end)
            if report.end < first.end:
                waiting.add(each)
        mark = _Mark(stream.epoch, first.end, now, set(), top)
        self._marks[first.stream] = mark
        if len(waiting) < len(stream.replicas) - 1:
            return  # It is not the first: what came before was not marked.
        mark.waiting = waiting
        self._open[first.stream] = None
        self._note(node, 0.0)

    def _note(self, node: int, lag: float) -> None:
        lags = self._lags.setdefault(node, [])
        if len(lags) < SAMPLES_MAX:
            lags.append(lag)

    def take(self, state: State, now: float, least: float) -> dict[int, float]:
        """Return the median lag of each node since the last call, in seconds.

        A mark that still waits counts if it is at least ``least`` old.
        """
        for number in list(self._open):
            mark, stream = self._marks[number], state.streams.get(number)
            if stream is None or stream.epoch != mark.epoch:
                del self._open[number], self._marks[number]
                continue
            self._age(mark, stream, now, least)
        for gone in self._marks.keys() - state.streams.keys():
            del self._marks[gone]
        lags, self._lags = self._lags, {}
        return {node: statistics.median(found) for node, found in lags.items()}

    def _age(self, mark: _Mark, stream: StreamState, now: float, least: float) -> None:
        age = now - mark.since
        for node in _in_order(stream, mark.waiting):
            # The lag will be longer than that. If it may still be one like those that
            # were seen it says nothing.
            if age >= least and age > max(self._lags.get(node, ()), default=0.0):
                self._note(node, age)

    def forget(self) -> None:
        """Drop what was measured while the leader itself was late."""
        self._lags.clear()
        self._marks.clear()
        self._open.clear()


def _in_order(stream: StreamState, nodes: set[int]) -> Iterator[int]:
    return (node for node in stream.replicas if node in nodes)
