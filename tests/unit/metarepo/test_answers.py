"""Lags of replicas, as the leader measures them by what they report."""

from __future__ import annotations

import pytest

from braidlog.logstream.states import ReplicaState
from braidlog.wire.commands import Reconfigure
from braidlog.wire.messages import Report, StreamReport, StreamStatus
from braidlog.wire.results import Refused
from unit.metarepo.bench import Bench

LEAST = 0.01
LAGS_MAX = 128
"""Lags of one node in a window that count, as the core has it."""


class Measured(Bench):
    """A bench whose reports are measured too."""

    def __init__(self, *placement: tuple[int, ...]) -> None:
        super().__init__(4)
        self.create(*placement)
        self.now = 10.0
        for stream, nodes in enumerate(placement, 1):
            for node in nodes:
                self.says(node, 1, stream=stream, full=True)

    def says(
        self,
        node: int,
        end: int,
        *,
        stream: int = 1,
        after: float = 0.0,
        full: bool = False,
        epoch: int = 1,
        state: ReplicaState = ReplicaState.RUNNING,
    ) -> None:
        self.now += after
        self.reports += 1
        told = StreamReport(stream, epoch, 0, 1, end, state)
        report = Report(node, 1, self.reports, False, (told,))
        if full:
            others = tuple((self.collector.streams(node) | {stream: told}).values())
            report = Report(node, 1, self.reports, True, others)
        assert self.collector.take(report)
        self.collector.measure(self.repository.state, report, self.now)

    def take(self, after: float = 0.0) -> dict[int, float]:
        self.now += after
        return self.collector.take_lags(self.repository.state, self.now, LEAST)


def test_the_first_one_waits_for_nobody() -> None:
    bench = Measured((1, 2, 3))
    bench.says(2, 5)
    bench.says(1, 5, after=0.001)
    bench.says(3, 5, after=0.02)
    assert bench.take() == pytest.approx({2: 0.0, 1: 0.001, 3: 0.021})
    assert bench.take() == {}


def test_one_mark_waits_whatever_comes_behind_it() -> None:
    bench = Measured((1, 2, 3))
    for end in range(2, 30):
        bench.says(1, end, after=0.001)
        bench.says(2, end)
    bench.says(3, 2)
    lags = bench.take()
    assert lags[3] == pytest.approx(0.027)
    assert lags[1] == lags[2] == 0.0
    # It has not caught up: what the others have now was not marked.
    bench.says(3, 10, after=0.5)
    assert bench.take() == {}
    bench.says(1, 40)
    bench.says(3, 40, after=0.002)
    bench.says(2, 40)
    assert bench.take() == pytest.approx({1: 0.0, 2: 0.002, 3: 0.002})


def test_the_median_counts() -> None:
    bench = Measured((1, 2))
    for end, lag in enumerate((0.001, 0.9, 0.002, 0.003, 0.001), 2):
        bench.says(1, end)
        bench.says(2, end, after=lag)
    assert bench.take()[2] == pytest.approx(0.002)


def test_one_that_does_not_answer_lags_by_its_age() -> None:
    bench = Measured((1, 2, 3))
    bench.says(1, 2)
    bench.says(2, 2)
    assert bench.take(after=0.001) == {1: 0.0, 2: 0.0}
    assert bench.take(after=0.25) == pytest.approx({3: 0.251})
    assert bench.take(after=0.25) == pytest.approx({3: 0.501})
    bench.says(3, 2, after=0.1, full=True)
    assert bench.take() == pytest.approx({3: 0.601})


def test_heartbeats_end_a_wait_and_begin_none() -> None:
    bench = Measured((1, 2))
    bench.says(1, 2, full=True)
    bench.says(2, 2, after=0.5)
    assert bench.take() == {}
    bench.says(1, 3)
    bench.says(2, 3, after=0.05, full=True)
    assert bench.take() == pytest.approx({1: 0.0, 2: 0.05})


def test_nobody_is_waited_for_who_has_something_else_to_do_first() -> None:
    bench = Measured((1, 2, 3))
    bench.says(3, 1, state=ReplicaState.CATCHING_UP, full=True)
    bench.says(1, 2)
    bench.says(2, 2)
    assert bench.take(after=1.0) == {}


def test_an_epoch_that_is_over_is_not_waited_for() -> None:
    bench = Measured((1, 2, 3))
    bench.says(1, 2)
    made = bench.do(Reconfigure(1, 1, (1, 2), (3,), StreamStatus.RUNNING, (1, 2, 3)))
    assert not isinstance(made, Refused)
    assert bench.take(after=1.0) == {1: 0.0}
    for node in (1, 2):
        bench.says(node, 2, epoch=2)
    bench.says(2, 3, epoch=2)
    bench.says(3, 3, epoch=1)
    bench.says(1, 3, epoch=2, after=0.004)
    assert bench.take() == pytest.approx({2: 0.0, 1: 0.004})


def test_a_stream_of_one_replica_has_nothing_to_compare() -> None:
    bench = Measured((1,), (2, 3))
    bench.says(1, 2)
    assert bench.take() == {}
    bench.says(2, 2, stream=2)
    bench.says(3, 2, stream=2, after=0.01)
    assert bench.take() == pytest.approx({2: 0.0, 3: 0.01})


def test_samples_are_bounded() -> None:
    bench = Measured((1, 2))
    for end in range(2, 3 * LAGS_MAX):
        bench.says(1, end)
        bench.says(2, end, after=1.0 if end < LAGS_MAX + 2 else 9.0)
    assert bench.take()[2] == pytest.approx(1.0), "the later ones are not counted"


def test_what_a_late_leader_measured_is_forgotten() -> None:
    bench = Measured((1, 2))
    bench.says(1, 2)
    bench.collector.forget_lags()
    bench.says(2, 2, after=3.0)
    assert bench.take() == {}
