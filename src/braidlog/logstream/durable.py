"""What a replica has on its disk, from the tickets of its writes.

*Invariants.* Nothing is durable before its ticket is synced. What was rolled back is
not durable, whatever is synced later.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct, structs

__all__ = ["Durable", "Mark"]


class Mark(Struct, frozen=True):
    """Where the stream stood when it was written."""

    end: int
    version: int
    epoch: int


class Durable:
    """The last mark that is durable, and those on their way."""

    def __init__(self, mark: Mark) -> None:
        """Begin with what the disk held at the start."""
        self.mark = mark
        self._marks: deque[tuple[int, Mark]] = deque()

    @property
    def pending(self) -> bool:
        """Tell whether a mark is on its way."""
        return bool(self._marks)

    def note(self, ticket: int, mark: Mark) -> None:
        """Note that `mark` is durable once `ticket` is synced."""
        if self._marks and self._marks[-1][0] == ticket:
            self._marks.pop()
        self._marks.append((ticket, mark))

    def cut(self, llsn: int) -> None:
        """Take back what was said of `llsn` and everything behind it."""
        self.mark = _cut(self.mark, llsn)
        self._marks = deque((ticket, _cut(mark, llsn)) for ticket, mark in self._marks)

    def synced(self, ticket: int) -> None:
        """Take the marks up to `ticket`."""
        while self._marks and self._marks[0][0] <= ticket:
            _, self.mark = self._marks.popleft()


def _cut(mark: Mark, llsn: int) -> Mark:
    return structs.replace(mark, end=min(mark.end, llsn))
