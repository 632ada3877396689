"""Requests to a node that hangs end, each once, with what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from braidlog.errors import DeadlineError, LogError
from braidlog.node.requests.forwarding import Answer, Forwarding
from braidlog.raft import NotLeaderError
from braidlog.wire.messages import Execute, Executed, GetMetadata, Message

if TYPE_CHECKING:
    from typing_extensions import Buffer

NOTHING = memoryview(b"")


class Bench:
    def __init__(self) -> None:
        self.sent: list[tuple[int, Message, Answer]] = []
        self.answers: list[Message | LogError] = []
        self.forwarding = Forwarding(self.send, 6.0)

    def send(
        self, node: int, message: Message, payload: Sequence[Buffer], answer: Answer
    ) -> None:
        self.sent.append((node, message, answer))

    def forward(self, message: Message, now: float = 0.0, wait: float = 0.0) -> Answer:
        self.forwarding.forward(2, message, (), self.answered, now, wait=wait)
        return self.sent[-1][2]

    def answered(self, message: Message | LogError, payload: memoryview) -> None:
        self.answers.append(message)


def test_an_answer_goes_back_once() -> None:
    bench = Bench()
    answer = bench.forward(Execute(b"c"))
    answer(Executed(7), NOTHING)
    answer(Executed(8), NOTHING)
    bench.forwarding.tick(99.0, 3, 2)
    assert bench.answers == [Executed(7)]
    assert not bench.forwarding


def test_a_command_ends_when_another_node_leads() -> None:
    bench = Bench()
    answer = bench.forward(Execute(b"c"))
    bench.forwarding.tick(0.5, 2, 1)
    bench.forwarding.tick(0.6, 0, 2)
    assert bench.answers == []
    bench.forwarding.tick(1.0, 3, 2)
    [error] = bench.answers
    assert isinstance(error, NotLeaderError)
    assert (error.leader, error.outcome, error.retryable) == (3, "unknown", True)
    answer(Executed(7), NOTHING)
    assert len(bench.answers) == 1


def test_a_node_that_hangs_is_not_waited_for() -> None:
    bench = Bench()
    bench.forward(Execute(b"c"))
    bench.forward(GetMetadata(1, 10_000), wait=10.0)
    bench.forwarding.tick(6.0, 2, 1)
    [late] = bench.answers
    assert isinstance(late, DeadlineError)
    assert (late.outcome, late.retryable) == ("unknown", True)
    # A question changes nothing, whoever leads; it was asked to wait, too.
    bench.forwarding.tick(15.9, 3, 1)
    assert len(bench.answers) == 1
    bench.forwarding.tick(16.0, 3, 1)
    error = bench.answers[1]
    assert isinstance(error, LogError)
    assert error.outcome == "not_stored"
