"""Errors of a Raft group, split by what the caller does next.

    LogError
    ├─ UnavailableError
    │  ├─ NotLeaderError         ask ``leader``
    │  ├─ TailFullError          wait for commits, then retry
    │  ├─ ReadsFullError         wait for answers, then retry
    │  ├─ TransferringError      leadership is on its way to ``target``
    │  └─ ChangeRefusedError     the group is not ready for this change yet
    ├─ ClosedError
    │  ├─ RemovedNodeError       this node was removed for good
    │  └─ RaftInvariantError     the group stops: a rule that must hold does not
    ├─ InvalidArgumentError
    │  └─ MembershipError        the change makes no sense
    └─ RaftMessageError          a peer or a disk sent bytes that cannot be

All but `RaftInvariantError` are raised before anything was changed.
"""

from __future__ import annotations

from typing import NoReturn

from braidlog.errors import (
    ClosedError,
    InvalidArgumentError,
    LogError,
    UnavailableError,
)

__all__ = [
    "ChangeRefusedError",
    "MembershipError",
    "NotLeaderError",
    "RaftInvariantError",
    "RaftMessageError",
    "ReadsFullError",
    "RemovedNodeError",
    "TailFullError",
    "TransferringError",
    "check",
    "fail",
]


class NotLeaderError(UnavailableError):
    """This node does not lead; nothing was logged."""

    code = 70
    hint = "Ask the leader"
    leader: int = 0
    """0 if it is not known."""
    term: int = 0


class TailFullError(UnavailableError):
    """The uncommitted tail is at its bound; nothing was logged."""

    code = 71
    hint = "Wait until something is committed, then retry"
    used: int = 0
    """Bytes in the tail."""
    limit: int = 0
    """The bound."""


class ReadsFullError(UnavailableError):
    """Too many reads wait for an answer."""

    code = 72
    hint = "Wait for one of them, then retry"


class TransferringError(UnavailableError):
    """Leadership is being handed over; nothing was logged."""

    code = 73
    hint = "Send it to the node that takes over"
    target: int = 0
    """Node that is about to lead."""


class ChangeRefusedError(UnavailableError):
    """The group cannot take this change of membership now; nothing was logged."""

    code = 74
    hint = (
        "Wait until the current change is finished, or until the nodes have caught up"
    )


class RemovedNodeError(ClosedError):
    """This node was removed from its group and never comes back."""

    code = 75
    hint = "Add a node with a new id"


class RaftInvariantError(ClosedError):
    """A rule that must hold does not: the node has stopped and takes no input."""

    code = 76
    hint = "Keep the directory and report this bug; the other nodes go on"


class MembershipError(InvalidArgumentError):
    """The membership or the change makes no sense."""

    code = 77


class RaftMessageError(LogError):
    """A message, an entry or a stored state is malformed or impossible."""

    code = 78
    hint = "Drop the message; if this repeats, compare the versions of the nodes"


def fail(reason: str) -> NoReturn:
    """Stop the node because an invariant is broken.

    Raises:
        RaftInvariantError: always.
    """
    raise RaftInvariantError(reason)


def check(holds: bool, reason: str) -> None:
    """Stop the node if an invariant is broken, in release as in tests.

    Raises:
        RaftInvariantError: it does not hold.
    """
    if not holds:
        fail(reason)
