"""What the executor needs of a state: one store for each virtual partition.

The executor decides what is executed and when; a state does it and remembers. Between
`begin` and `commit` a partition executes many commands, each between `mark` and either
`release` or `undo`. What `commit` stores comes all together or not at all; it does not
have to reach the device, because the log has everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from braidlog.app.execution.total import Tally
from braidlog.errors import LogError


class StoredResult(NamedTuple):
    """The result of a call, kept for retries, under the position of its command."""

    position: int
    call: bytes
    procedure: str
    status: int
    body: bytes
    digest: bytes


@dataclass(slots=True)
class Progress:
    """How far a partition is; one value, stored with the effects.

    Invariants: ``last <= applied``; every call kept is above ``forgotten``.
    """

    applied: int = 0
    """Everything in the log up to here is in the partition."""
    last: int = 0
    """Position of the last command that was executed on it."""
    time: int = 0
    """Largest timestamp that a command on it has seen."""
    forgotten: int = 0
    """Position of the last call whose result was dropped."""
    steps: int = 0
    """Steps of the schema that were executed."""
    stopped: list[Any] | None = None
    """Why nothing is executed on it any more: what a `DivergedError` says."""
    shared: dict[str, Any] = field(default_factory=dict)
    """What belongs to the whole application; of the partition 0 alone."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What one commit stores beside the effects."""

    progress: Progress
    results: Sequence[StoredResult]
    waiting: Sequence[tuple[int, bytes]]
    """What commands on several partitions did since the last commit, by position."""
    settled: int
    """All partitions are durable up to here: what waited for them may go."""


@dataclass(frozen=True, slots=True)
class Resizing:
    """Other partitions with the same rows, as `State.build` makes them."""

    row_keys: Mapping[str, str | None]
    """Of each table the column with the partition key of a row; None if every
    partition has the same rows."""
    schema: Sequence[str]
    """The steps that were executed."""
    progress: Sequence[Progress]
    """What each of them stores: there are so many."""
    results: Sequence[StoredResult]
    """Results of calls that each of them remembers."""


class View(Protocol):
    """A partition as it was at one commit. Close it soon: it holds space."""

    @property
    def handle(self) -> Any:
        """What read-only procedures get to work with; it refuses changes."""

    def hash(self) -> bytes:
        """Return 16 bytes that stand for the content: equal content, equal hash."""

    def own_hash(self) -> bytes:
        """Return 16 bytes that stand for what is kept beside the content."""

    def tally(self) -> Tally:
        """Return what the partition adds to the total hash."""

    def size(self) -> int:
        """Return about how many bytes a copy has."""

    def copy(self, path: Path) -> None:
        """Write it to a new file, which `State.restore` takes; durable on return."""

    def close(self) -> None:
        """Release it."""


class PartitionState(Protocol):
    """The state of one virtual partition. Used by one thread at a time."""

    @property
    def handle(self) -> Any:
        """What procedures get to work with."""

    def load(self) -> Progress:
        """Return what the last commit stored; a new `Progress` if there was none."""

    def kept(self) -> list[tuple[int, bytes, str, bytes]]:
        """Return position, call id, procedure and digest of the results kept."""

    def result(self, position: int) -> StoredResult | None:
        """Return a result kept."""

    def waiting(self, position: int) -> bytes | None:
        """Return what was stored for other partitions at a position."""

    def begin(self) -> None:
        """Begin a transaction."""

    def mark(self) -> None:
        """Begin a command."""

    def spoiled(self) -> Exception | None:
        """Return why the command must be undone although it returned, if so."""

    def changes(self) -> list[Any]:
        """Return what the command has changed so far: values of the log, in order."""

    def release(self) -> list[Any]:
        """Keep what the command changed, and return it."""

    def undo(self) -> None:
        """Take back what the command changed."""

    def apply(self, changes: list[Any]) -> None:
        """Change what `release` returned elsewhere, without running any code."""

    def migrate(self, step: str) -> None:
        """Execute a step of the schema, within a transaction."""

    def commit(self, saved: Saved) -> None:
        """End the transaction, together with ``saved``."""

    def rollback(self) -> None:
        """End the transaction without it."""

    def view(self) -> View:
        """Return what is committed now, as long as it is open.

        May be used by another thread, beside the writer, and does not hold it up.
        """

    def close(self) -> None:
        """Release everything; what was not committed is gone."""


class State(Protocol):
    """All partitions of an application."""

    @property
    def partitions(self) -> Sequence[PartitionState]:
        """The states, by partition."""

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What it raises when the machine fails: no outcome of a command."""

    def explained(self, error: Exception, doing: str) -> LogError:
        """Return what an executor stops with that a failure of the machine came to.

        It says where the state is; ``doing`` is what could not be done.
        """

    def restore(self, partition: int, path: Path) -> None:
        """Replace a partition by a copy of it; durable on return."""

    def begin_again(self, partitions: int) -> None:
        """Replace all partitions by so many empty ones, for `restore` to fill."""

    def build(self, plan: Resizing) -> bytes:
        """Make other partitions beside these, and return their total hash.

        Nothing is seen of them before `adopt`. Nothing is executed meanwhile.

        Raises:
            ResizeRefusedError: the rows allow no other partitions; it is the same
                wherever the rows are the same.
            CorruptionError: the new partitions have not the rows that these have.
        """

    def adopt(self) -> None:
        """Put what was built in the place of all partitions; durable on return.

        A crash leaves either all of the old partitions or all of the new ones.
        """

    def sync(self) -> None:
        """Make what was committed before the call durable.

        Nothing where a crash of the machine is the end of the state anyway.

        Raises:
            OSError: the device failed.
        """

    def hash_of(self, path: Path) -> bytes:
        """Read a copy from the beginning to the end, and return what `View.hash` would.

        Raises:
            CorruptionError: it is no sound copy.
        """

    def own_hash_of(self, path: Path) -> bytes:
        """Read a copy, and return what `View.own_hash` would.

        Raises:
            CorruptionError: it is no sound copy.
        """

    def close(self) -> None:
        """Close all partitions."""
