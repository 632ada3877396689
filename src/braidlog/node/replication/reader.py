"""A read that waits on a node, for something new or until answers are read."""

from __future__ import annotations

from dataclasses import dataclass

from braidlog.serving.sessions import Request
from braidlog.wire.messages import Read

__all__ = ["Reader"]


@dataclass(slots=True)
class Reader:
    """A read that waits."""

    request: Request
    message: Read
    deadline: float
    crowded: bool = False
    """Whether there may be something to read, and too many answers were not taken."""

    @property
    def stirs(self) -> bool:
        """Whether to look at it although nothing new is there."""
        return self.crowded or self.request.gone
