"""Questions that one question upstream answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = ["Gathering"]

Q = TypeVar("Q")
A = TypeVar("A")

_AGAIN_S: Final = 0.1
"""After so long another question goes while one is under way: that may hang."""


class Gathering(Generic[Q, A]):
    """Questions that one question upstream answers.

    What comes while one is under way waits for the next: it may want to see what
    happened since the first left.
    """

    def __init__(
        self,
        ask: Callable[[Callable[[A], None]], None],
        answer: Callable[[list[Q], A], None],
    ) -> None:
        """Ask upstream with `ask`, and give all that wait their answer."""
        self._ask = ask
        self._answer = answer
        self._waiting: list[Q] = []
        self._flying = 0
        self._left_at = float("-inf")

    def add(self, question: Q, now: float) -> None:
        """Take a question."""
        self._waiting.append(question)
        self.tick(now)

    def tick(self, now: float) -> None:
        """Ask for all that wait, unless one has just left."""
        if not self._waiting or (self._flying and now < self._left_at + _AGAIN_S):
            return
        asked, self._waiting = self._waiting, []
        self._flying += 1
        self._left_at = now

        def done(answer: A) -> None:
            self._flying -= 1
            self._answer(asked, answer)
            if not self._flying:
                self.tick(self._left_at)

        self._ask(done)
