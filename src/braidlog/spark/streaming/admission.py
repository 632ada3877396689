"""How much of a log one batch of a streaming query reads.

Theory of operation: positions are dense, so a number of records is met exactly. Bytes
are known of ranges, about: the end is moved down in proportion to what the range holds
too much, and the smaller range is measured again, because records of one part of a log
may be much larger than those of another.

Invariant: a batch has at least one position, so a query always comes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_STEPS: Final = 4
"""Each measure costs a look at the streams, and a few are near enough."""


def admit(
    begin: int,
    end: int,
    *,
    records_max: int | None,
    bytes_max: int | None,
    measure: Callable[[int, int], int],
) -> int:
    """Return where a batch that begins at ``begin`` ends, at the latest at ``end``."""
    if begin >= end:
        return end
    if records_max is not None:
        end = min(end, begin + max(1, records_max))
    if bytes_max is None:
        return end
    for _ in range(_STEPS):
        size = measure(begin, end)
        if size <= bytes_max or end == begin + 1:
            break
        end = begin + max(1, (end - begin) * bytes_max // size)
    return end
