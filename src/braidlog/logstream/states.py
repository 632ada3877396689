"""States of a replica, as it reports them."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ReplicaState"]


class ReplicaState(IntEnum):
    """What a replica is doing; the numbers go over the wire."""

    STARTING = 1
    """Just started; in no epoch yet."""
    RUNNING = 2
    SEALED = 3
    LEARNING = 4
    INVALID = 5
    """What it holds contradicts the log: it has to be synchronized anew."""
    FAILED = 6
    """Its storage failed; only a restart helps."""
    CATCHING_UP = 7
    """Has an epoch to enter and fetches what it lacks."""
