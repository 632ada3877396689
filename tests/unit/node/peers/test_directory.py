"""Who votes now, for a node that is no member of the repository."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from braidlog.errors import LogError, NotReadyError
from braidlog.node.leader.reporting import Reporting
from braidlog.node.peers.directory import Directory
from braidlog.node.repository.route import RepositoryRoute
from braidlog.wire.messages import Message, Metadata, NodeInfo, Report

NOTHING = memoryview(b"")


def info(node: int, *, voter: bool) -> NodeInfo:
    return NodeInfo(node, f"n{node}:7400", True, voter, False, b"", False)


class Bench:
    """Node 5, which does not vote; its settings name 1, 2 and 3."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Any]] = []
        self.sent: list[tuple[int, Message]] = []
        self.known: dict[int, str] = {}
        self.is_member = False
        peers: Any = SimpleNamespace(
            request=lambda voter, _message, _payload, answer: self.asked.append(
                (voter, answer)
            ),
            send=lambda voter, message: self.sent.append((voter, message)),
            know=self.known.update,
            nodes=self.known,
        )
        config: Any = SimpleNamespace(
            node=SimpleNamespace(id=5), timing=SimpleNamespace(heartbeat_ms=100)
        )
        self.directory = Directory(
            5,
            (1, 2, 3),
            peers,
            learn=lambda _: None,
            is_member=lambda: self.is_member,
            changed=lambda: None,
        )
        route = RepositoryRoute(5, peers, self.directory)
        self.reporting = Reporting(
            config, 1, route, peers, stored=tuple, says=lambda: None
        )
        self.now = 0.0

    def answer(self, answer: Message | LogError) -> None:
        self.asked[-1][1](answer, NOTHING)

    def told(self) -> list[int]:
        """Return to whom a sign of life goes."""
        self.sent.clear()
        self.now += 1.0
        self.reporting.tick(self.now)
        assert all(isinstance(message, Report) for _, message in self.sent)
        return [voter for voter, _ in self.sent]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("braidlog.node.peers.directory._PAUSE_S", 0.0)
    return Bench()


async def test_who_was_made_a_voter_hears_of_this_node(bench: Bench) -> None:
    """It may lead, and takes a node that it does not hear from for dead."""
    bench.directory.start()
    assert bench.told() == [1, 2, 3]
    nodes = tuple(info(node, voter=node in (1, 2, 3, 4)) for node in range(1, 6))
    bench.answer(Metadata(7, 4, "c", nodes, ()))
    assert bench.told() == [1, 2, 3, 4]
    assert bench.known[4] == "n4:7400"
    bench.directory.close()


async def test_who_votes_no_more_is_left(bench: Bench) -> None:
    bench.directory.start()
    for voters in ((1, 2, 4, 6), (2, 3, 6)):
        nodes = tuple(info(node, voter=node in voters) for node in range(1, 7))
        bench.answer(Metadata(7, 4, "c", nodes, ()))
        await asyncio.sleep(0.01)
    # Those of the settings stay: they are the way into the cluster.
    assert bench.directory.voters == (1, 2, 3, 6)
    bench.directory.close()


async def test_voters_that_came_later_are_asked_too(bench: Bench) -> None:
    bench.directory.start()
    nodes = tuple(info(node, voter=node in (4, 6)) for node in range(1, 7))
    bench.answer(Metadata(7, 4, "c", nodes, ()))
    for _ in range(5):
        await asyncio.sleep(0.01)
        bench.answer(NotReadyError("not now"))
    await asyncio.sleep(0.01)
    assert {voter for voter, _ in bench.asked} == {1, 2, 3, 4, 6}
    bench.directory.close()


async def test_a_member_asks_for_a_leader_that_its_log_does_not_have(
    bench: Bench,
) -> None:
    """It could not answer it, and would be sent nothing that says where it is."""
    bench.is_member = True
    bench.directory.start()
    assert bench.asked == []
    bench.directory.seek(4)
    bench.answer(Metadata(6, 4, "c", (info(1, voter=True),), ()))
    await asyncio.sleep(0.01)
    # The voter that was asked is behind as well.
    assert len(bench.asked) == 2
    bench.answer(Metadata(7, 4, "c", (info(4, voter=True),), ()))
    await asyncio.sleep(0.01)
    assert len(bench.asked) == 2
    assert bench.known[4] == "n4:7400"
    bench.directory.close()
    bench.directory.seek(6)
    assert len(bench.asked) == 2
