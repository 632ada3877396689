"""What a procedure sees beside its arguments."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from braidlog.app.execution.rng import Draws
from braidlog.app.procedure import partition_of
from braidlog.errors import InvalidArgumentError
from braidlog.types import Timestamp

__all__ = ["Context"]


class Context:
    """The state, the time and the random numbers of one command.

    All of it follows from the log: the same command on the same state sees the same
    values wherever and whenever it is executed.
    """

    __slots__ = ("_draws", "_handles", "_now", "_partitions", "_seed", "nows")

    def __init__(
        self,
        handles: Mapping[int, Any],
        partitions: int,
        now: Timestamp,
        seed: bytes,
    ) -> None:
        """Made by the executor for one command."""
        self._handles = handles
        self._partitions = partitions
        self._now = now
        self._seed = seed
        self._draws: Draws | None = None
        self.nows = 0

    @property
    def now(self) -> Timestamp:
        """The time of the command in microseconds; never earlier than the last one."""
        self.nows += 1
        return self._now

    @property
    def random(self) -> Draws:
        """Random numbers, from the seed in the log."""
        if self._draws is None:
            self._draws = Draws(self._seed)
        return self._draws

    @property
    def draws(self) -> int:
        """How many numbers were drawn."""
        return 0 if self._draws is None else self._draws.count

    def uuid(self) -> uuid.UUID:
        """Return a random UUID, from the seed in the log."""
        return self.random.uuid()

    @property
    def partitions(self) -> Mapping[int, Any]:
        """The states of the partitions that the call touches, by number, in order."""
        return self._handles

    @property
    def state(self) -> Any:
        """The state of the one partition that the call touches.

        Raises:
            InvalidArgumentError: it touches several: use `on`.
        """
        if len(self._handles) == 1:
            for handle in self._handles.values():
                return handle
        msg = (
            f"the call touches {len(self._handles)} partitions: choose one "
            "with ctx.on(key)"
        )
        raise InvalidArgumentError(msg)

    def on(self, key: object) -> Any:
        """Return the state of the partition of ``key``.

        Raises:
            InvalidArgumentError: the call did not declare it.
        """
        number = partition_of(key, self._partitions)
        if number in self._handles:
            return self._handles[number]
        msg = f"the call did not declare the partition of {key!r}"
        raise InvalidArgumentError(msg)

    def execute(self, sql: str, values: Any = ()) -> list[tuple[Any, ...]]:
        """Execute SQL on the one partition; see `Database.execute`."""
        rows: list[tuple[Any, ...]] = self.state.execute(sql, values)
        return rows

    def row(self, sql: str, values: Any = ()) -> tuple[Any, ...] | None:
        """Return the first row, or None."""
        found: tuple[Any, ...] | None = self.state.row(sql, values)
        return found

    def value(self, sql: str, values: Any = ()) -> Any:
        """Return the first column of the first row, or None."""
        return self.state.value(sql, values)
