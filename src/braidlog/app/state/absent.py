"""Some partitions of an application: the others are there, and hold nothing."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from braidlog.app.execution.state import Progress, Saved, StoredResult, View
from braidlog.errors import InvalidArgumentError

_MSG: Final = "this partition is not replayed here"


class AbsentPartition:
    """Stands for a partition that is executed elsewhere: it only passes."""

    @property
    def handle(self) -> Any:
        """Refuse: procedures that touch it are not executed here."""
        _refuse()

    def load(self) -> Progress:
        """Return that nothing was executed."""
        return Progress()

    def kept(self) -> list[tuple[int, bytes, str, bytes]]:
        """Return no results."""
        return []

    def result(self, position: int) -> StoredResult | None:
        """Return that there is none."""
        return None

    def waiting(self, position: int) -> bytes | None:
        """Return that there is none."""
        return None

    def begin(self) -> None:
        """Do nothing."""

    def mark(self) -> None:
        """Refuse."""
        _refuse()

    def spoiled(self) -> Exception | None:
        """Refuse."""
        _refuse()

    def changes(self) -> list[Any]:
        """Refuse."""
        _refuse()

    def release(self) -> list[Any]:
        """Refuse."""
        _refuse()

    def undo(self) -> None:
        """Refuse."""
        _refuse()

    def apply(self, changes: list[Any]) -> None:
        """Refuse."""
        _refuse()

    def migrate(self, step: str) -> None:
        """Do nothing: there is no schema."""

    def commit(self, saved: Saved) -> None:
        """Do nothing."""

    def rollback(self) -> None:
        """Do nothing."""

    def view(self) -> View:
        """Refuse."""
        _refuse()

    def close(self) -> None:
        """Do nothing."""


def _refuse() -> NoReturn:
    raise InvalidArgumentError(_MSG)
