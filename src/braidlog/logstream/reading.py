"""Reads what is committed.

*Invariants.* Nothing that is not committed is read. A position that was trimmed says
so, and is never just empty.
"""

from __future__ import annotations

from braidlog.errors import CorruptionError, NotReadyError, TrimmedError
from braidlog.logstream.core import Core
from braidlog.logstream.storage import Batch, StoredBatch
from braidlog.wire.messages import Read, Records, Run

__all__ = ["read", "runs_of_batches", "stored"]


def read(
    core: Core, message: Read, *, expired: bool
) -> tuple[Records, tuple[Batch, ...]] | None:
    """Return committed batches; None: there is nothing yet, and time to wait.

    Raises:
        NotReadyError: this replica cannot say.
        TrimmedError: the position was trimmed.
    """
    if core.stopped:
        raise NotReadyError(
            f"the replica of stream {core.stream} on this node does not serve "
            f"reads now (state {core.state.name.lower()})"
        )
    begin = _first(core, message)
    if begin < core.committed:
        limit = max(message.bytes_max, 1)
        return _records(core, begin, stored(core, begin, core.committed, limit))
    # By GLSN, the log going on without this stream is news to a merge of streams.
    news = message.by_glsn and message.begin <= core.high_watermark
    return _records(core, begin, []) if news or expired else None


def stored(core: Core, begin: int, end: int, bytes_max: int) -> list[StoredBatch]:
    """Return stored batches from `begin` on, no further than to a damaged one.

    Two replicas may be damaged in different records: each serves what it can.

    Raises:
        CorruptionError: the first one is damaged.
    """
    while True:
        try:
            return core.storage.read(begin, end, bytes_max)
        except CorruptionError as error:
            if bytes_max == 1:
                raise
            core.met = error
            bytes_max = max(1, bytes_max // 8)


def _first(core: Core, message: Read) -> int:
    if not message.by_glsn:
        if message.begin < core.low:
            msg = f"stream {core.stream} was trimmed: it begins at LLSN {core.low}"
            raise TrimmedError(msg, first=core.low)
        return message.begin
    if message.begin < core.trim:
        msg = f"the log was trimmed: it begins at position {core.trim}"
        raise TrimmedError(msg, first=core.trim)
    if core.config is None and core.low > 1:
        # Until it is told how far the log is trimmed, it cannot tell trimmed records
        # from those of other streams.
        raise NotReadyError(
            f"the replica of stream {core.stream} on this node does not serve "
            f"reads now (state {core.state.name.lower()})"
        )
    return core.storage.llsn_of(message.begin)


def _records(
    core: Core, begin: int, batches: list[StoredBatch]
) -> tuple[Records, tuple[Batch, ...]]:
    end = batches[-1].end if batches else begin
    complete = core.high_watermark
    if end < core.committed:
        complete = core.storage.runs(end, end + 1)[0].glsn_begin - 1
    answer = Records(
        core.stream,
        runs_of_batches(core, batches[0].llsn, end) if batches else (),
        tuple(batch.llsn for batch in batches),
        tuple(len(batch.data) for batch in batches),
        complete,
        core.low,
        end,
    )
    return answer, tuple(batch.data for batch in batches)


def runs_of_batches(core: Core, begin: int, end: int) -> tuple[Run, ...]:
    """Return the runs of whole batches, of which a trim may have gone through one."""
    if begin >= end:
        return ()
    runs = core.storage.runs(begin, end)
    if runs and begin < runs[0].llsn_begin <= core.low:
        # The storage forgot what is trimmed; a batch is in one run as a whole.
        cut = runs[0].llsn_begin - begin
        runs[0] = Run(begin, runs[0].glsn_begin - cut, runs[0].length + cut)
    return tuple(runs)
