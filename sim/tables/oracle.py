"""What a table must have: every answer is judged by the log that its hosts applied.

*Theory of operation.* Hosts tell of each record that they apply. A position has one
record, whoever applies it, so the first teller says what the others have to find. An
answer is as of a position: with the records up to there it is known exactly.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from braidlog._native import Record
from sim.errors import ViolationError

__all__ = ["Answer", "TableOracle"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a host said."""

    node: int
    after: int
    """Position that the client named."""
    position: int
    """What it is as of."""
    asked: tuple[bytes, ...] | None
    """Keys that were looked up; None: a scan of everything."""
    found: dict[bytes, int]
    """Positions of the records, by key."""


@dataclass(slots=True)
class TableOracle:
    """The records of one log as tables have applied them."""

    records: dict[int, tuple[bytes | None, bytes | None]] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    _newest: dict[int, int] = field(default_factory=dict)

    def applied(self, table: bytes, record: Record) -> None:
        """Note what a host applies.

        Raises:
            ViolationError: another one applied something else there.
        """
        what = record.key, record.value
        known = self.records.setdefault(record.position, what)
        if known != what:
            where = f"position {record.position} of table {table.hex()}"
            raise ViolationError(f"{where}: one host has {known}, another {what}")

    def newest(self, node: int) -> int:
        """Return the newest position that a node has answered as of, until now."""
        return self._newest.get(node, 0)

    def answered(self, answer: Answer, before: int = 0) -> None:
        """Judge an answer as far as it can be at once.

        ``before`` is `newest` of the node when it was asked.

        Raises:
            ViolationError: it is older than it may be.
        """
        if answer.position < answer.after:
            what = f"node {answer.node} answers as of {answer.position}"
            raise ViolationError(f"{what}, although {answer.after} was asked for")
        if answer.position < before:
            what = f"node {answer.node} answers as of {answer.position}"
            raise ViolationError(f"{what}, after it had answered as of {before}")
        self._newest[answer.node] = max(self.newest(answer.node), answer.position)
        self.answers.append(answer)

    def check(self, begin: int = 1) -> None:
        """Judge all answers.

        Raises:
            ViolationError: one does not have what it must.
        """
        positions: dict[bytes, list[int]] = {}
        last = max((each.position for each in self.answers), default=0)
        for position in range(begin, last + 1):
            if position not in self.records:
                raise ViolationError(f"no host has applied position {position}")
            key, _ = self.records[position]
            if key is not None:
                positions.setdefault(key, []).append(position)
        for answer in self.answers:
            keys = answer.asked if answer.asked is not None else tuple(positions)
            expected = {}
            for key in keys:
                of_key = positions.get(key, [])
                at = bisect_right(of_key, answer.position)
                if at:
                    expected[key] = of_key[at - 1]
            if answer.found != expected:
                msg = f"{answer} should have found {expected}"
                raise ViolationError(msg)
