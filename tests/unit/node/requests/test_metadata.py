"""Questions for the metadata: shared upstream, encoded once, told in slices."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from braidlog.errors import LogError, NotReadyError
from braidlog.node.repository.route import RepositoryRoute
from braidlog.node.requests import metadata
from braidlog.node.requests.metadata import Answers
from braidlog.wire.messages import GetMetadata, Message, Metadata
from braidlog.wire.rights import Rights
from braidlog.wire.roles import Role


class Asker:
    """A connection and its one request."""

    def __init__(self, role: Role = Role.READ) -> None:
        self.session = self
        self.role = role
        self.rights = Rights(role)
        self.gone = False
        self.parked = 0
        self.answers: list[bytes | LogError] = []

    def park(self) -> None:
        self.parked += 1

    def answer_encoded(self, kind: type[Message], head: bytes) -> None:
        assert kind is Metadata
        self.answers.append(head)

    def fail(self, error: LogError) -> None:
        self.answers.append(error)


class Bench:
    """A node that is a member, or not; what it is asked is answered by hand."""

    def __init__(self, *, member: bool = True) -> None:
        self.now = 0.0
        self.revision = 3
        self.turns: list[Callable[[], None]] = []
        self.confirms: list[Any] = []
        self.forwarded: list[tuple[int, GetMetadata, Any]] = []
        self.encoded = 0
        voter: Any = SimpleNamespace(
            leader=1,
            version=(3, 1),
            metadata=self.metadata,
            read=lambda _message, _now, done: self.confirms.append(done),
            group=SimpleNamespace(repository=self),
        )
        peers: Any = SimpleNamespace(is_connected=lambda node: node == 3)
        directory: Any = SimpleNamespace(metadata=None, voters=(2, 3))
        self.route = RepositoryRoute(1, peers, directory)
        self.route.leader_heard = 2
        self.route.member = voter if member else None
        self.voter = voter
        self.full = False
        self.answers = Answers(
            self.route,
            lambda *asked: self.forwarded.append(asked),
            self,
            lambda: self.full,
        )

    def changed(self) -> None:
        """Nothing has to be flushed."""

    def soon(self, call: Callable[[], None], seconds: float = 0.0) -> None:
        self.turns.append(call)

    def metadata(self, *, judged: bool = False) -> Metadata:
        self.encoded += 1
        return Metadata(self.revision, 1, "test", (), ())

    def ask(self, asker: Asker, message: GetMetadata, *, forward: bool = True) -> None:
        request: Any = asker
        self.answers.take(request, message, forward=forward)

    def publish(self) -> None:
        self.revision += 1
        if self.route.member is not None:
            self.voter.version = (self.revision, 1)
        else:
            self.route.directory.metadata = self.metadata()
        self.answers.look()

    def turn(self) -> None:
        turns, self.turns = self.turns, []
        for each in turns:
            each()


WAIT = GetMetadata(3, 10_000)


def test_ten_thousand_polls_are_told_between_all_other_work() -> None:
    bench = Bench()
    clients = [Asker() for _ in range(10_000)]
    peer = Asker(Role.PEER)
    for each in (*clients, peer):
        bench.ask(each, WAIT)
        assert each.parked == 1
    assert len(bench.answers) == 10_001
    bench.publish()
    assert len(peer.answers) == 1  # At once, though it came last.
    turns, before = 0, sum(len(each.answers) for each in clients)
    while bench.turns:
        bench.turn()
        turns += 1
        after = sum(len(each.answers) for each in clients)
        assert after - before <= metadata._SLICE
        before = after
    assert turns >= 10_000 // metadata._SLICE - 1
    assert all(len(each.answers) == 1 for each in clients)
    assert bench.encoded == 1
    assert len(bench.answers) == 0


def test_a_connection_has_one_poll() -> None:
    bench = Bench()
    asker = Asker()
    for count in range(5000):
        bench.ask(asker, WAIT)
        assert len(bench.answers) == 1
        assert len(asker.answers) == count
    bench.answers.gone(asker)  # type: ignore[arg-type]
    assert len(bench.answers) == 0
    bench.publish()
    assert len(asker.answers) == 4999


def test_a_node_of_an_earlier_version_asks_for_its_clients() -> None:
    bench = Bench()
    session = Asker(Role.PEER)
    requests = [Asker(Role.PEER) for _ in range(100)]
    for each in requests:
        each.session = session
        bench.ask(each, WAIT)
    assert len(bench.answers) == 100
    bench.publish()
    assert all(len(each.answers) == 1 for each in requests)
    for each in requests:
        bench.ask(each, GetMetadata(bench.revision, 60_000))
    bench.answers.gone(session)  # type: ignore[arg-type]
    assert len(bench.answers) == 0


def test_a_poll_that_waited_long_enough_is_answered() -> None:
    bench = Bench()
    asker = Asker()
    bench.ask(asker, GetMetadata(3, 1000))
    bench.answers.tick(0.9)
    assert asker.answers == []
    bench.answers.tick(1.5)
    assert len(asker.answers) == 1
    eternal = Asker()
    bench.ask(eternal, GetMetadata(3, 2**62))
    bench.answers.tick(metadata.WAIT_MAX_MS / 1000 + 1)
    assert len(eternal.answers) == 1


def test_nothing_is_told_while_answers_fill_the_memory() -> None:
    bench = Bench()
    clients = [Asker() for _ in range(1000)]
    for each in clients:
        bench.ask(each, WAIT)
    bench.publish()
    bench.full = True
    for _ in range(5):
        bench.turn()
    assert sum(len(each.answers) for each in clients) == metadata._SLICE
    bench.full = False
    while bench.turns:
        bench.turn()
    assert all(len(each.answers) == 1 for each in clients)


@pytest.mark.parametrize(
    "kind", ["confirmed", "of the leader", "as the leader", "of a voter"]
)
def test_questions_are_gathered(kind: str) -> None:
    """One is under way; what comes meanwhile waits for the next, which is newer."""
    bench = Bench(member=kind != "of a voter")
    message = GetMetadata(linearizable=True)
    if kind == "of the leader":
        bench.voter.leader = 2
        message = GetMetadata(by_leader=True)
    if kind == "as the leader":
        message = GetMetadata(linearizable=True, by_leader=True)
    first, *others = [Asker() for _ in range(101)]
    bench.ask(first, message)
    for each in others:
        bench.ask(each, message)

    def under_way() -> int:
        return len(bench.confirms) + len(bench.forwarded)

    def answer() -> None:
        if kind in ("confirmed", "as the leader"):
            bench.confirms.pop(0)(SimpleNamespace(error=None))
        else:
            bench.forwarded.pop(0)[2](bench.metadata())

    assert under_way() == 1
    answer()
    assert len(first.answers) == 1
    assert not any(each.answers for each in others)
    assert under_way() == 1
    answer()
    assert all(len(each.answers) == 1 for each in others)
    assert under_way() == 0


def test_a_question_that_hangs_does_not_hold_the_next_for_long() -> None:
    bench = Bench()
    hangs, other = Asker(), Asker()
    bench.ask(hangs, GetMetadata(linearizable=True))
    bench.ask(other, GetMetadata(linearizable=True))
    bench.answers.tick(0.05)
    assert len(bench.confirms) == 1
    bench.answers.tick(0.2)
    assert len(bench.confirms) == 2
    bench.confirms.pop()(SimpleNamespace(error=NotReadyError("no majority")))
    assert isinstance(other.answers[0], NotReadyError)
    assert hangs.answers == []


def test_a_node_that_is_no_member_waits_once_for_all() -> None:
    bench = Bench(member=False)
    with pytest.raises(NotReadyError):
        bench.ask(Asker(), WAIT)
    bench.publish()
    clients = [Asker() for _ in range(100)]
    for each in clients:
        bench.ask(each, GetMetadata(bench.revision, 10_000))
    assert bench.forwarded == []
    bench.publish()
    assert all(len(each.answers) == 1 for each in clients)
    fresh = Asker()
    bench.ask(fresh, GetMetadata())
    [(voter, message, _)] = bench.forwarded
    assert (voter, message) == (3, GetMetadata())
