"""A table engine without any structure: dicts, and a disk that survives crashes.

It keeps what `braidlog.node.tables.engine` promises, and no more: what is not flushed
is gone after a crash, files never change, a merge takes away what no position at or
above the floor sees.
"""

from __future__ import annotations

import pickle
import zlib
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from braidlog._native import Record
from braidlog.client.batches import Columns, NativeCodec
from braidlog.errors import (
    BeyondEndError,
    CorruptionError,
    InvalidArgumentError,
    MissingFileError,
    NotFoundError,
    NotReadyError,
    TrimmedError,
    UnavailableError,
)
from braidlog.node.tables.engine import Divided, FoundRows, LogPiece, ScanBounds
from braidlog.types import Producer
from braidlog.wire.rows import PinnedFile
from braidlog.wire.tables import IndexInfo, TableInfo

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["REFUSED", "MemoryEngine", "TableDisk"]

REFUSED = b"refused"
"""A field that no record has as it should: its index cannot be built."""
_CODEC = NativeCodec()
_NOBODY = Producer(1, 0)
_FULL_ENTRIES = 256
_ENTRY_BYTES = 64
"""What an entry counts in memory."""

_Payload = tuple[int, Any, Any]
"""Timestamp, value and headers of a record."""


Witness = Callable[[bytes, Record], None]
"""Is told of each record that a table applies, and of which table."""


def _unseen(table: bytes, record: Record) -> None:
    """Do nothing."""


@dataclass(slots=True)
class TableDisk:
    """What survives a crash."""

    tables: dict[bytes, dict[str, bytes]] = field(default_factory=dict)
    copies: dict[bytes, dict[str, bytearray]] = field(default_factory=dict)
    rotten: set[bytes] = field(default_factory=set)
    """Tables whose files cannot be read."""
    full: bool = False
    installed: int = 0
    """Copies that were put in use."""
    trashed: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _Versions:
    """All versions of one key, the oldest first."""

    entries: list[tuple[int, _Payload | None]] = field(default_factory=list)

    def at(self, position: int) -> tuple[int, _Payload | None] | None:
        seen = [each for each in self.entries if each[0] <= position]
        return seen[-1] if seen else None


class _Pinned:
    def __init__(self, files: dict[str, bytes], flushed: int, rotten: bool) -> None:
        self.flushed = flushed
        self.released = False
        self._files = dict(files)
        self._rotten = rotten
        self.files = tuple(
            PinnedFile(path, len(data), zlib.crc32(data))
            for path, data in sorted(self._files.items())
        )

    def read(self, path: str, offset: int, size: int) -> bytes:
        if self._rotten:
            raise CorruptionError("a page cannot be read", path=path)
        if path not in self._files:
            raise NotFoundError(f"{path!r} does not exist")
        return self._files[path][offset : offset + size]

    def release(self) -> None:
        self.released = True


class _Lease:
    def __init__(self, leases: list[int], position: int) -> None:
        self._leases = leases
        self._position = position
        leases.append(position)

    def release(self) -> None:
        self._leases.remove(self._position)


class MemoryTable:
    """A table that is open."""

    def __init__(self, disk: TableDisk, info: TableInfo, witness: Witness) -> None:
        """Load what the disk has; the ``witness`` sees what is applied."""
        self._witness = witness
        self._disk = disk
        self._id = info.table
        head = self._head()
        self.flushed: int = head["flushed"]
        self.applied: int = self.flushed
        self.floor: int = head["floor"]
        self._built: set[bytes] = head["built"]
        self._keys: dict[bytes, _Versions] = {}
        self._leases: list[int] = []
        self._fresh: list[tuple[bytes, int, _Payload | None]] = []
        self._known = {each.tree: each for each in info.indexes}
        self.closed = False
        self.applied_twice = 0
        for name in head["runs"]:
            for key, position, payload in pickle.loads(self._file(name)):
                self._put(key, position, payload)

    def _head(self) -> dict[str, Any]:
        head: dict[str, Any] = pickle.loads(self._file("CURRENT"))
        return head

    def _file(self, name: str) -> bytes:
        files = self._disk.tables.get(self._id, {})
        if name not in files:
            raise MissingFileError(f"{name} is missing", path=name)
        return files[name]

    def _put(self, key: bytes, position: int, payload: _Payload | None) -> None:
        entries = self._keys.setdefault(key, _Versions()).entries
        insort(entries, (position, payload), key=lambda each: each[0])

    @property
    def reached(self) -> int:
        """Last position of which something is here."""
        return self.applied

    @property
    def is_full(self) -> bool:
        """Whether memory has to be flushed before more is applied."""
        return len(self._fresh) >= _FULL_ENTRIES

    @property
    def memory_bytes(self) -> int:
        """What is in memory and not in files."""
        return len(self._fresh) * _ENTRY_BYTES

    def apply(self, pieces: Sequence[LogPiece]) -> None:
        """Apply what the log has next."""
        for piece in pieces:
            batch = _CODEC.open(piece.batch)
            begin, end = piece.skip, piece.skip + piece.records
            first = piece.first - piece.skip
            assert piece.first <= self.applied + 1, "nothing is left out"
            for record in batch.records(first, begin, end):
                if record.position <= self.applied:
                    self.applied_twice += 1
                    continue
                self.applied = record.position
                self._witness(self._id, record)
                if record.key is None:
                    continue
                payload = (record.timestamp, record.value, record.headers)
                entry = record.key, record.position, payload if record.value else None
                self._put(*entry)
                self._fresh.append(entry)

    def _position(self, at: int) -> int:
        if self._id in self._disk.rotten:
            raise CorruptionError("a page cannot be read", path="1.run")
        if at > self.applied:
            raise BeyondEndError(f"{at} is not applied", next=self.applied + 1)
        if at and at < self.floor:
            raise TrimmedError(f"{at} was merged away", first=self.floor)
        return at or self.applied

    def get_rows(self, keys: Sequence[bytes], at: int, bytes_max: int) -> FoundRows:
        """Look keys up."""
        position = self._position(at)
        rows: list[tuple[bytes, int, _Payload]] = []
        found, size, looked = [], 0, 0
        for number, key in enumerate(keys):
            if rows and size >= bytes_max:
                break
            looked += 1
            seen = self._keys[key].at(position) if key in self._keys else None
            if seen is not None and seen[1] is not None:
                rows.append((key, seen[0], seen[1]))
                found.append(number)
                size += len(key) + len(seen[1][1] or b"")
        positions = tuple(each[1] for each in rows)
        return FoundRows(position, _batch(rows), positions, tuple(found), looked)

    def _visible(self, at: int, tree: bytes) -> Iterator[tuple[bytes, bytes, int, Any]]:
        for key, versions in self._keys.items():
            seen = versions.at(at)
            if seen is not None and seen[1] is not None:
                order = key if not tree else (seen[1][1] or b"") + b"\0" + key
                yield order, key, seen[0], seen[1]

    def scan_rows(self, bounds: ScanBounds, at: int) -> FoundRows:
        """Read rows in order."""
        position = self._position(at)
        if bounds.tree and bounds.tree not in self._known:
            raise NotFoundError("there is no such index")
        if bounds.tree and bounds.tree not in self._built:
            raise NotReadyError("the index is still being built here")
        begin, end = bounds.begin, bounds.end
        within = sorted(
            (
                each
                for each in self._visible(position, bounds.tree)
                if each[0] >= begin and (end is None or each[0] < end)
            ),
            reverse=bounds.reverse,
        )
        rows: list[tuple[bytes, int, _Payload]] = []
        size, following = 0, None
        for number, (order, key, where, payload) in enumerate(within):
            if rows and (len(rows) >= bounds.count_max or size >= bounds.bytes_max):
                following = within[number - 1][0] if bounds.reverse else order
                break
            rows.append((key, where, payload))
            size += len(key) + len(payload[1] or b"")
        positions = tuple(each[1] for each in rows)
        return FoundRows(position, _batch(rows), positions, next=following)

    def divide(self, bounds: ScanBounds, at: int) -> Divided:
        """Divide nothing: the sizes of files are not known here."""
        return Divided(self._position(at), ((bounds.begin, 0),), 0)

    def lease(self, position: int) -> _Lease:
        """Keep what a position sees."""
        self._position(position)
        return _Lease(self._leases, position)

    def flush(self) -> bool:
        """Write what is in memory."""
        if self.applied == self.flushed:
            return False
        if self._disk.full:
            raise UnavailableError("the disk is full")
        head = self._head()
        files = self._disk.tables[self._id]
        if self._fresh:
            name = f"{head['next']}.run"
            files[name] = pickle.dumps(self._fresh)
            head["runs"].append(name)
            head["next"] += 1
        head |= {"flushed": self.applied, "floor": self.floor, "built": self._built}
        files["CURRENT"] = pickle.dumps(head)
        self.flushed, self._fresh = self.applied, []
        return True

    def merge(self) -> bool:
        """Take away what nobody sees, and write the rest as one run."""
        if self._id in self._disk.rotten:
            raise CorruptionError("a page cannot be read", path="1.run")
        head = self._head()
        if len(head["runs"]) < 2 or self._disk.full:
            return False
        self.floor = max(self.floor, min([self.flushed, *self._leases]))
        entries: list[tuple[bytes, int, _Payload | None]] = []
        for key, versions in self._keys.items():
            seen = versions.at(self.floor)
            keep = [e for e in versions.entries if e[0] > self.floor]
            versions.entries = ([seen] if seen is not None else []) + keep
            entries += [(key, *e) for e in versions.entries if e[0] <= self.flushed]
        files = self._disk.tables[self._id]
        name = f"{head['next']}.run"
        files[name] = pickle.dumps(entries)
        for old in head["runs"]:
            del files[old]
        head |= {"runs": [name], "next": head["next"] + 1, "floor": self.floor}
        files["CURRENT"] = pickle.dumps(head)
        return True

    def attach(self, index: IndexInfo) -> None:
        """Begin an index."""
        self._known[index.tree] = index

    def build(self, tree: bytes, goes_on: Callable[[], bool]) -> bool:
        """Build an index."""
        if not goes_on():
            return False
        if self._known[tree].field == REFUSED:
            raise InvalidArgumentError("the record at position 1 is refused")
        self._built.add(tree)
        return True

    def detach(self, tree: bytes) -> None:
        """Give an index up."""
        self._known.pop(tree, None)
        self._built.discard(tree)

    def pin(self) -> _Pinned:
        """Keep the files as they are."""
        rotten = self._id in self._disk.rotten
        return _Pinned(self._disk.tables[self._id], self.flushed, rotten)

    def verify(self, goes_on: Callable[[int], bool]) -> tuple[int, int] | None:
        """Read everything; nothing if it is to stop."""
        records = sum(1 for _ in self._visible(self._position(0), b""))
        if not goes_on(records):
            return None
        return records, records * len(self._built)

    def stats(self) -> dict[str, int | str]:
        """Return figures by name."""
        return {"keys": len(self._keys), "runs": len(self._head()["runs"])}

    def close(self) -> None:
        """Let go of it."""
        self.closed = True


def _batch(rows: Sequence[tuple[bytes, int, _Payload]]) -> bytes:
    if not rows:
        return b""
    columns = Columns(
        [payload[1] for _, _, payload in rows],
        [key for key, _, _ in rows],
        [payload[0] for _, _, payload in rows],
        [payload[2] or () for _, _, payload in rows],
    )
    return _CODEC.encode([columns], _NOBODY, 0, "none")


class _Files:
    def __init__(self, disk: TableDisk) -> None:
        self._disk = disk

    def tables(self) -> list[bytes]:
        return [*{**self._disk.tables, **self._disk.copies}]

    def has(self, table: bytes) -> bool:
        return table in self._disk.tables

    def trash(self, table: bytes) -> None:
        self._disk.tables.pop(table, None)
        self._disk.copies.pop(table, None)
        self._disk.rotten.discard(table)
        self._disk.trashed.append(table)

    def staged(self, table: bytes, files: Sequence[PinnedFile]) -> dict[str, int]:
        copy = self._disk.copies.setdefault(table, {})
        sizes = {file.path: file.bytes for file in files}
        for path in [p for p, d in copy.items() if len(d) > sizes.get(p, -1)]:
            del copy[path]
        return {path: len(copy.get(path, b"")) for path in sizes}

    def write(self, table: bytes, path: str, offset: int, data: Buffer) -> None:
        if self._disk.full:
            raise UnavailableError("the disk is full")
        content = self._disk.copies[table].setdefault(path, bytearray())
        assert offset in (0, len(content)), "parts come in order"
        content[offset:] = bytes(data)

    def check(self, table: bytes, file: PinnedFile) -> bool:
        content = self._disk.copies[table].setdefault(file.path, bytearray())
        if len(content) == file.bytes and zlib.crc32(content) == file.checksum:
            return True
        del self._disk.copies[table][file.path]
        return False

    def install(self, table: bytes, files: Sequence[PinnedFile]) -> None:
        copy = self._disk.copies.pop(table)
        listed = {file.path for file in files}
        assert listed == copy.keys(), "all files were copied"
        self._disk.tables[table] = {path: bytes(data) for path, data in copy.items()}
        self._disk.rotten.discard(table)
        self._disk.installed += 1


class MemoryEngine:
    """Opens tables on a disk in memory."""

    def __init__(self, disk: TableDisk, witness: Witness = _unseen) -> None:
        """Use what the disk has; the ``witness`` sees what is applied."""
        self.disk = disk
        self._witness = witness
        self.files = _Files(disk)
        self.open_tables: dict[bytes, MemoryTable] = {}

    def open(self, table: TableInfo, first: int) -> MemoryTable:
        """Open a table; make it if nothing is here."""
        if table.table not in self.disk.tables:
            if first > table.begin:
                msg = "the log begins behind the table"
                raise MissingFileError(msg, path=table.table.hex())
            flushed = max(0, table.begin - 1)
            head = {"flushed": flushed, "floor": 0, "runs": [], "next": 1}
            head["built"] = set[bytes]()
            self.disk.tables[table.table] = {"CURRENT": pickle.dumps(head)}
        opened = MemoryTable(self.disk, table, self._witness)
        self.open_tables[table.table] = opened
        return opened
