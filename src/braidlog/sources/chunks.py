"""Bring record batches to the size that Spark likes.

Theory of operation: Spark's copy into rows is fastest for batches of 0.5-2 MB. Larger
ones are sliced, which copies nothing; smaller ones (a log written record by record) are
gathered, which copies each byte once.

Invariants: rows keep their order; no empty batch is yielded; at most one target's worth
of bytes is held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

CHUNK_BYTES: Final = 1 << 20


def rechunk(
    batches: Iterable[pa.RecordBatch], chunk_bytes: int = CHUNK_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of about ``chunk_bytes``."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for piece in (piece for batch in batches for piece in _slices(batch, chunk_bytes)):
        if held and held_bytes + piece.nbytes > chunk_bytes:
            yield _gather(held)
            held, held_bytes = [], 0
        held.append(piece)
        held_bytes += piece.nbytes
    if held:
        yield _gather(held)


def _slices(batch: pa.RecordBatch, chunk_bytes: int) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    pieces = max(1, -(-batch.nbytes // chunk_bytes))
    rows = max(1, -(-batch.num_rows // pieces))
    for begin in range(0, batch.num_rows, rows):
        yield batch.slice(begin, rows)


def _gather(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
