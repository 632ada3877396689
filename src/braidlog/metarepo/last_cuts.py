"""The last commits of a replica whose node was killed before it wrote them.

*Theory of operation.* A record is acknowledged when all replicas have it on their disks
and the repository has logged the cut that commits it. The commit frames of the replicas
go with their next sync, so a cluster that dies at once may have the last ones nowhere.
The cuts are in the log of the repository, which was synced before anybody was answered.

*Invariants.* A run is taken only in the epoch that the replica entered last: what it
has behind its commits was stored in that one. Commits go on where the disk ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from braidlog.errors import CorruptionError
from braidlog.logstream.storage import CommitContext, StoredStream
from braidlog.wire.messages import LogCut


def last_commits(
    stored: StoredStream, stream: int, cuts: Iterable[LogCut]
) -> Iterator[CommitContext]:
    """Return the commits of `cuts`, rising, that a replica of `stream` lacks.

    A replica that has only a part of a run gets the commit of that part.

    Raises:
        CorruptionError: the cuts and the disk give one position twice.
    """
    committed, position = stored.committed, stored.context.glsn_end
    for cut in cuts:
        run = next((run for run in cut.runs if run.stream == stream), None)
        if run is None or run.epoch != stored.epoch:
            continue
        end = min(run.llsn_begin + run.length, stored.next)
        if end <= committed:
            continue
        if run.llsn_begin > committed:
            # The cut before is forgotten: all replicas have it on their disks but this.
            return
        begin = run.glsn_begin + committed - run.llsn_begin
        if begin < position:
            raise CorruptionError(
                f"cut {cut.version} gives record {committed} of stream {stream} the"
                f" position {begin}, which is another record's on the disk"
            )
        length = end - committed
        yield CommitContext(cut.version, begin, committed, length, cut.high_watermark)
        committed, position = end, begin + length
