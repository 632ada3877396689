"""Reads a log of a cluster: each task from the storage nodes themselves.

Theory of operation: a look is linearizable and shows the committed end of every stream;
replicas say at which LLSNs positions lie, and how large records are. What a task gets
is a range of LLSNs of one stream, or of positions over all of them; what is in it is
the same on all replicas and never changes, so the task reads it from any of them, and
from another one if that dies. Tasks begin with different replicas, so that all nodes
take part.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from braidlog.client.blocking import Client, ClusterLog, Scan
from braidlog.sources.directory import bounded
from braidlog.sources.plan import Extent
from braidlog.sources.source import ALL_STREAMS, LogSource, Look

if TYPE_CHECKING:
    import pyarrow as pa

    from braidlog._native import Record
    from braidlog.archive import Archive

_KNOWN_FOR: Final = 1 << 16
"""Records behind a sample that are taken as large as those in it, when so few are asked
for: a batch of a streaming query need not look at all streams each time."""


class _Look(Look):
    """Cuts are asked for once."""

    def __init__(self, scan: Scan, sampled: dict[int, tuple[int, int]]) -> None:
        """Pin the ends; ``sampled`` is (LLSN, bytes of a record) by stream."""
        self.id = scan.log
        self.first, self.end = scan.positions.start, scan.positions.stop
        self._scan = scan
        self._sampled = sampled
        self._cuts: dict[int, dict[int, int]] = {}

    def cut(self, position: int) -> dict[int, int]:
        if position not in self._cuts:
            self._cuts[position] = self._scan.cut(position)
        return self._cuts[position]

    def extents(
        self, begin: Mapping[int, int], end: Mapping[int, int]
    ) -> dict[int, list[Extent]]:
        asked = {
            stream: (begin.get(stream, 1), stop)
            for stream, stop in end.items()
            if begin.get(stream, 1) < stop
        }
        unknown = {s: each for s, each in asked.items() if not self._knows(s, *each)}
        for stream, size in self._scan.sizes(unknown).items():
            low, high = unknown[stream]
            self._sampled[stream] = low, max(1, size // (high - low))
        return {
            stream: [Extent(low, high, self._sampled[stream][1] * (high - low))]
            for stream, (low, high) in asked.items()
        }

    def _knows(self, stream: int, begin: int, end: int) -> bool:
        sampled, _ = self._sampled.get(stream, (-_KNOWN_FOR, 0))
        return sampled <= begin <= end <= sampled + _KNOWN_FOR


class ClusterSource(LogSource):
    """A log of a cluster."""

    def __init__(self, client: Client, log: str, *, own: bool = False) -> None:
        """Read a log by its name; the client remains the caller's unless ``own``.

        Raises:
            ConnectionLostError: of an own client every address refuses connections.
            DeadlineError: no node answered.
            UnauthorizedError: the token may not read.
        """
        self.name = log
        self._client = client
        self._stack = ExitStack()
        if own:
            self._stack.enter_context(client)
        self._sampled: dict[int, tuple[int, int]] = {}
        self._scanned: Scan | None = None
        self._bound: ClusterLog | None = None

    def _scan(self) -> Scan:
        if self._scanned is None:
            self._scanned = self._client.scan(self.name)
        return self._scanned

    def _log(self) -> ClusterLog:
        if self._bound is None:
            self._bound = self._client.log(self.name)
        return self._bound

    @property
    def id(self) -> str:
        """Random identity of the log, when it was looked at last."""
        return self._scan().log

    def look(self) -> Look:
        """Return the log as it is now; everything acknowledged before is in it."""
        self._scanned = None
        return _Look(self._scan(), self._sampled)

    def batches(
        self,
        begin: int,
        end: int,
        *,
        columns: Sequence[str],
        stream: int = ALL_STREAMS,
        since: int | None = None,
        until: int | None = None,
        turn: int = 0,
    ) -> Iterator[pa.RecordBatch]:
        """Yield a range, from any replica."""
        scan, names = self._scan(), list(columns)
        if stream == ALL_STREAMS:
            return scan.merged(
                begin, end, columns=names, since=since, until=until, turn=turn
            )
        return scan.batches(
            stream, begin, end, columns=names, since=since, until=until, turn=turn
        )

    def records(self, begin: int | None, end: int | None = None) -> Iterator[Record]:
        """Yield the records that are committed now."""
        log = self._log()
        log.refresh()
        return log.read(*bounded(begin, end, log.end))

    def archive(self, location: str | os.PathLike[str] | None) -> Archive:
        """Open the archive at a location; None is the recorded one."""
        return self._log().archive(location)

    def close(self) -> None:
        """Let go of the cluster. Idempotent."""
        self._stack.close()
