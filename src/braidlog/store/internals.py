"""What other packages of Braidlog ask of an open store, and programs do not."""

from __future__ import annotations

from braidlog import _native
from braidlog.store.log import Log
from braidlog.store.retention import lowest_pin
from braidlog.store.store import Store

# Segments that are kept for trims, and the two at the ends, which are used in part.
_NOT_USABLE = 4


def usable_bytes(store: Store) -> int:
    """Return how many bytes records may take before the store is full."""
    stats = store._backend.store.stats()
    usable = max(1, int(stats["segments_max"]) - _NOT_USABLE)
    return usable * int(stats["segment_bytes"])


def raw_streams(store: Store) -> _native.Replicas:
    """Return the streams of a store as they are stored, below its logs."""
    return store._backend.store.replicas()


def pinned(log: Log, now_us: int) -> int | None:
    """Return the lowest position that a cursor of a log holds, or None."""
    return lowest_pin(log._cursor_rows(), now_us)


def producer_state(log: Log, producer: int) -> tuple[int | None, int | None]:
    """Return the sequence that a log expects next of a producer, and its epoch."""
    found: tuple[int | None, int | None]
    found = log._backend.store.producer(log._stream, producer)
    return found


def end_waits(log: Log) -> None:
    """End the waits on a log; waits that come later return at once.

    Raises:
        ClosedError: the store is closed.
    """
    log._view.cancel()
