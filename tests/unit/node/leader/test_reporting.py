"""When a node says what it holds: at once if there is news, seldom if there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from braidlog.logstream import ReplicaState
from braidlog.node.leader.reporting import REPEATS, SELDOM, Reporting
from braidlog.wire.messages import Message, Recorded, Report, StreamReport

HELD = StreamReport(1, 1, 0, 1, 1, ReplicaState.RUNNING)


@dataclass
class Member:
    """Follows node 2."""

    kept: bool = True
    reports: list[Report] = field(default_factory=list)
    group: Any = field(
        default_factory=lambda: SimpleNamespace(
            standing=("follower", 1, 2, 1), kept=lambda *_: None
        )
    )

    def is_kept(self) -> bool:
        return self.kept

    def report(self, report: Report, _now: float) -> None:
        self.reports.append(report)

    def recorded(self, said: Recorded) -> None:
        pass


class Bench:
    """Node 1, called each 50 ms."""

    def __init__(self, member: Member | None) -> None:
        self.now = 10.0
        self.sent: list[tuple[float, int, Message]] = []
        self.streams = (HELD,)
        self.says: Recorded | None = None
        self.syncs = 0, 0
        config: Any = SimpleNamespace(
            node=SimpleNamespace(id=1), timing=SimpleNamespace(heartbeat_ms=100)
        )
        route: Any = SimpleNamespace(
            member=member, leader=2, way_to_leader=2, voters=(2, 3)
        )
        self.route = route
        peers: Any = SimpleNamespace(
            send=lambda to, said: self.sent.append((self.now, to, said))
        )
        self.reporting = Reporting(
            config,
            1,
            route,
            peers,
            stored=lambda: self.streams,
            says=lambda: self.says,
            syncs=lambda: self.syncs,
        )

    def reports(self, seconds: float) -> int:
        """Return how many reports the leader gets in this time."""
        self.sent.clear()
        for _ in range(round(seconds / 0.05)):
            self.now = round(self.now + 0.05, 3)
            self.reporting.tick(self.now)
        return len([to for _, to, said in self.sent if to == 2 and _full(said)])


def _full(said: Message) -> bool:
    return isinstance(said, Report) and said.full


@pytest.fixture
def bench() -> Bench:
    """Return a member that has said what there is."""
    bench = Bench(Member())
    assert bench.reports(0.1 * REPEATS) == REPEATS
    return bench


def test_a_member_without_news_reports_seldom(bench: Bench) -> None:
    assert bench.reports(0.1 * SELDOM * 5) == 5


def test_who_has_to_report_to_be_alive_does(bench: Bench) -> None:
    bench.reports(5.0)
    bench.route.member.kept = False
    assert bench.reports(2.0) == 20
    assert Bench(None).reports(2.0) == 20


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("streams", (HELD, StreamReport(2, 1, 0, 1, 1, ReplicaState.RUNNING))),
        ("syncs", (900, 300)),
        ("says", Recorded(1, 1, 0, False)),
    ],
)
def test_what_is_new_is_said_with_the_next_heartbeat(
    bench: Bench, name: str, value: Any
) -> None:
    bench.reports(1.5)
    setattr(bench, name, value)
    assert bench.reports(0.1) == 1
    # What was sent may be lost.
    assert bench.reports(3.0) == REPEATS - 1 + 2


def test_all_is_said_again_when_it_may_be_lost(bench: Bench) -> None:
    bench.reports(1.5)
    bench.reporting.again()
    assert bench.reports(0.1) == 1


def test_another_leader_hears_it_at_once(bench: Bench) -> None:
    bench.reports(1.5)
    bench.sent.clear()
    bench.route.leader = 3
    bench.route.member.group.standing = ("follower", 2, 3, 1)
    bench.reporting.led(bench.now)
    assert [(to, _full(said)) for _, to, said in bench.sent] == [(3, True)]
    assert bench.reporting.standing == ("follower", 2, 3, 1)
