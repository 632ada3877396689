"""Linearizable reads without log entries (ReadIndex: Ongaro, 6.4).

*Theory of operation.* The leader notes its commit index and asks in a numbered round
whether it still leads. A quorum of answers to that round, or a later one, confirms
every read noted before the round began. The number is the leader's own and it never
leads again in the same term, so no answer can be taken for another one.

A follower sends its read to the leader under a number of its own and waits for so many
ticks. No read is lost in silence: it is answered or it fails.

*Invariants.* The index of a read is not below any commit that was acknowledged before
the read was asked for: a leader answers only after it committed an entry of its term.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from braidlog.raft.quorum import Halves, agreed

__all__ = ["Reads", "Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """A read of this node (`node` is its id, `number` the context) or of another."""

    node: int
    incarnation: int
    number: int


class Reads:
    """Reads that wait at this node."""

    def __init__(self) -> None:
        """Begin with none."""
        self.round = 0
        self.active = False
        """Whether the leader has to ask or to answer, as far as it has looked."""
        self._next_number = 1
        self._early: list[Request] = []
        self._new: list[tuple[int, Request]] = []
        self._asked: list[tuple[int, int, Request]] = []
        self._acked: dict[int, int] = {}
        self._forwarded: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        """Return how many wait."""
        asked = len(self._early) + len(self._new) + len(self._asked)
        return asked + len(self._forwarded)

    # --- leader

    def add(self, request: Request, index: int | None) -> None:
        """Take a read; without an index it waits for the first commit of the term."""
        self.active = True
        if index is None:
            self._early.append(request)
        else:
            self._new.append((index, request))

    def committed(self, index: int) -> None:
        """Go on with the reads that waited for the first commit of the term."""
        self._new += [(index, request) for request in self._early]
        self._early.clear()

    def begin_round(self) -> bool:
        """Begin a round for the reads that came since the last one, if any did."""
        if not self._new:
            return False
        self.round += 1
        self._asked += [(self.round, index, request) for index, request in self._new]
        self._new.clear()
        return True

    def acknowledge(self, node: int, number: int) -> None:
        """Note that `node` knew no later leader when it got a round."""
        self._acked[node] = max(self._acked.get(node, 0), min(number, self.round))

    def confirmed(self, halves: Halves, own: int) -> list[tuple[int, Request]]:
        """Take the reads off that a quorum confirmed."""
        if not self._asked:
            return []

        def reached(node: int) -> int:
            return self.round if node == own else self._acked.get(node, 0)

        upto = agreed(halves, reached)
        done = [(index, request) for r, index, request in self._asked if r <= upto]
        self._asked = [asked for asked in self._asked if asked[0] > upto]
        return done

    # --- follower

    def forward(self, context: int) -> int:
        """Note a read that the leader is asked for; return its number."""
        number = self._next_number
        self._next_number += 1
        self._forwarded[number] = (context, 0)
        return number

    def answered(self, number: int) -> int | None:
        """Return the context of a read and forget it."""
        found = self._forwarded.pop(number, None)
        return found and found[0]

    def tick(self, deadline: int) -> list[int]:
        """Let the forwarded reads grow older; return the contexts that are too old."""
        aged = {n: (context, age + 1) for n, (context, age) in self._forwarded.items()}
        self._forwarded = {n: read for n, read in aged.items() if read[1] < deadline}
        return [context for context, age in aged.values() if age >= deadline]

    # --- both

    def clear(self, own: int, tell: Callable[[Request], None]) -> list[int]:
        """Forget everything; return own contexts, and `tell` about those of others."""
        asked = [request for _, _, request in self._asked]
        waiting = [*asked, *(request for _, request in self._new), *self._early]
        for request in waiting:
            if request.node != own:
                tell(request)
        failed = [request.number for request in waiting if request.node == own]
        failed += [context for context, _ in self._forwarded.values()]
        for kept in (self._asked, self._new, self._early):
            kept.clear()
        self._forwarded.clear()
        self._acked.clear()
        return failed
