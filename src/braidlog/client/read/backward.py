"""How a log of a cluster is read backwards: in windows, each of them forwards.

*Theory of operation.* Nodes read forwards, and streams are merged forwards. So the
client takes windows of positions from the end, reads each as ever, and passes on what
came in the opposite order. How many records a window should have is not known before
they came: it is guessed from the bytes of the window before. One that turns out too
large is given up and halved, which bounds memory whatever the sizes are.

A batch is never cut between two windows: its records have consecutive positions, so a
window that begins inside of one is extended to all of it.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from braidlog.client.read.merge import Span

# The first window has few records: often only the last ones are wanted.
_FIRST_RECORDS: Final = 64
_RECORDS_MAX: Final = 1 << 17
# A window may grow by so much at a time; sizes of a few records say little.
_GROWTH: Final = 8


class Windows:
    """Windows over positions ``begin`` to ``end``, from the end.

    Read positions ``low`` to ``high``, then call `took`; or `halve`, if that is more
    than `bytes_max`, and read again.
    """

    def __init__(self, begin: int, end: int, bytes_wanted: int) -> None:
        """Start at the end; a window shall have about ``bytes_wanted`` bytes."""
        self.begin = begin
        self.high = end
        self._wanted = max(1, bytes_wanted)
        self._records = _FIRST_RECORDS

    @property
    def done(self) -> bool:
        """Whether nothing is left to read."""
        return self.high <= self.begin

    @property
    def low(self) -> int:
        """First position of the window."""
        return max(self.begin, self.high - self._records)

    @property
    def bytes_max(self) -> int:
        """Bytes beyond which a window of more than one record is given up."""
        return 2 * self._wanted

    def halve(self) -> None:
        """Make the window smaller: it holds too much."""
        self._records = max(1, (self.high - self.low) // 2)

    def took(self, spans: Iterable[Span]) -> list[Span]:
        """Return the spans of the window, the last one first, and go on before them."""
        found = list(spans)
        found[0] = _whole(found[0], self.begin)
        count = self.high - found[0].glsn
        size = sum(len(span.data) for span in found)
        best = count * self._wanted // max(1, size)
        self._records = max(1, min(best, count * _GROWTH, _RECORDS_MAX))
        self.high = found[0].glsn
        found.reverse()
        return found

    def trimmed(self, first: int) -> None:
        """Go no further back than to the first position that is left."""
        self.begin = max(self.begin, first)


def _whole(span: Span, begin: int) -> Span:
    """Return a span with the records of its batch before it, from ``begin`` on."""
    more = min(span.skip, span.glsn - begin)
    return replace(
        span,
        llsn=span.llsn - more,
        glsn=span.glsn - more,
        skip=span.skip - more,
        count=span.count + more,
    )
