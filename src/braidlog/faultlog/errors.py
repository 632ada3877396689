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

    def __init__(
        self, message: str = "", *, number: tuple[int, int] = (0, 0), path: str = ""
    ) -> None:
        """Give the number (epoch, sequence) and the ring that has the other one."""
        super().__init__(message)
        self.number = number
        self.path = path
