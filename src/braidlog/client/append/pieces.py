"""Records of one call on their way into the batches of their streams."""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.client.append.rows import Row
from braidlog.client.batches import Columns
from braidlog.types import Headers


class Piece:
    """Records on their way into one batch."""

    __slots__ = ("indexes", "records", "size")

    def __init__(self, records: Columns, indexes: Sequence[int], size: int) -> None:
        """Take records, the numbers with which they were given, and their bytes."""
        self.records = records
        self.indexes = indexes
        self.size = size

    @classmethod
    def plain(cls, values: list[bytes], timestamp: int, size: int) -> Piece:
        """Return records that are values alone; see `Rows.plain`."""
        records = Columns(values, None, timestamp, None)
        return cls(records, range(len(values)), size)


class OpenPiece:
    """A piece that still grows."""

    __slots__ = ("_headers", "_indexes", "_keys", "_timestamps", "_values", "size")

    def __init__(self) -> None:
        """Begin with no records."""
        self._values: list[bytes | None] = []
        self._keys: list[bytes | None] = []
        self._timestamps: list[int] = []
        self._headers: list[Headers] = []
        self._indexes: list[int] = []
        self.size = 0

    def __len__(self) -> int:
        """Return how many records it has."""
        return len(self._indexes)

    def add(self, index: int, row: Row, size: int) -> None:
        """Add a record of `size` bytes, which was given as number `index`."""
        value, key, timestamp, headers = row
        self._values.append(value)
        self._keys.append(key)
        self._timestamps.append(timestamp)
        self._headers.append(headers)
        self._indexes.append(index)
        self.size += size

    def close(self) -> Piece:
        """Return what it has come to."""
        records = Columns(self._values, self._keys, self._timestamps, self._headers)
        return Piece(records, self._indexes, self.size)
