"""How the streams stand, as one look of the leader at its reports sees them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from braidlog.logstream.states import ReplicaState
from braidlog.metarepo.leader.collector import Collector
from braidlog.metarepo.machine.state import State, StreamState
from braidlog.wire.messages import StreamReport

BROKEN: Final = frozenset({ReplicaState.INVALID, ReplicaState.FAILED})


@dataclass(frozen=True, slots=True)
class StreamView:
    """A stream with what is known of its replicas."""

    stream: StreamState
    good: tuple[int, ...]
    entered: tuple[int, ...]
    back: tuple[int, ...]
    """Restarted replicas on live nodes, which need a new epoch."""
    late: tuple[int, ...]
    """Replicas on live nodes that did not enter the epoch in time."""
    unknown: tuple[int, ...]

    @property
    def bad(self) -> bool:
        """Tell whether a replica has to go."""
        return len(self.good) + len(self.unknown) < len(self.stream.replicas)


class Survey:
    """What is known of all streams at one time."""

    def __init__(
        self,
        state: State,
        collector: Collector,
        dead: Callable[[int], bool],
        now: float,
        enter_timeout: float,
        *,
        slow: Collection[int] = (),
        unfit: Collection[int] = (),
    ) -> None:
        """Look now; a replica has ``enter_timeout`` seconds to enter an epoch.

        Nodes that are ``slow`` leave where they can, the ``unfit`` join nowhere.
        """
        self.state = state
        self.collector = collector
        self.dead = {node for node in state.nodes if dead(node)}
        self.slow = frozenset(slow) - self.dead
        self.unfit = self.slow.union(unfit)
        self._now = now
        self._enter_timeout = enter_timeout

    def start(self, node: int) -> int:
        """Return the incarnation that a node reports, 0 if it has said nothing."""
        known = self.collector.node(node)
        return known.incarnation if known is not None else 0

    def report(self, node: int, stream: StreamState) -> StreamReport | None:
        """Return what a node reports of a stream, None if it has not."""
        return self.collector.report(node, stream.stream)

    def view(self, stream: StreamState, since: float) -> StreamView:
        """Sort the replicas of a stream."""
        entered = self.collector.entered(stream)
        late = self._now - since >= self._enter_timeout
        good: list[int] = []
        back: list[int] = []
        overdue: list[int] = []
        unknown: list[int] = []
        for node in stream.replicas:
            report = self.report(node, stream)
            if node in self.dead:
                continue  # Bad: it is in none of these.
            if report is None:
                # A new leader has heard of nobody yet. Who lives reports at once.
                (overdue if late else unknown).append(node)
            elif report.state == ReplicaState.STARTING and report.epoch >= stream.epoch:
                # It forgot what it did behind the last sync, and serves in no epoch
                # that it was in before.
                back.append(node)
            elif report.state not in BROKEN:
                # It is on its way into the epoch, for which it has a time.
                (good if node in entered or not late else overdue).append(node)
        return StreamView(
            stream, tuple(good), entered, tuple(back), tuple(overdue), tuple(unknown)
        )

    def is_leaving(self, stream: StreamState, node: int) -> bool:
        """Tell whether a replica has to go when another one has everything."""
        known = self.state.nodes.get(node)
        moved = stream.move is not None and stream.move[0] == node
        drained = moved or known is None or known.draining
        # Nobody can learn from the only one what it has lost, and nothing is measured
        # of one that has no others beside it.
        worse = node in self.slow or self.is_damaged(stream, node)
        return drained or (len(stream.replicas) > 1 and worse)

    def staying(self, stream: StreamState) -> list[int]:
        """Return the replicas that do not leave."""
        return [node for node in stream.replicas if not self.is_leaving(stream, node)]

    def is_damaged(self, stream: StreamState, node: int) -> bool:
        """Tell whether a replica reports damage."""
        report = self.report(node, stream)
        return report is not None and report.damaged

    def lacks_listing(self, stream: StreamState) -> bool:
        """Tell whether a dead replica is not yet listed as failed."""
        faults = self.state.faults
        gone = self.dead & set(stream.replicas)
        return faults is not None and not gone <= set(faults.failed)
