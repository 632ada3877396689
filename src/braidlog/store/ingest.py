"""Append to the one stream of a log, in bulk: the `AsyncIngest` of a directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final

from braidlog import _native
from braidlog.errors import LogError, TrimmedError
from braidlog.store.internals import producer_state, raw_streams

if TYPE_CHECKING:
    import pyarrow as pa

    from braidlog.store.store import Store
    from braidlog.types import Producer

_SEARCH_BYTES: Final = 4 << 20


class StoreIngest:
    """Appends to one log of a directory, with the calls of `AsyncIngest`."""

    def __init__(self, store: Store, name: str) -> None:
        """Bind to a log."""
        self._log = store.log(name)
        self._raw = raw_streams(store)
        self.log = self._log.id
        self.streams = (self._log.describe().stream,)

    def refresh(self) -> range:
        """Return the positions that can be read now."""
        return range(self._log.first, self._log.end)

    def home(self, producer: Producer) -> int:
        """Return the stream of a producer: the only one."""
        return self.streams[0]

    def next_sequence(self, producers: Mapping[int, Producer]) -> dict[int, int | None]:
        """Return what the log expects next; None if a later epoch has been there."""
        return {stream: self._next(who) for stream, who in producers.items()}

    def _next(self, producer: Producer) -> int | None:
        _, epoch = producer_state(self._log, producer.id)
        if epoch is not None and epoch > producer.epoch:
            return None
        return self._log.next_sequence(producer)

    def append_all(
        self, appends: Mapping[int, tuple[Iterable[pa.RecordBatch], Producer, int]]
    ) -> dict[int, LogError | None]:
        """Append to the log; durable on return, up to a batch that was refused."""
        import pyarrow as pa

        outcomes: dict[int, LogError | None] = {}
        for stream, (rows, producer, sequence) in appends.items():
            failures: list[LogError] = []
            found = _noting(rows, failures)
            outcomes[stream] = None
            try:
                for first in found:
                    reader = pa.RecordBatchReader.from_batches(
                        first.schema, chain([first], found)
                    )
                    self._log.append_arrow(reader, producer=producer, sequence=sequence)
            except LogError as error:
                # Through Arrow's stream our errors arrive as its errors.
                outcomes[stream] = failures[0] if failures else error
        return outcomes

    def stored(self, stream: int, producer: Producer, since: int) -> int:
        """Return the sequence behind what a producer stored from a position on.

        Raises:
            TrimmedError: records there were trimmed, so the answer is not known.
        """
        there = self.refresh()
        if since < there.start:
            msg = (
                f"position {since} was trimmed, so it cannot be checked what was "
                "stored there"
            )
            raise TrimmedError(msg, first=there.start)
        following, position = 1, since
        while position < there.stop:
            found = self._raw.read(stream, position, there.stop, _SEARCH_BYTES)
            if not found:
                break
            for first, _, data in found:
                count, _, who, epoch, sequence, *_ = _native.batch_header(data)
                if (who, epoch) == (producer.id, producer.epoch):
                    following = max(following, sequence + count)
                position = max(position, first + count)
        return following


def _noting(
    rows: Iterable[pa.RecordBatch], failures: list[LogError]
) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows
    except LogError as error:
        failures.append(error)
        raise
