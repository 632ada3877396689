"""The one thing a replica has to know about a batch: how many records it has.

    0   u32  magic "BRB1"
    8   u32  record count

All else about it, its checksums too, is verified by the storage that takes it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from braidlog.errors import RemoteProtocolError
from braidlog.logstream.storage import Batch

__all__ = ["number", "record_count"]

MAGIC: Final = b"BRB1"
_HEAD: Final = struct.Struct("<4s4xI")


def record_count(batch: Batch) -> int:
    """Return how many records an encoded batch has.

    Raises:
        RemoteProtocolError: it is not a batch.
    """
    if len(batch) < _HEAD.size:
        msg = f"a batch of {len(batch)} bytes has no head"
        raise RemoteProtocolError(msg)
    magic, count = _HEAD.unpack_from(batch)
    if magic != MAGIC or count == 0:
        msg = f"{magic!r} with {count} records does not begin a batch"
        raise RemoteProtocolError(msg)
    return int(count)


def number(
    llsn: int, sizes: Sequence[int], batches: Sequence[Batch]
) -> list[tuple[int, int, Batch]]:
    """Return (first LLSN, LLSN behind it, batch) of consecutive batches.

    Raises:
        RemoteProtocolError: they are not what the message says.
    """
    if [len(batch) for batch in batches] != list(sizes):
        msg = f"batches of {[len(b) for b in batches]} bytes are not {list(sizes)}"
        raise RemoteProtocolError(msg)
    numbered = []
    for batch in batches:
        end = llsn + record_count(batch)
        numbered.append((llsn, end, batch))
        llsn = end
    return numbered
