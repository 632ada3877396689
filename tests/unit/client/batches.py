"""Record batches that anybody can look into, in place of those of the core."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from braidlog import Producer, Record
from braidlog._native import Entry
from braidlog.client.arrow import columns_of, log_schema
from braidlog.client.batches import Columns, Encoded


class FakeBatch:
    """A batch as the fake codec writes it."""

    def __init__(self, data: Any) -> None:
        self.fields = msgspec.msgpack.decode(bytes(data))
        values, keys, timestamps, headers, producer, sequence = self.fields
        self.values: list[bytes] = values
        self.keys: list[bytes | None] = keys
        self.times: list[int] = timestamps
        self.headers = [tuple((n, d) for n, d in named) for named in headers]
        self.producer: tuple[int, int] = tuple(producer)
        self.sequence: int = sequence

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def timestamps(self) -> tuple[int, int]:
        return min(self.times), max(self.times)

    def records(self, position: int, begin: int, end: int) -> Iterator[Record]:
        columns = zip(self.times, self.keys, self.values, self.headers, strict=True)
        rows = list(enumerate(columns, position))
        for at, (timestamp, key, value, headers) in rows[begin:end]:
            yield Record(at, timestamp, key, value, headers)

    def arrow(
        self, position: int, begin: int, end: int, names: list[str] | None
    ) -> Any:
        positions = list(range(position, position + self.count))
        columns = [
            positions,
            self.times,
            self.keys,
            self.values,
            self.headers,
        ]
        whole = pa.record_batch(columns, schema=log_schema())
        part = whole.slice(begin, end - begin)
        return part if names is None else part.select(names)


def _spread(piece: Columns | Entry[Any]) -> tuple[Sequence[Any], ...]:
    """Return the columns with an element for each record."""
    columns = piece.records if isinstance(piece, Entry) else piece
    values, keys, timestamps, headers = columns
    count = len(values)
    return (
        values,
        [None] * count if keys is None else keys,
        [timestamps] * count if isinstance(timestamps, int) else timestamps,
        [()] * count if headers is None else headers,
    )


class FakeCodec:
    """Batches as MessagePack."""

    def encode(
        self,
        pieces: Sequence[Columns | Entry[Any]],
        producer: Producer,
        sequence: int,
        compression: str,
    ) -> bytes:
        who = (producer.id, producer.epoch)
        columns = zip(*(_spread(piece) for piece in pieces), strict=True)
        whole = [[each for part in parts for each in part] for parts in columns]
        return msgspec.msgpack.encode((*whole, who, sequence))

    def encode_arrow(
        self,
        data: Any,
        producer: Producer,
        sequence: int,
        compression: str,
        batch_bytes: int,
    ) -> list[Encoded]:
        values, keys, times, headers = columns_of(data)
        encoded = []
        for row, value in enumerate(values):
            named = tuple(headers[row] or ())
            piece = Columns([value], [keys[row]], [times[row] or 0], [named])
            batch = self.encode([piece], producer, sequence + row, compression)
            encoded.append(Encoded(batch, 1))
        return encoded

    def origin(self, data: Any) -> tuple[Producer, int]:
        batch = FakeBatch(data)
        return Producer(*batch.producer), batch.sequence

    def open(self, data: Any) -> FakeBatch:
        return FakeBatch(data)
