"""An embedded log in memory with the calls that the command line makes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from braidlog.errors import (
    AlreadyExistsError,
    BeyondEndError,
    NotFoundError,
    ReadOnlyError,
    SequenceGapError,
    TrimmedError,
)
from braidlog.types import Producer

DIRECTORIES: dict[Path, dict[str, Log]] = {}

SCHEMA = pa.schema(
    [
        ("position", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.map_(pa.string(), pa.binary())),
    ]
)


@dataclass(frozen=True)
class Record:
    position: int
    timestamp: int
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass
class Pending:
    positions: range

    def result(self, timeout: float | None = None) -> range:
        return self.positions


@dataclass
class Cursor:
    log: Log
    name: str
    pin: bool
    position: int = 1

    def commit(self, position: int) -> None:
        self.position = position

    def delete(self) -> None:
        del self.log.named[self.name]


@dataclass
class Log:
    name: str
    first: int = 1
    records: list[Record] = field(default_factory=list)
    named: dict[str, Cursor] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return len(self.records) + 1

    def append_many(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        timestamps: Sequence[int] | None = None,
        producer: Producer | None = None,
        sequence: int = 0,
    ) -> range:
        if producer is not None:
            expected = self.next_sequence(producer)
            if sequence != expected:
                raise SequenceGapError("gap", expected=expected)
            self.sequences[producer.id] = sequence + len(values) - 1
        start = self.end
        now = time.time_ns() // 1000
        for i, value in enumerate(values):
            self.records.append(
                Record(
                    start + i,
                    now if timestamps is None else timestamps[i],
                    None if keys is None else keys[i],
                    value,
                )
            )
        return range(start, self.end)

    def append(self, value: bytes, **options: Any) -> int:
        return self.append_many([value], **options)[0]

    def submit_many(self, values: Sequence[bytes], **options: Any) -> Pending:
        return Pending(self.append_many(values, **options))

    def next_sequence(self, producer: Producer) -> int:
        return self.sequences.get(producer.id, 0) + 1

    def get(self, position: int) -> Record:
        if position < self.first:
            raise TrimmedError(f"{position} was trimmed", first=self.first)
        if position >= self.end:
            raise BeyondEndError(f"{position} is beyond the end", next=self.end)
        return self.records[position - 1]

    def read(
        self,
        start: int = 1,
        end: int | None = None,
        *,
        key: bytes | None = None,
        since: int | None = None,
        until: int | None = None,
        limit: int | None = None,
    ) -> Iterator[Record]:
        if start < self.first:
            raise TrimmedError(f"{start} was trimmed", first=self.first)
        found = 0
        for record in self.records[start - 1 : None if end is None else end - 1]:
            if limit is not None and found >= limit:
                return
            if key is not None and record.key != key:
                continue
            if since is not None and record.timestamp < since:
                continue
            if until is not None and record.timestamp >= until:
                continue
            found += 1
            yield record

    def subscribe(
        self, start: int | None = None, *, timeout: float | None = None
    ) -> Iterator[Record]:
        yield from self.read(start or self.first)

    def batches(self, start: int = 1, end: int | None = None) -> Iterator[Any]:
        yield from self.to_arrow(start, end).to_batches()

    def to_arrow(self, start: int = 1, end: int | None = None) -> Any:
        rows = [
            {
                "position": r.position,
                "timestamp": r.timestamp,
                "key": r.key,
                "value": r.value,
                "headers": list(r.headers),
            }
            for r in self.read(start, end)
        ]
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    def find(self, *, timestamp: int) -> int | None:
        for record in self.read(self.first, since=timestamp, limit=1):
            return record.position
        return None

    def trim(self, *, before: int) -> int:
        self.first = max(self.first, before)
        return self.first

    def cursor(self, name: str, *, pin: bool = False) -> Cursor:
        return self.named.setdefault(name, Cursor(self, name, pin))

    def cursors(self) -> list[Cursor]:
        return list(self.named.values())

    def describe(self) -> dict[str, Any]:
        return {"compression": "none", **self.settings}

    def stats(self) -> dict[str, Any]:
        return {"appends": len(self.records)}


class Node:
    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.held = DIRECTORIES.setdefault(path, {})
        self.read_only = read_only

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def create_log(self, name: str, *, exist_ok: bool = False, **settings: Any) -> Log:
        if self.read_only:
            raise ReadOnlyError("opened read-only")
        if name in self.held and not exist_ok:
            raise AlreadyExistsError(f"log {name} already exists")
        return self.held.setdefault(name, Log(name, settings=settings))

    def log(self, name: str) -> Log:
        if name not in self.held:
            raise NotFoundError(f"log {name} not found")
        return self.held[name]

    def logs(self) -> list[str]:
        return sorted(self.held)

    def delete_log(self, name: str) -> None:
        del self.held[name]

    def stats(self) -> dict[str, Any]:
        return {"logs": len(self.held), "wal": {"bytes": 0}}


def open_node(path: Path | str, *, read_only: bool = False) -> Node:
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    return Node(path, read_only=read_only)
