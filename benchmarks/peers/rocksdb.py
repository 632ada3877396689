"""RocksDB through rocksdict: every write synced to its WAL, raw byte keys."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from rocksdict import Options, Rdict, WriteBatch, WriteOptions

_FETCH = 1000


def _key(position: int) -> bytes:
    return position.to_bytes(8, "big")


class RocksdbPeer:
    """Values under big-endian positions."""

    name: ClassVar[str] = "rocksdb"
    note: ClassVar[str] = "WAL sync=true, raw mode"

    def __init__(self, directory: Path) -> None:
        """Open or create the database."""
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        self._db: Any = Rdict(str(directory / "log.rocks"), options=options)
        synced = WriteOptions()
        synced.sync = True
        self._db.set_write_options(synced)
        self._synced = synced
        self._next = self.last() + 1

    def append_one(self, value: bytes) -> None:
        """Put with a synced WAL."""
        position = self._next
        self._next += 1
        self._db.put(_key(position), value)

    def append_group(self, values: Sequence[bytes]) -> None:
        """Write one batch with a synced WAL."""
        batch = WriteBatch(raw_mode=True)
        for position, value in enumerate(values, self._next):
            batch.put(_key(position), value)
        self._db.write(batch, self._synced)
        self._next += len(values)

    def scan(self) -> Iterator[bytes]:
        """Iterate in key order."""
        return iter(self._db.values())

    def pairs(self) -> Iterator[tuple[int, bytes]]:
        """Iterate in key order, decoding keys."""
        for key, value in self._db.items():
            yield int.from_bytes(key, "big"), value

    def scan_arrow(self) -> Iterator[pa.Array]:
        """Iterate in key order; there is no Arrow export, so groups become arrays."""
        values = self.scan()
        while group := list(islice(values, _FETCH)):
            yield pa.array(group, pa.binary())

    def get(self, position: int) -> bytes:
        """Get by key."""
        found: bytes = self._db.get(_key(position))
        return found

    def last(self) -> int:
        """Seek to the last key."""
        for key in self._db.keys(backwards=True):
            return int.from_bytes(key, "big")
        return 0

    def close(self) -> None:
        """Close the database."""
        self._db.close()
