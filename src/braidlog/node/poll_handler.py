"""What the poll leaves to Python at the end of a turn that it ends itself.

See `braidlog.serving.poll`. Each call here does what `ClusterNode` does in its own
turns, and asks for one of those where something may follow that is not in the lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from braidlog.node.flush_scheduler import FlushScheduler
from braidlog.node.input_guard import InputGuard
from braidlog.node.leader.reporting import Reporting
from braidlog.node.leader.sync_times import SyncTimes
from braidlog.node.replication.replicas import Replicas
from braidlog.node.syncer import ThreadSyncer


@dataclass(frozen=True, slots=True)
class PollHandler:
    """The parts of a node that have something to do when it is not the lane's."""

    replicas: Replicas
    reporting: Reporting
    sync_times: SyncTimes
    syncer: ThreadSyncer
    flushes: FlushScheduler
    guard: InputGuard
    now: Callable[[], float]
    stored_by_group: Callable[[int], None]

    def bear(self, error: Exception) -> None:
        """Judge an error."""
        self.guard.bear(error)
        self.flushes.soon()

    def soon(self) -> None:
        """Go on with a turn of Python."""
        self.flushes.soon()

    def placed(
        self,
        stream: int,
        llsn: int,
        batches: Sequence[bytes],
        repeats: Sequence[tuple[Any, int, int]],
        left: Sequence[int],
    ) -> None:
        """Go on after appends were placed of which some are repeats, or not sent."""
        self.guard.run(self.replicas.placed, stream, llsn, batches, repeats, left)

    def turned(self, ended: Any) -> None:
        """Carry out what is left of a turn of the lane."""
        now = self.now()
        if reports := self.replicas.ended(ended, now):
            self.reporting.durable(tuple(reports), now)

    def measured(self, came: Iterable[tuple[float, int]]) -> None:
        """Note when appends came that were answered."""
        self.replicas.measure(came)

    def advanced(self, streams: Sequence[int]) -> None:
        """Look at reads that wait for streams."""
        self.replicas.wake(streams, self.now())

    def wrote(self, ticket: int, hurried: int) -> bool:
        """Note what was written; return whether it was synced here."""
        self.sync_times.wrote(ticket, hurried)
        return self.syncer.sync_if_due()

    def synced(self, durable: int) -> None:
        """Note what is durable."""
        self.sync_times.synced(durable)

    def stored(self, number: int) -> None:
        """Tell the Raft group what became durable."""
        self.guard.run(self.stored_by_group, number)
        self.flushes.soon()
