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
        self.pending: deque[tuple[int, Mark]] = deque()
        """Marks on their way, with their tickets."""

    def note(self, ticket: int, mark: Mark) -> None:
        """Note that `mark` is durable once `ticket` is synced."""
        if self.pending and self.pending[-1][0] == ticket:
            self.pending.pop()
        self.pending.append((ticket, mark))

    def cut(self, llsn: int) -> None:
        """Take back what was said of `llsn` and everything behind it."""
        self.mark = _cut(self.mark, llsn)
        self.pending = deque(
            (ticket, _cut(mark, llsn)) for ticket, mark in self.pending
        )

    def synced(self, ticket: int) -> None:
        """Take the marks up to `ticket`."""
        while self.pending and self.pending[0][0] <= ticket:
            _, self.mark = self.pending.popleft()


def _cut(mark: Mark, llsn: int) -> Mark:
    return structs.replace(mark, end=min(mark.end, llsn))
