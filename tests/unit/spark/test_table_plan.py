"""What a query on a table reads, without a Spark session."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

import braidlog
from braidlog.spark.source.selection import Range
from braidlog.spark.source.table_plan import Wanted, index_for, plan_table, wanted_of
from braidlog.store.tables.entry import TablePart

KEYS = [b"", b"a", b"a\x00", b"ab", b"b", b"b\xff", b"\xff", b"\xff\xff"]

COMPARED: dict[type[Filter], Any] = {
    EqualTo: lambda one, other: one == other,
    GreaterThan: lambda one, other: one > other,
    GreaterThanOrEqual: lambda one, other: one >= other,
    LessThan: lambda one, other: one < other,
    LessThanOrEqual: lambda one, other: one <= other,
}


@pytest.mark.parametrize("kind", COMPARED)
@pytest.mark.parametrize("bound", KEYS)
def test_a_range_of_keys_has_all_that_match(kind: Any, bound: bytes) -> None:
    wanted = wanted_of([kind(("key",), bound), IsNotNull(("key",))])
    matching = [key for key in KEYS if COMPARED[kind](key, bound)]
    read = [key for key in KEYS if key in wanted.keys]
    assert set(matching) <= set(read)
    assert len(read) <= len(matching) + 1


def test_keys_in_a_set_and_with_a_prefix() -> None:
    found = wanted_of([In(("key",), (b"b", b"a", b"x")), LessThan(("key",), b"c")])
    [task] = plan_table("t", FakeSnapshot(), found.keys, {}, 100)
    assert task.keys == frozenset((b"a", b"b"))
    none: Range[bytes] = Range(among=frozenset())
    assert plan_table("t", FakeSnapshot(), none, {}, 100) == []
    text = wanted_of([StringStartsWith(("key",), "te")])
    assert text.keys == Range(b"te", b"tf")
    assert wanted_of([EqualTo(("key",), "tea")]).keys == Range(b"tea", b"tea\x00")


def test_what_is_not_known_narrows_nothing() -> None:
    for given in (
        Not(EqualTo(("key",), b"a")),
        IsNotNull(("key",)),
        EqualTo(("position",), 5),
        EqualTo(("value",), b"x"),
        EqualTo(("value", "price"), math.nan),
        In(("key",), ()),
        In(("value", "n"), (1, "a")),
    ):
        assert wanted_of([given]) == Wanted()


class FakeIndex:
    """An index that divides nothing: it says what it was asked for."""

    id = "anew"

    def __init__(self, begins: str, bytes_: int) -> None:
        self.begins, self.bytes = begins, bytes_
        self.asked: list[tuple[int, Any, Any]] = []

    def part(self, begin: Any = None, end: Any = None) -> float:
        inside = [c for c in self.begins if (begin or "") <= c and (not end or c < end)]
        return len(inside) / len(self.begins)

    def divide(
        self, bytes_per_part: int, begin: Any = None, end: Any = None
    ) -> list[TablePart]:
        self.asked.append((bytes_per_part, begin, end))
        part = TablePart(str(begin).encode(), None, self.bytes)
        return [part, part] if begin is not None else [part]


class FakeSnapshot:
    position = 5

    def __init__(self, **indexes: FakeIndex) -> None:
        self.indexes = indexes

    def index(self, name: str) -> FakeIndex:
        return self.indexes[name]

    def divide(
        self, bytes_per_part: int, begin: bytes | None = None, end: bytes | None = None
    ) -> list[TablePart]:
        return [TablePart(begin or b"", b"m", 600), TablePart(b"m", end, 400)]


def test_keys_are_read_in_the_parts_of_the_table() -> None:
    tasks = plan_table("t", FakeSnapshot(), Range(b"d", b"q"), {}, 500)
    assert [(task.table, task.position, task.index) for task in tasks] == [
        ("t", 5, "")
    ] * 2
    assert [task.part[:2] for task in tasks] == [(b"d", b"m"), (b"m", b"q")]
    # Bounds of keys count more than an index.
    index = FakeIndex("a" * 50, 10)
    snapshot = FakeSnapshot(by=index)
    values: Range[Any] = Range("x", None)
    tasks = plan_table("t", snapshot, Range(b"d"), {"by": values}, 500)
    assert [task.index for task in tasks] == ["", ""]


def test_a_table_without_a_record_has_no_tasks() -> None:
    empty = FakeSnapshot()
    empty.position = 0
    wanted: list[Range[bytes]] = [Range(), Range(b"d"), Range(among=frozenset((b"a",)))]
    for keys in wanted:
        assert plan_table("t", empty, keys, {}, 500) == []


def test_the_narrowest_index_is_divided_by_what_its_look_ups_cost() -> None:
    narrow, wide = FakeIndex("abcdefghijklmnopqrst", 50), FakeIndex("abc", 50)
    snapshot = FakeSnapshot(narrow=narrow, wide=wide)
    indexes: dict[str, Range[Any]] = {
        "narrow": Range("c", "d"),
        "wide": Range("a", "b"),
    }
    tasks = plan_table("t", snapshot, Range(), indexes, 500)
    assert [task.index for task in tasks] == ["narrow", "narrow"]
    assert {task.index_id for task in tasks} == {"anew"}
    # 500 bytes of records are 25 of entries, and a tenth of these are looked up.
    assert narrow.asked[-1] == (2, "c", "d")
    assert wide.asked == []
    tasks = plan_table("t", snapshot, Range(), {"wide": indexes["wide"]}, 500)
    assert [task.index for task in tasks] == ["", ""]


def test_an_index_is_taken_for_its_type_only() -> None:
    indexes = {
        "city": "json:/city",
        "price": "strict json:/price:float",
        "n": "json:/n:int",
        "ok": "json:/ok:bool",
        "deep": "json:/a~1b/c:text",
        "both": "json:/city+json:/n:int",
        "header": "header:city",
        "odd": "json:/n:float",
    }
    filters = {
        "city": [EqualTo(("value", "city"), "Oslo")],
        "price": [GreaterThan(("value", "price"), 1.5)],
        "n": [LessThanOrEqual(("value", "n"), 7)],
        "ok": [EqualTo(("value", "ok"), True)],
        "deep": [EqualTo(("value", "a/b", "c"), "x")],
    }
    for name, given in filters.items():
        found = index_for(indexes, wanted_of(given))
        assert set(found) == ({name, "odd"} if name == "n" else {name})
    for given in (
        EqualTo(("value", "city"), 5),
        EqualTo(("value", "n"), "7"),
        EqualTo(("value", "price"), "1"),
        EqualTo(("value", "other"), "x"),
    ):
        assert index_for(indexes, wanted_of([given])) == {}
    beyond = [EqualTo(("value", "n"), 1 << 60)]
    assert set(index_for(indexes, wanted_of(beyond))) == {"n"}
    # Two comparisons of one field with constants of two types: the first counts.
    mixed = [EqualTo(("value", "n"), 5), EqualTo(("value", "n"), "5")]
    assert index_for({"n": "json:/n:int"}, wanted_of(mixed)) == {"n": Range(5, 6)}


VALUES: dict[str, list[Any]] = {
    "text": ["", "a", "a\x00", "ab", "b", "ä", "\U0001f600"],
    "int": [-(2**63), -1, 0, 1, 2, 2**53 + 1, 2**63 - 1],
    "float": [-1e308, -1.0, -0.0, 0.0, 5e-324, 1.0, 1.5, 1e308],
    "bool": [False, True],
    "scalar": ["", "a", "ab", "b"],
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_part_of_an_index_has_all_rows_that_match(kind: str, tmp_path: Path) -> None:
    values = VALUES[kind]
    field = f"json:/v:{kind}"
    with braidlog.open(tmp_path / "d") as store:
        log = store.create_log("log")
        table = store.create_table("table", log="log", indexes={"by": field})
        for n, value in enumerate(values):
            log.append(json.dumps({"v": value}).encode(), key=b"%d" % n)
        log.append(b'{"w": 1}', key=b"x")
        filters: list[tuple[Filter, Any]] = [
            (
                given(("value", "v"), bound),
                lambda one, g=given, b=bound: COMPARED[g](one, b),
            )
            for given in COMPARED
            for bound in values
        ]
        filters.append(
            (In(("value", "v"), tuple(values[:2])), lambda v: v in values[:2])
        )
        narrow = []
        for given, matches in filters:
            part = index_for({"by": field}, wanted_of([given])).get("by", Range())
            rows = table.index("by").scan(part.begin, part.end)
            read = {int(row.key or b"") for row in rows}
            wanted = {n for n, value in enumerate(values) if matches(value)}
            assert wanted <= read, given
            narrow.append(len(read) - len(wanted))
        # All but bounds that nothing is beyond.
        assert narrow.count(0) + narrow.count(1) >= len(narrow) - 3
