"""A record of a command log, whoever read it."""

from __future__ import annotations

from typing import Protocol


class RecordLike(Protocol):
    """What the executor needs of a record."""

    @property
    def position(self) -> int:
        """Its place in the log."""

    @property
    def timestamp(self) -> int:
        """When it was appended, in microseconds."""

    @property
    def value(self) -> bytes | None:
        """An entry; None is none, as what others append is."""
