"""A stream that this node is primary of, as retention looks at it."""

from __future__ import annotations

from braidlog.errors import NotReadyError
from braidlog.logstream.replica import Replica
from braidlog.node.replication.replica_store import ReplicaStore


class Primary:
    """A stream that this node is primary of, as retention looks at it."""

    def __init__(
        self, stream: int, replica: Replica, storage: ReplicaStore, options: bytes
    ) -> None:
        """Look at a replica within one turn of the loop."""
        self.stream = stream
        self.options = options
        self._replica = replica
        self._storage = storage

    def young(self, timestamp: int) -> int:
        """Return the first GLSN that is not older; where the log ends if all are."""
        view = self._storage.view()
        found = view.find(timestamp)
        if found is not None:
            return self._glsn(found)
        first, end, *_ = view.range()
        if end == self._replica.committed:
            return self._replica.high_watermark + 1
        # Readers do not see all of it yet: only what they see is known to be old.
        return self._glsn(end - 1) + 1 if end > first else 0

    def sizes(self, points_max: int) -> tuple[tuple[int, int], ...]:
        """Return (GLSN, bytes from there on) at segments, GLSNs rising."""
        view = self._storage.view()
        first, end, *_ = view.range()
        held: dict[int, int] = {}
        total = 0
        rows = ((begin, size) for _, _, begin, _, size, *_ in view.segments())
        for begin, size in sorted(rows, reverse=True):
            total += size
            if first <= begin < end:
                held[self._glsn(begin)] = total
        points = sorted(held.items())
        step = -(-len(points) // points_max) or 1
        return tuple(points[::step])

    def _glsn(self, llsn: int) -> int:
        runs = self._storage.runs(llsn, llsn + 1)
        if not runs:
            raise NotReadyError(
                f"LLSN {llsn} of stream {self.stream} has no position in the log yet"
            )
        return runs[0].glsn_begin
