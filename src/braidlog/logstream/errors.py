"""Error of a replica.

    LogError
    └─ ClosedError
       └─ ReplicaInvariantError  the replica stops: a rule that must hold does not

What clients get are the errors of `braidlog.errors`.
"""

from __future__ import annotations

from typing import NoReturn

from braidlog.errors import ClosedError

__all__ = ["ReplicaInvariantError", "check", "fail"]


class ReplicaInvariantError(ClosedError):
    """A rule that must hold does not: the replica has failed and takes no input."""

    code = 90
    hint = "Keep the directory and report this bug; the other replicas go on"


def fail(reason: str) -> NoReturn:
    """Stop the replica because an invariant is broken.

    Raises:
        ReplicaInvariantError: always.
    """
    raise ReplicaInvariantError(reason)


def check(holds: bool, reason: str) -> None:
    """Stop the replica if an invariant is broken, in release as in tests.

    Raises:
        ReplicaInvariantError: it does not hold.
    """
    if not holds:
        fail(reason)
