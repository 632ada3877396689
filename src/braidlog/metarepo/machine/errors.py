"""What goes wrong inside the metadata repository."""

from __future__ import annotations

from typing import NoReturn

from braidlog.errors import ClosedError


class RepositoryInvariantError(ClosedError):
    """A rule of the replicated state does not hold: the node has stopped."""

    code = 79
    hint = "Keep the directory and report this; the other nodes go on"


def fail(reason: str) -> NoReturn:
    """Stop the node because an invariant is broken.

    Raises:
        RepositoryInvariantError: always.
    """
    raise RepositoryInvariantError(reason)


def check(holds: bool, reason: str) -> None:
    """Stop the node if an invariant is broken.

    Raises:
        RepositoryInvariantError: it does not hold.
    """
    if not holds:
        fail(reason)
