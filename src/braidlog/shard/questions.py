"""What is answered only once a majority has said who leads: many at once.

*Theory of operation.* Whatever is asked in one turn goes with one question to the group
(ReadIndex; Ongaro, 6.4), and is answered when as much is applied here as was committed
then. Few questions are on their way at a time: what comes meanwhile goes with the next
one. So those who ask for much take no place from others.

*Invariants.* Each request is answered or refused once. What was decided by a leader is
not answered after its lead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from braidlog.errors import LogError

__all__ = ["Question", "Questions"]

OUT_MAX: Final = 64
"""Questions on their way."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Question(Generic[Answer]):
    """What somebody, or several, want to know."""

    requests: tuple[object, ...]
    answer: Callable[[], Iterable[tuple[object, Answer]]]
    """Gives the answers, once."""
    index: int = 0
    """The entry up to which has to be applied at least."""
    leading: bool = False
    """Whether only a leader can answer, in the term in which it was asked."""


class Questions(Generic[Answer]):
    """Those of one member; see the module."""

    def __init__(self, read: Callable[[int], None]) -> None:
        """Ask by ``read``, which takes a number that its answer has."""
        self._read = read
        self._asked: list[Question[Answer]] = []
        self._out: dict[int, list[Question[Answer]]] = {}
        self._confirmed: list[tuple[int, Question[Answer]]] = []
        """With the index that has to be applied first."""
        self._number = 0

    def __len__(self) -> int:
        """Return how many requests wait."""
        return sum(len(each.requests) for each in self._all())

    def _all(self) -> Iterator[Question[Answer]]:
        yield from self._asked
        for several in self._out.values():
            yield from several
        yield from (each for _, each in self._confirmed)

    def add(self, question: Question[Answer]) -> None:
        """Ask with the next question to the group."""
        self._asked.append(question)

    def send(self) -> tuple[list[Question[Answer]], LogError | None]:
        """Ask the group what was added; return what it does not even take, and why."""
        if not self._asked or len(self._out) >= OUT_MAX:
            return [], None
        asked, self._asked = self._asked, []
        self._number += 1
        try:
            self._read(self._number)
        except LogError as error:
            return asked, error
        self._out[self._number] = asked
        return [], None

    def confirmed(self, number: int, index: int) -> None:
        """Note that a majority has answered: all up to an index was committed."""
        for each in self._out.pop(number, ()):
            self._confirmed.append((max(index, each.index), each))

    def failed(self, number: int) -> list[Question[Answer]]:
        """Note that nobody confirms; return what cannot be answered."""
        return self._out.pop(number, [])

    def due(self, applied: int) -> list[Question[Answer]]:
        """Return, once, what can be answered when so much is applied."""
        ready = [each for index, each in self._confirmed if index <= applied]
        if ready:
            rest = [each for each in self._confirmed if each[0] > applied]
            self._confirmed = rest
        return ready

    def drop_leading(self) -> list[Question[Answer]]:
        """Return, once, what only the leader could answer that this member was."""
        dropped = [each for each in self._all() if each.leading]
        self._asked = [each for each in self._asked if not each.leading]
        for several in self._out.values():
            several[:] = [each for each in several if not each.leading]
        self._confirmed = [each for each in self._confirmed if not each[1].leading]
        return dropped

    def clear(self) -> list[object]:
        """Answer nobody any more; return who waited."""
        waited = [request for each in self._all() for request in each.requests]
        self._asked, self._out, self._confirmed = [], {}, []
        return waited
