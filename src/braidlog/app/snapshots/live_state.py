"""A state that goes on meanwhile, as taking snapshots and copies needs it."""

from __future__ import annotations

from typing import Protocol

from braidlog.app.snapshots.files import Image


class HostRole(Protocol):
    """Whether the host may trim the log."""

    @property
    def active(self) -> bool:
        """Whether the host is the active one, as far as it has read."""

    @property
    def waiting(self) -> bool:
        """Whether it should be, and the log has no room for the entry that says so."""


class LiveState(Protocol):
    """A state between two commands of a log that is executed all the time."""

    @property
    def position(self) -> int:
        """Everything in the log up to here is executed and committed."""

    @property
    def role(self) -> HostRole:
        """The role of the host."""

    def mark(self) -> Image:
        """Hold the state between two commands; the caller closes the views.

        Raises:
            DivergedError: a partition is stopped, so it is at no one position.
        """

    def stopped_partitions(self) -> tuple[int, ...]:
        """Return the partitions that diverged from the log."""
