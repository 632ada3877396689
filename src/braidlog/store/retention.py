"""What retention lets go of. Pure: no clock, no files.

Theory of operation: time retention finds the first record that is young enough; size
retention keeps the newest segments that together hold at least the configured bytes, so
space comes back in whole segments. The later of the two is the wish. A pinning cursor
whose lease has not run out holds everything from its position on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, SupportsFloat, SupportsIndex

from braidlog.errors import InvalidArgumentError
from braidlog.store.arguments import DurationLike
from braidlog.store.catalog import SegmentRange

CursorRow = tuple[int, bool, int, int]

# About thirty years; longer is for ever, which is None.
LEASE_MAX_S: Final = 1_000_000_000


def lease_us(lease: DurationLike | None) -> int:
    """Return a lease as microseconds; 0 is for ever.

    Raises:
        TypeError: it is neither a number of seconds nor a `timedelta`.
        InvalidArgumentError: it is no time that a pin can hold.
    """
    if lease is None:
        return 0
    seconds: Any = lease.total_seconds() if isinstance(lease, timedelta) else lease
    if not isinstance(seconds, SupportsFloat | SupportsIndex):
        msg = f"lease must be seconds or a timedelta, not {type(lease).__name__}"
        raise TypeError(msg)
    # NaN is in no range.
    if math.isnan(seconds) or not 0 < float(seconds) <= LEASE_MAX_S:
        msg = f"lease must be above 0 and at most {LEASE_MAX_S} seconds, got {lease}"
        raise InvalidArgumentError(msg)
    return max(1, int(float(seconds) * 1_000_000))


def retention_of(retention_ms: int | timedelta | None) -> int | None:
    """Return a retention in milliseconds."""
    if isinstance(retention_ms, timedelta):
        return retention_ms // timedelta(milliseconds=1)
    return retention_ms


def keep_bytes(segments: Iterable[SegmentRange], retention_bytes: int) -> int | None:
    """Return the first position to keep, or None if nothing is old enough to go."""
    kept = 0
    first: int | None = None
    for segment in sorted(segments, key=lambda segment: segment.begin, reverse=True):
        if kept >= retention_bytes and first is not None:
            return first
        kept += segment.bytes
        first = segment.begin
    return None


def lowest_pin(cursors: Mapping[str, CursorRow], now_us: int) -> int | None:
    """Return the lowest position that a live pin holds, or None."""
    live = [
        position
        for position, pin, touched, lease in cursors.values()
        if pin and (lease == 0 or now_us < touched + lease)
    ]
    return min(live, default=None)
