"""Scans give what a dict has, whichever way the core takes.

Where one file alone has what is seen, pages are taken whole; elsewhere records one by
one. So a table of a dozen pages gets a few changes, deletions and null values, some of
them flushed and merged, and is scanned at any position between any bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.testing import MemoryStore

KEYS = 400
CITIES = ["Bergen", "Oslo"]

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Row:
    """What a scan gives of a key."""

    key: bytes
    position: int
    value: bytes | None
    headers: Headers

    @property
    def city(self) -> bytes | None:
        return next((value for name, value in self.headers if name == "city"), None)


def key(number: int) -> bytes:
    # Many begin alike in more than eight bytes, and one is the beginning of others.
    return b"stock:%04d" % number if number else b"stock:"


def record(number: int, kind: str) -> tuple[bytes | None, Headers]:
    """Return value and headers of a record."""
    city = ("city", CITIES[number % 2].encode())
    match kind:
        case "null":
            return None, ()
        case "gone":
            return b"", (("gone", None),)
        case "city":
            return b"city" * (number % 90), (city, ("empty", b""))
        case _:
            return bytes([number % 251]) * (number % 300), ()


class Scanned:
    """A table, and every record of its log."""

    def __init__(self, history: int, deletes: str) -> None:
        self.deletes = deletes
        self.store = MemoryStore()
        self.log = self.store.create_log("log")
        self.table = self.store.create_table(
            "t",
            log="log",
            indexes={"city": "header:city"},
            history=history,
            deletes=deletes,
        )
        self.rows: list[Row] = []
        base = [(n, "city" if n % 5 == 0 else "plain") for n in range(KEYS)]
        self.append(base)
        self.table.flush()

    def append(self, changes: list[tuple[int, str]]) -> None:
        for number, kind in changes:
            value, headers = record(number + len(self.rows), kind)
            position = len(self.rows) + 1
            self.rows.append(Row(key(number), position, value, headers))
        new = self.rows[len(self.rows) - len(changes) :]
        self.log.append_many(
            [row.value for row in new],
            keys=[row.key for row in new],
            headers=[row.headers for row in new],
        )

    def settle(self, how: str) -> None:
        if how != "memory":
            self.table.flush()
        if how == "merge":
            opened: Any = self.table._opened()[1]
            opened._native.compact()

    def seen(self, position: int) -> list[Row]:
        """Return what the table has at a position, in the order of keys."""
        newest = {row.key: row for row in self.rows[:position]}
        there = [row for row in newest.values() if not self.is_deleted(row)]
        return sorted(there, key=lambda row: row.key)

    def is_deleted(self, row: Row) -> bool:
        if self.deletes == "none":
            return False
        if self.deletes == "null":
            return row.value is None
        return row.value is None or ("gone", None) in row.headers


def from_arrow(batches: Any) -> list[Row]:
    """Return the rows of record batches."""
    table = pa.Table.from_batches(map(pa.record_batch, batches), pa.schema(batches))
    table.validate(full=True)
    return [
        Row(row["key"], row["position"], row["value"], tuple(row["headers"]))
        for row in table.to_pylist()
    ]


def from_records(records: Any) -> list[Row]:
    return [Row(each.key, each.position, each.value, each.headers) for each in records]


@dataclass(frozen=True)
class Question:
    """A scan: how many positions ago, and of what."""

    ago: int
    begin: int | None
    end: int | None
    prefix: bytes | None
    reverse: bool
    limit: int | None

    def bounds(self) -> dict[str, Any]:
        return {
            "begin": None if self.begin is None else key(self.begin),
            "end": None if self.end is None else key(self.end),
            "prefix": self.prefix,
            "reverse": self.reverse,
            "limit": self.limit,
        }

    def of(self, rows: list[Row]) -> list[Row]:
        bounds = self.bounds()
        begin, end = bounds["begin"] or b"", bounds["end"]
        found = [
            row
            for row in rows
            if begin <= row.key
            and (end is None or row.key < end)
            and row.key.startswith(self.prefix or b"")
        ]
        return (found[::-1] if self.reverse else found)[: self.limit]


def check(scanned: Scanned, question: Question) -> None:
    end = len(scanned.rows)
    position = max(end - question.ago, scanned.table.describe().oldest, 1)
    rows = scanned.seen(position)
    expected, bounds = question.of(rows), question.bounds()
    with scanned.table.at(position) as snapshot:
        reads = snapshot._reads()
        assert from_arrow(reads.batches(None, **bounds)) == expected
        assert from_records(reads.scan(None, **bounds)) == expected
        limits = {name: bounds[name] for name in ("reverse", "limit")}
        found = from_arrow(reads.batches_index("city", None, **limits))
        by_city = sorted(
            (row for row in rows if row.city is not None),
            key=lambda row: (row.city, row.key),
            reverse=question.reverse,
        )
        assert found == by_city[: question.limit]


CHANGE = st.tuples(
    st.integers(0, KEYS + 20), st.sampled_from(["plain", "city", "null", "gone"])
)
ROUND = st.tuples(
    st.lists(CHANGE, max_size=12), st.sampled_from(["memory", "flush", "merge"])
)
BOUND = st.none() | st.integers(0, KEYS + 30)
QUESTION = st.builds(
    Question,
    ago=st.integers(0, 40),
    begin=BOUND,
    end=BOUND,
    prefix=st.sampled_from([None, None, b"", b"stock:01", b"stock:", b"t"]),
    reverse=st.booleans(),
    limit=st.none() | st.integers(0, KEYS),
)
ALL = Question(0, None, None, None, reverse=False, limit=None)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(ROUND, max_size=6),
    st.lists(QUESTION, min_size=1, max_size=4),
    st.sampled_from([0, 1_000]),
    st.sampled_from(["null", "none", "header:gone"]),
)
def test_a_scan_gives_what_a_dict_has(
    rounds: list[tuple[list[tuple[int, str]], str]],
    questions: list[Question],
    history: int,
    deletes: str,
) -> None:
    scanned = Scanned(history, deletes)
    with scanned.store:
        for changes, how in rounds:
            scanned.append(changes)
            scanned.settle(how)
            check(scanned, ALL)
        for question in questions:
            check(scanned, question)
