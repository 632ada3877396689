"""Ours and the peers as stores of keys and values, each through its Python API.

A write is durable when it returns. For ours that is the append to the log; the table
follows, and ``settle`` waits until it has.
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import lmdb
import pyarrow as pa
from rocksdict import DBCompressionType, Options, Rdict, WriteBatch, WriteOptions

import braidlog

_MAP_BYTES = 64 << 30


class KeyValue(Protocol):
    """A store of the newest value of each key."""

    name: ClassVar[str]

    def __init__(self, directory: Path) -> None:
        """Open the store in `directory`, creating it if it is not there."""
        ...

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch of keys and values; durable on return."""
        ...

    def settle(self) -> None:
        """Return when what was written can be read and is merged."""
        ...

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""
        ...

    def get_many(self, keys: Sequence[bytes]) -> int:
        """Look keys up in one call; return how many were found."""
        ...

    def scan(self) -> int:
        """Read all keys and values in order; return their bytes."""
        ...

    def close(self) -> None:
        """Close the store."""
        ...


class Ours:
    """A table over a log of a directory."""

    name: ClassVar[str] = "braidlog"

    def __init__(self, directory: Path) -> None:
        """Open or create the log and its table."""
        self.store: Any = braidlog.open(directory / "store")
        self.log: Any = self.store.create_log("records", exist_ok=True)
        self.table: Any = self.store.create_table("table", log="records", exist_ok=True)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append to the log."""
        self.log.append_arrow(batch)

    def settle(self) -> None:
        """Write the table to files, and merge what is due."""
        self.table.flush()
        native = self.table._opened()[1]
        while native.merge():
            pass

    def get(self, key: bytes) -> bytes | None:
        """Look the key up."""
        found = self.table.get(key)
        return None if found is None else found.value

    def get_many(self, keys: Sequence[bytes]) -> int:
        """Look the keys up, from Arrow to Arrow."""
        return int(self.table.get_many(pa.array(keys, pa.binary())).num_rows)

    def scan(self) -> int:
        """Scan to Arrow."""
        return sum(
            batch.column("key").nbytes + batch.column("value").nbytes
            for batch in self.table.batches()
        )

    def close(self) -> None:
        """Close the directory."""
        self.store.close()


class Rocksdb:
    """RocksDB through rocksdict."""

    name: ClassVar[str] = "rocksdb"

    def __init__(self, directory: Path) -> None:
        """Open or create the database."""
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(DBCompressionType.lz4())
        options.increase_parallelism(2)
        self._db: Any = Rdict(str(directory / "rocks"), options=options)
        self._synced = WriteOptions()
        self._synced.sync = True
        self.unlogged = WriteOptions()
        self.unlogged.disable_wal = True

    def write(self, batch: pa.RecordBatch) -> None:
        """Write one batch with a synced WAL."""
        self._write(batch, self._synced)

    def load(self, batch: pa.RecordBatch) -> None:
        """Write one batch without a WAL; durable after `flush`."""
        self._write(batch, self.unlogged)

    def _write(self, batch: pa.RecordBatch, how: Any) -> None:
        writes = WriteBatch(raw_mode=True)
        keys, values = (batch.column(name).to_pylist() for name in ("key", "value"))
        for key, value in zip(keys, values, strict=True):
            writes.put(key, value)
        self._db.write(writes, how)

    def flush(self) -> None:
        """Write what is in memory to its files."""
        self._db.flush()

    def settle(self) -> None:
        """Flush and merge everything."""
        self._db.flush()
        self._db.compact_range(None, None)

    def get(self, key: bytes) -> bytes | None:
        """Get by key."""
        found: bytes | None = self._db.get(key)
        return found

    def get_many(self, keys: Sequence[bytes]) -> int:
        """Get a list of keys, which is `multi_get`."""
        return sum(value is not None for value in self._db.get(list(keys)))

    def scan(self) -> int:
        """Iterate over the items."""
        return sum(len(key) + len(value) for key, value in self._db.items())

    def close(self) -> None:
        """Close the database."""
        self._db.close()


class Lmdb:
    """LMDB, a sync for each transaction."""

    name: ClassVar[str] = "lmdb"

    def __init__(self, directory: Path) -> None:
        """Open or create the environment."""
        self._env = lmdb.open(str(directory / "lmdb"), map_size=_MAP_BYTES)
        self._reader: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Put in one transaction."""
        self._end_read()
        keys, values = (batch.column(name).to_pylist() for name in ("key", "value"))
        with self._env.begin(write=True) as transaction:
            transaction.cursor().putmulti(list(zip(keys, values, strict=True)))

    def settle(self) -> None:
        """Do nothing: there is nothing to merge."""

    def get(self, key: bytes) -> bytes | None:
        """Get in a read transaction that stays open until the next write."""
        found: bytes | None = self._read().get(key)
        return found

    def get_many(self, keys: Sequence[bytes]) -> int:
        """Get with a cursor."""
        return len(self._read().cursor().getmulti(keys))

    def _read(self) -> Any:
        if self._reader is None:
            self._reader = self._env.begin()
        return self._reader

    def _end_read(self) -> None:
        if self._reader is not None:
            self._reader.abort()
            self._reader = None

    def scan(self) -> int:
        """Walk a cursor."""
        with self._env.begin() as transaction:
            return sum(len(key) + len(value) for key, value in transaction.cursor())

    def close(self) -> None:
        """Close the environment."""
        self._end_read()
        self._env.close()


class Sqlite:
    """SQLite: write-ahead log, ``synchronous=FULL``, a table without rowid."""

    name: ClassVar[str] = "sqlite"

    def __init__(self, directory: Path) -> None:
        """Open or create the database."""
        self._db = sqlite3.connect(
            directory / "sqlite.db", isolation_level=None, check_same_thread=False
        )
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "mmap_size=1073741824"):
            self._db.execute(f"PRAGMA {pragma}").fetchall()
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS kv (key BLOB PRIMARY KEY, value BLOB NOT NULL)"
            " WITHOUT ROWID"
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Insert or replace in one transaction."""
        keys, values = (batch.column(name).to_pylist() for name in ("key", "value"))
        self._db.execute("BEGIN")
        self._db.executemany(
            "INSERT OR REPLACE INTO kv VALUES (?, ?)", zip(keys, values, strict=True)
        )
        self._db.execute("COMMIT")

    def settle(self) -> None:
        """Move the write-ahead log into the database."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def get(self, key: bytes) -> bytes | None:
        """Select by key; the statement is prepared once by the module's cache."""
        row = self._db.execute("SELECT value FROM kv WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def get_many(self, keys: Sequence[bytes]) -> int:
        """Select with a list of keys."""
        marks = ",".join("?" * len(keys))
        query = f"SELECT key, value FROM kv WHERE key IN ({marks})"
        return len(self._db.execute(query, list(keys)).fetchall())

    def scan(self) -> int:
        """Fetch all rows in order."""
        rows = self._db.execute("SELECT key, value FROM kv ORDER BY key")
        return sum(len(key) + len(value) for key, value in rows)

    def close(self) -> None:
        """Close; this checkpoints the WAL."""
        self._db.close()


PEERS: tuple[type[KeyValue], ...] = (Rocksdb, Lmdb, Sqlite)
STORES: tuple[type[KeyValue], ...] = (Ours, *PEERS)
