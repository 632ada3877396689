"""What a procedure sees beside its arguments."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from braidlog.app.execution.rng import Draws
from braidlog.app.procedure import partition_of
from braidlog.errors import InvalidArgumentError
from braidlog.types import Timestamp


class Context:
    """The state, the time and the random numbers of one command.

    Everything here follows from the log: a command that is executed again, on another
    host or in a replay, sees the same values. Use it only inside the procedure that
    gets it.
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
        """Time of the command, microseconds since the epoch; it never goes back."""
        self.nows += 1
        return self._now

    @property
    def random(self) -> Draws:
        """Random numbers, made from the seed in the log."""
        if self._draws is None:
            self._draws = Draws(self._seed)
        return self._draws

    @property
    def draws(self) -> int:
        """Number of random numbers drawn so far."""
        return 0 if self._draws is None else self._draws.count

    def uuid(self) -> uuid.UUID:
        """Return a random UUID (version 4), made from the seed in the log."""
        return self.random.uuid()

    @property
    def partitions(self) -> Mapping[int, Any]:
        """States of the partitions that the call touches, in order of their numbers."""
        return self._handles

    @property
    def state(self) -> Any:
        """State of the one partition that the call touches.

        Raises:
            InvalidArgumentError: the call touches several partitions; use `on`.
        """
        if len(self._handles) == 1:
            for handle in self._handles.values():
                return handle
        raise InvalidArgumentError(
            f"the call touches {len(self._handles)} partitions: choose one "
            "with ctx.on(key)"
        )

    def on(self, key: object) -> Any:
        """Return the state of the partition that ``key`` (int, str, bytes) belongs to.

        Raises:
            EncodingError: the key has another type.
            InvalidArgumentError: the call did not declare that partition.
        """
        number = partition_of(key, self._partitions)
        if number in self._handles:
            return self._handles[number]
        raise InvalidArgumentError(f"the call did not declare the partition of {key!r}")

    def execute(self, sql: str, values: Any = ()) -> list[tuple[Any, ...]]:
        """Execute one SQL statement on the one partition, and return all rows.

        ``values`` are bound to the parameters of the statement. Use ORDER BY where the
        order of rows matters. The changes are kept if the procedure returns, and undone
        if it raises.

        Raises:
            InvalidArgumentError: the call touches several partitions; use `on`.
            DeterminismError: a replay could give something else.
            StepBudgetError: the command takes more steps than a command may.
            apsw.Error: the statement is wrong, or a constraint refuses it.
        """
        rows: list[tuple[Any, ...]] = self.state.execute(sql, values)
        return rows

    def row(self, sql: str, values: Any = ()) -> tuple[Any, ...] | None:
        """Execute as `execute`, and return the first row, or None if there is none."""
        found: tuple[Any, ...] | None = self.state.row(sql, values)
        return found

    def value(self, sql: str, values: Any = ()) -> Any:
        """Execute as `execute`; return the first column of the first row, or None."""
        return self.state.value(sql, values)

    def table(self, name: str) -> Any:
        """Return a `KeyedTable` of the one partition: values by key, without SQL.

        A step of the schema makes it: ``schema=[keyed_table("stock")]``.

        Raises:
            InvalidArgumentError: the call touches several partitions; use `on`.
            NotFoundError: the schema makes no keyed table of that name.
        """
        return self.state.table(name)
