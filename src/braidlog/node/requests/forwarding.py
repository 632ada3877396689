"""Requests that another node has to answer, with an end to the waiting.

*Theory of operation.* A node that hangs keeps its connections, so nothing breaks and no
answer comes. What was sent to a leader ends when another one is known: the new leader
knows whether the command is in the log, and the same call again gets its result. For
the rest there is a deadline.

*Invariants.* Each request is answered once; an answer that comes later is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from braidlog.errors import DeadlineError, LogError, NotReadyError
from braidlog.metarepo.pending import unknown_outcome
from braidlog.wire.messages import Execute, Message

if TYPE_CHECKING:
    from typing_extensions import Buffer

Answer: TypeAlias = Callable[[Message | LogError, memoryview], None]
Send: TypeAlias = Callable[[int, Message, "Sequence[Buffer]", Answer], None]
"""Asks a node; the answer comes once, maybe at once, or never if the node hangs."""
Execution: TypeAlias = Callable[[bytes, bytes, Answer], None]
"""Executes a command on the leader of the repository, by the number of a call."""

_NOTHING = memoryview(b"")


def not_leading(node: int, leader: int) -> NotReadyError:
    """Return the error of a node that is asked what only the leader does."""
    knows = f"node {leader} is" if leader else "it knows no leader now"
    msg = f"node {node} is not the leader of the metadata repository; {knows}"
    return NotReadyError(msg)


@dataclass(slots=True, eq=False)
class _Forwarded:
    """A request that waits for another node."""

    node: int
    message: Message
    answer: Answer
    deadline: float


class Forwarding:
    """All requests of a node that others have to answer."""

    def __init__(self, send: Send, patience: float) -> None:
        """Wait `patience` seconds for an answer, beyond what was asked for."""
        self._send = send
        self._patience = patience
        # A dict, for its order.
        self._waiting: dict[_Forwarded, None] = {}

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    def forward(
        self,
        node: int,
        message: Message,
        payload: Sequence[Buffer],
        answer: Answer,
        now: float,
        *,
        wait: float = 0.0,
    ) -> None:
        """Ask a node that may take `wait` seconds; `answer` is called once."""
        forwarded = _Forwarded(node, message, answer, now + wait + self._patience)
        self._waiting[forwarded] = None

        def answered(message: Message | LogError, payload: memoryview) -> None:
            self._settle(forwarded, message, payload)

        self._send(node, message, payload, answered)

    def tick(self, now: float, leader: int, term: int) -> None:
        """End what takes too long, or waits for a leader that is none any more."""
        for each in list(self._waiting):
            if isinstance(each.message, Execute) and leader not in (0, each.node):
                self._settle(each, unknown_outcome(leader, term), _NOTHING)
            elif now >= each.deadline:
                self._settle(each, self._late(each), _NOTHING)

    def _late(self, forwarded: _Forwarded) -> LogError:
        what = type(forwarded.message).__name__
        msg = (
            f"node {forwarded.node} did not answer {what} within "
            f"{self._patience} seconds"
        )
        error: LogError = DeadlineError(msg)
        if not isinstance(forwarded.message, Execute):
            error.outcome = "not_stored"
        return error

    def _settle(
        self, forwarded: _Forwarded, message: Message | LogError, payload: memoryview
    ) -> None:
        if forwarded in self._waiting:
            del self._waiting[forwarded]
            forwarded.answer(message, payload)
