"""Answers fetches of other replicas.

*Invariants.* What is not committed goes only to replicas of the same epoch. An answer
names an epoch only if nothing in it was committed later.
"""

from __future__ import annotations

from braidlog.logstream.core import Core
from braidlog.logstream.reading import runs_of_batches, stored
from braidlog.logstream.storage import StoredBatch
from braidlog.wire.messages import Entries, Fetch

__all__ = ["fetch"]


def fetch(core: Core, peer: int, message: Fetch) -> None:
    """Send what follows; a replica that cannot say it stays silent."""
    if core.stopped:
        return
    same_epoch = core.entered and message.epoch == core.epoch
    whole = same_epoch and core.is_member and not message.committed_only
    end = core.next if whole else core.committed
    begin = message.llsn_begin
    if begin < core.low:
        first = _first_kept(core)
        if begin < first:
            # A trim that this replica was not told of yet could not be passed on.
            if core.config is not None:
                _send(core, peer, message, first, [], core.storage.producers(first))
            return
    limit = min(message.bytes_max, core.limits.fetch_bytes_max)
    # The first batch that is kept may begin before the first record that is.
    kept = max(begin, core.low)
    batches = stored(core, kept, end, limit) if kept < end else []
    _send(core, peer, message, batches[0].llsn if batches else begin, batches)


def _first_kept(core: Core) -> int:
    """Return where the batch begins that has the first record."""
    if core.low == core.committed:
        return core.low
    return core.storage.read(core.low, core.low + 1, 1)[0].llsn


def _send(
    core: Core,
    peer: int,
    message: Fetch,
    begin: int,
    batches: list[StoredBatch],
    producers: bytes = b"",
) -> None:
    end = batches[-1].end if batches else begin
    payload = [batch.data for batch in batches] or [producers] * bool(producers)
    # A copy may hold what epochs committed that it never entered: a replica that is
    # still in its own must not take that for the commits of its tail.
    epoch = core.epoch if core.entered and core.is_member else 0
    answer = Entries(
        core.stream,
        epoch,
        message.number,
        begin,
        tuple(len(data) for data in payload),
        runs_of_batches(core, begin, min(end, core.committed)),
        core.version,
        core.high_watermark,
        core.committed,
        core.next,
        core.trim,
    )
    core.send(peer, answer, payload)
