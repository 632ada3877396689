"""What a leader knows about a follower, to look at; the log notes it.

`braidlog._native.Tail` has the rules.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

__all__ = ["Mode", "Progress"]


class Mode(Enum):
    """How a follower is fed."""

    PROBE = "probe"
    REPLICATE = "replicate"
    BASE = "base"


class Progress(Struct, frozen=True):
    """Progress of one follower at some moment: up to `match` it has the own log."""

    next: int
    match: int
    mode: Mode
    active: bool
    """Heard of since the last check of the quorum; a newcomer counts as heard of."""
    probed: bool
    """A probe is on its way."""
    nudge: bool
    """An empty append may be sent although the window is full."""
    commit_sent: int
    base_index: int
    """Index of the base that was sent."""
    base_ticks: int
    """Ticks since then."""
