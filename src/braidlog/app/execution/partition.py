"""What the executor keeps of one partition between two commits."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

from braidlog.app.determinism.codec import decode
from braidlog.app.errors import DivergedError
from braidlog.app.execution.state import PartitionState, Saved, StoredResult


class PendingEffects(NamedTuple):
    """What a command on several partitions did, kept for those that may lack it."""

    now: int
    changes: dict[int, list[Any]]
    """By partition; empty if the command did not end well."""
    kept: StoredResult | None
    stored: bytes
    """The same as it is stored."""


class Partition:
    """One partition: its state, its progress, and the calls that it remembers.

    Invariant: ``kept`` has the same calls as the stored results and those in
    ``_results`` together, in the order of positions, and never more than its limit.
    """

    def __init__(self, number: int, state: PartitionState) -> None:
        """Load what the last commit stored."""
        self.number = number
        self.state = state
        self.progress = state.load()
        self.stored = state.kept()
        # Ordered: a plain dict looks ever longer for its first key.
        self.kept = OrderedDict((row[1], row[0]) for row in self.stored)
        self.open = False
        # Whether others may commit what is open only when this one is durable.
        self.first = False
        self._results: dict[int, StoredResult] = {}
        self._waiting: list[tuple[int, bytes]] = []

    @property
    def stopped(self) -> DivergedError | None:
        """Why nothing is executed here any more, if so."""
        if self.progress.stopped is None:
            return None
        position, procedure, component, _ = self.progress.stopped
        msg = (
            f"partition {self.number}: the command at {position} ({procedure}) had a"
            f" different outcome here; the first difference is in {component}"
        )
        return DivergedError(
            msg,
            position=position,
            procedure=procedure,
            component=component,
            partitions=(self.number,),
        )

    def begin(self) -> None:
        """Make sure that a transaction is open."""
        if not self.open:
            self.state.begin()
            self.open = True

    def find(self, call: bytes) -> StoredResult | None:
        """Return what a call gave, if it is remembered."""
        position = self.kept.get(call)
        if position is None:
            return None
        return self._results.get(position) or self.state.result(position)

    def remember(self, kept: StoredResult, limit: int) -> None:
        """Keep the result of a call, and forget the oldest beyond ``limit``."""
        self.kept[kept.call] = kept.position
        self._results[kept.position] = kept
        while len(self.kept) > limit:
            _, self.progress.forgotten = self.kept.popitem(last=False)
            self._results.pop(self.progress.forgotten, None)

    def touch(self, position: int, now: int) -> None:
        """Note that a command was executed here."""
        self.progress.last = position
        self.progress.time = now

    def store_waiting(self, position: int, stored: bytes) -> None:
        """Keep what a command did everywhere until that is durable there too."""
        self._waiting.append((position, stored))

    def waiting(self, position: int) -> PendingEffects | None:
        """Return what a command did on all its partitions, if that is kept here."""
        stored = self.state.waiting(position)
        if stored is None:
            return None
        # Older states lack the result, and have this on the first partition only.
        now, changes, *kept = decode(stored)
        return PendingEffects(
            now, dict(changes), StoredResult(*kept[0]) if kept else None, stored
        )

    def stop(self, position: int, procedure: str, component: str, at: int) -> None:
        """Execute nothing here beyond ``at``, also after a restart."""
        self.begin()
        if self.progress.stopped is None:
            self.progress.stopped = [position, procedure, component, at]

    def commit(self, position: int, settled: int) -> None:
        """Commit everything up to ``position``."""
        self.begin()
        stopped = self.progress.stopped
        self.progress.applied = position if stopped is None else stopped[3]
        self.state.commit(
            Saved(self.progress, [*self._results.values()], self._waiting, settled)
        )
        self.open = False
        self._results.clear()
        self._waiting.clear()

    def rollback(self) -> None:
        """Take back what was not committed; the book is of no use afterwards."""
        if self.open:
            self.state.rollback()
            self.open = False
