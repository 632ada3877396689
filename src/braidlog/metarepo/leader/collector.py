"""What the leader knows of the replicas, and what can be committed.

*Theory of operation.* Nodes report what their replicas hold; the latest report counts.
None of this is replicated: a new leader hears it all again within a heartbeat. The cut
takes for each stream the minimum of what its replicas hold durably in the current
epoch. While cuts are on their way through Raft, the next is computed from what the
last one will leave; if one is refused, nothing is proposed until all have come back.
All of that happens with every append, so it is in the core (`lane::leader`), which
makes a cut as the bytes of its call. Here is what is asked seldom.

*Invariants.* A replica counts only if it has entered the epoch, so a cut never takes
what one of them does not hold. Reports of one start of a node only go forward.
"""

from __future__ import annotations

from braidlog._native import Leader, NodeReport
from braidlog.metarepo.machine.state import State

__all__ = ["Collector", "NodeReport"]


class Collector(Leader):
    """Latest reports, and cuts in flight."""

    def copying(self, state: State) -> dict[int, int]:
        """Return how many committed records nodes have to copy, if any."""
        lacking: dict[int, int] = {}
        for stream in state.streams.values():
            for node in (*stream.replicas, *stream.learners):
                report = self.report(node, stream.stream)
                if report is not None and report.end < stream.committed:
                    lacks = stream.committed - report.end
                    lacking[node] = lacking.get(node, 0) + lacks
        return lacking
