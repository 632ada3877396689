"""What a replica says it is."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ReplicaState"]


class ReplicaState(IntEnum):
    """State of a replica, as its reports carry it."""

    STARTING = 1
    """Started, and in no epoch: it needs a new one."""
    RUNNING = 2
    SEALED = 3
    LEARNING = 4
    """It copies what is committed and takes no part in cuts."""
    INVALID = 5
    """What its disk holds cannot be; it serves nothing."""
    FAILED = 6
    """Its store failed: it promises nothing more."""
    CATCHING_UP = 7
    """It has a new epoch and is not in it yet."""
