"""Whether what a disk holds can be a replica.

A commit context ends exactly where what is committed ends, and nothing before the first
commit is committed. Everything else means that commits or records were lost, or are of
another stream: the replica is invalid, says so, and serves nothing.
"""

from __future__ import annotations

from braidlog.logstream.storage import CommitContext, StoredStream

__all__ = ["defect"]


def defect(stored: StoredStream) -> str:
    """Return what is wrong, or nothing."""
    context = stored.context
    if not 1 <= stored.low <= stored.committed <= stored.next:
        return f"{stored.low}, {stored.committed}, {stored.next} are out of order"
    if context == CommitContext():
        return "" if stored.committed == 1 else "records are committed by no commit"
    if context.llsn_end != stored.committed:
        return f"the last commit ends at {context.llsn_end}, not {stored.committed}"
    if context.high_watermark < context.glsn_end - 1 and context.length:
        return "the last commit ends behind the log"
    return ""
