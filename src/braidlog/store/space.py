"""When the cleaner runs: before a log is full of segments that are hardly alive."""

from __future__ import annotations

from typing import Final

from braidlog import _native

# The cleaner runs when this share of the bound is in use, and copies only from segments
# of which at most half is alive.
_CLEAN_ABOVE: Final = 0.75
_LIVE_MAX: Final = 0.5
_CLEAN_SEGMENTS: Final = 2


def clean_if_full(store: _native.Store) -> None:
    """Copy forward what little is alive in old segments, if space is running out."""
    stats = store.stats()
    if stats["segments"] >= _CLEAN_ABOVE * stats["segments_max"]:
        store.clean(_CLEAN_SEGMENTS, _LIVE_MAX)
