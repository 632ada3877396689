"""What is in rows that come one batch after the other, and whether any are missing.

Pure.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from braidlog.archive.layout import StreamRange
from braidlog.errors import CorruptionError


class Tally:
    """Checks what is written, and says what it was."""

    def __init__(self, begin: int) -> None:
        """Expect the first row at a position."""
        self.position = begin
        self.times: tuple[int, int] | None = None
        self._streams: dict[int, tuple[int, int]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take up the next rows.

        Raises:
            CorruptionError: they do not go on where the others ended.
        """
        positions = batch["position"]
        if _gap(positions, self.position):
            raise CorruptionError(
                f"positions from {positions[0]} on do not continue without a gap "
                f"at {self.position}"
            )
        self.position += batch.num_rows
        times = pc.min_max(batch["timestamp"].cast(pa.int64())).as_py()
        low, high = self.times or (times["min"], times["max"])
        self.times = min(low, times["min"]), max(high, times["max"])
        for stream in pc.unique(batch["stream"]).to_pylist():
            self._follow(stream, batch)

    def _follow(self, stream: int, batch: pa.RecordBatch) -> None:
        llsns = batch["llsn"].filter(pc.equal(batch["stream"], stream))
        begin, end = self._streams.get(stream, (llsns[0].as_py(),) * 2)
        if _gap(llsns, end):
            raise CorruptionError(
                f"LLSNs from {llsns[0]} on of stream {stream} do not continue "
                f"without a gap at {end}"
            )
        self._streams[stream] = begin, end + len(llsns)

    def ranges(self) -> tuple[StreamRange, ...]:
        """Return which LLSNs came, by stream."""
        return tuple(StreamRange(s, *r) for s, r in sorted(self._streams.items()))


def _gap(numbers: pa.Array, begin: int) -> bool:
    """Return whether numbers are anything but ``begin``, ``begin + 1``, ..."""
    count = len(numbers)
    if numbers[0].as_py() != begin or numbers[-1].as_py() != begin + count - 1:
        return True
    steps = pc.subtract(numbers.slice(1), numbers.slice(0, count - 1))
    return bool(pc.any(pc.not_equal(steps, 1)).as_py())
