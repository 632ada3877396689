"""The error of a fault log that the tree of the package has no word for."""

from __future__ import annotations

from braidlog.errors import ClosedError

__all__ = ["ForkedError"]


class ForkedError(ClosedError):
    """Two configurations have one number: two sides decided without each other."""

    code = 92
    hint = (
        "Stop the node and compare the fault logs of all nodes to find out "
        "which side is right"
    )
    number: tuple[int, int] = (0, 0)
    """Epoch and sequence."""
    path: str = ""
    """The ring that has the other configuration."""
