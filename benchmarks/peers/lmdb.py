"""LMDB: a sync per transaction (its default), keys appended in order."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import lmdb
import pyarrow as pa

_FETCH = 1000
_MAP_BYTES = 64 << 30


def _key(position: int) -> bytes:
    return position.to_bytes(8, "big")


class LmdbPeer:
    """Values under big-endian positions."""

    name: ClassVar[str] = "lmdb"
    note: ClassVar[str] = "sync=True, append; lookups inside one read transaction"

    def __init__(self, directory: Path) -> None:
        """Open or create the environment."""
        self._env = lmdb.open(str(directory / "log.lmdb"), map_size=_MAP_BYTES)
        self._reader: Any = None
        self._next = self.last() + 1

    def append_one(self, value: bytes) -> None:
        """Put in a transaction of its own."""
        self._end_read()
        with self._env.begin(write=True) as transaction:
            transaction.put(_key(self._next), value, append=True)
        self._next += 1

    def append_group(self, values: Sequence[bytes]) -> None:
        """Put in one transaction."""
        self._end_read()
        items = [(_key(at), value) for at, value in enumerate(values, self._next)]
        with self._env.begin(write=True) as transaction:
            transaction.cursor().putmulti(items, append=True)
        self._next += len(values)

    def scan(self) -> Iterator[bytes]:
        """Walk a cursor; values are copied into bytes."""
        with self._env.begin() as transaction:
            yield from transaction.cursor().iternext(keys=False, values=True)

    def pairs(self) -> Iterator[tuple[int, bytes]]:
        """Walk a cursor, decoding keys."""
        with self._env.begin() as transaction:
            for key, value in transaction.cursor():
                yield int.from_bytes(key, "big"), value

    def scan_arrow(self) -> Iterator[pa.Array]:
        """Make groups into arrays; copies are faster here than buffers of the map."""
        values = self.scan()
        while group := list(islice(values, _FETCH)):
            yield pa.array(group, pa.binary())

    def get(self, position: int) -> bytes:
        """Get by key in a read transaction that stays open until the next write."""
        if self._reader is None:
            self._reader = self._env.begin()
        found: bytes = self._reader.get(_key(position))
        return found

    def _end_read(self) -> None:
        if self._reader is not None:
            self._reader.abort()
            self._reader = None

    def last(self) -> int:
        """Step to the last key."""
        with self._env.begin() as transaction:
            cursor = transaction.cursor()
            return int.from_bytes(cursor.key(), "big") if cursor.last() else 0

    def close(self) -> None:
        """Close the environment."""
        self._end_read()
        self._env.close()
