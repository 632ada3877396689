"""Any history of a log and its tables: each table is a dict, each index a sorted list.

The model is the list of records, and of each table where it begins. Snapshots that are
open, indexes that are built beside appends, truncations, rebuilds, merges, trims and
reopens change nothing of what a table has.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.errors import TrimmedError
from braidlog.testing import MemoryStore

KEYS = [b"", b"a", b"ab", b"b", b"\xff", b"\xff\xff", None]
# Numbers of an index, a record that lacks them, one that is no JSON, and a deletion.
VALUES = ["1", "2", "-3", "10", "absent", "no json", "null"]
FIELDS = {"n": "json:/n:int", "raw": "value"}
HISTORY = 4

Rows = dict[bytes, int]


def stored(value: str) -> bytes | None:
    """Return the value of a record."""
    match value:
        case "null":
            return None
        case "absent":
            return b"{}"
        case "no json":
            return b"no json"
        case _:
            return json.dumps({"n": int(value)}).encode()


@dataclass
class Modelled:
    """A table: where it begins, and the fields of its indexes."""

    start: int
    indexes: set[str] = field(default_factory=set)


class History:
    """A store, and what it should have."""

    def __init__(self) -> None:
        self.store = MemoryStore(segment_bytes=1 << 20)
        self.log = self.store.create_log("log")
        self.records: list[tuple[bytes | None, str]] = []
        self.tables: dict[str, Modelled] = {}
        self.snapshots: list[tuple[Any, str, int, Modelled]] = []
        self.create("t", "n")

    def rows(self, table: Modelled, position: int) -> Rows:
        """Return the position of each key's record, as of a position."""
        found: Rows = {}
        for at in range(table.start, position + 1):
            key, value = self.records[at - 1]
            if key is None:
                continue
            found.pop(key, None)
            if value != "null":
                found[key] = at
        return found

    def of_index(self, index: str, rows: Rows) -> list[bytes]:
        """Return the keys in the order of an index."""
        values = {key: self.records[at - 1][1] for key, at in rows.items()}
        if index == "raw":
            return sorted(rows, key=lambda key: (stored(values[key]) or b"", key))
        numbers = {key: int(v) for key, v in values.items() if v.lstrip("-").isdigit()}
        return sorted(numbers, key=lambda key: (numbers[key], key))

    # -- steps -----------------------------------------------------------------------

    def put(self, key: bytes | None, value: str) -> None:
        assert self.log.append(stored(value), key=key) == len(self.records) + 1
        self.records.append((key, value))

    def create(self, name: str, index: str) -> None:
        if name not in self.tables:
            self.store.create_table(
                name, log="log", indexes={index: FIELDS[index]}, history=HISTORY
            )
            self.tables[name] = Modelled(self.log.first, {index})

    def drop(self, name: str) -> None:
        if self.tables.pop(name, None) is not None:
            self.store.drop_table(name)

    def rename(self, name: str) -> None:
        other = {"t": "u", "u": "t"}[name]
        if name in self.tables and other not in self.tables:
            with self.store.ddl() as change:
                change.rename(name, other)
            self.tables[other] = self.tables.pop(name)

    def index(self, name: str, index: str) -> None:
        """Make an index, or drop it if it is there."""
        if name in self.tables:
            has = self.tables[name].indexes
            with self.store.ddl() as change:
                if index in has:
                    change.drop_index(name, index)
                else:
                    change.create_index(name, index, FIELDS[index])
            # Others may have it in their snapshots.
            self.tables[name] = Modelled(self.tables[name].start, has ^ {index})

    def truncate(self, name: str) -> None:
        if name in self.tables:
            with self.store.ddl() as change:
                change.truncate(name)
            has = self.tables[name].indexes
            self.tables[name] = Modelled(len(self.records) + 1, has)

    def rebuild(self, name: str) -> None:
        if name in self.tables:
            if self.log.first <= self.tables[name].start:
                self.store.table(name).rebuild()
            else:
                with contextlib.suppress(TrimmedError):
                    self.store.table(name).rebuild()
                    raise AssertionError("it has what the log has not")

    def trim(self) -> None:
        pins = [self.store.table(name).describe().pin for name in self.tables]
        wanted = len(self.records) // 2 + 1
        assert self.log.trim(wanted) == max(self.log.first, min([wanted, *pins]))

    def flush(self, name: str) -> None:
        if name in self.tables:
            self.store.table(name).flush()

    def hold(self, name: str, ago: int) -> None:
        """Open a snapshot of a position that can be read."""
        if name in self.tables and len(self.snapshots) < 4:
            table = self.store.table(name)
            position = max(table.describe().oldest, len(self.records) - ago)
            if position:
                snapshot = table.at(position)
                model = self.tables[name]
                ready = {i for i in model.indexes if table.index(i).ready}
                held = (snapshot, name, position, Modelled(model.start, ready))
                self.snapshots.append(held)

    def let_go(self) -> None:
        if self.snapshots:
            self.snapshots.pop(0)[0].close()

    def maintain(self) -> None:
        self.store._table_host().maintain()

    def reopen(self) -> None:
        self.snapshots.clear()
        self.store = self.store.reopen()
        self.log = self.store.log("log")

    # -- checks ----------------------------------------------------------------------

    def check(self) -> None:
        assert self.store.tables() == sorted(self.tables)
        for name, model in self.tables.items():
            table, rows = self.store.table(name), self.rows(model, len(self.records))
            self.check_reads(table, rows)
            for index in model.indexes:
                if table.index(index).ready:
                    self.check_index(table.index(index), index, rows)
            oldest = max(1, len(self.records) - HISTORY, model.start)
            for position in range(oldest, len(self.records) + 1):
                with table.at(position) as early:
                    self.check_reads(early, self.rows(model, position))
        for snapshot, _, position, model in self.snapshots:
            rows = self.rows(model, position)
            self.check_reads(snapshot, rows)
            for name in model.indexes:
                # It may have been made behind this position.
                with contextlib.suppress(TrimmedError):
                    self.check_index(snapshot.index(name), name, rows)

    def check_reads(self, reads: Any, rows: Rows) -> None:
        found = [(each.key, each.position) for each in reads.scan()]
        assert found == sorted(rows.items())
        back = [each.key for each in reads.scan(reverse=True)]
        assert back == sorted(rows, reverse=True)
        wanted = [key for key in KEYS if key is not None]
        many = [each and each.position for each in reads.get_many(wanted)]
        assert many == [rows.get(key) for key in wanted]

    def check_index(self, reads: Any, index: str, rows: Rows) -> None:
        assert [each.key for each in reads.scan()] == self.of_index(index, rows)

    def end(self) -> None:
        """Wait for indexes, and compare everything once more."""
        for name, model in self.tables.items():
            for index in model.indexes:
                assert self.store.table(name).index(index).wait(timeout=60)
        self.check()
        for name, model in self.tables.items():
            rows = self.rows(model, len(self.records))
            entries = sum(len(self.of_index(i, rows)) for i in model.indexes)
            assert self.store.table(name).verify() == (len(rows), entries)
            seen = self.store.table(name).describe()
            without = [
                at
                for at in range(model.start, len(self.records) + 1)
                if self.records[at - 1][0] is None
            ]
            assert seen.left_out == len(without)
        while self.snapshots:
            self.let_go()
        self.store.close()


NAMES = st.sampled_from(["t", "t", "t", "u"])
INDEXES = st.sampled_from(sorted(FIELDS))
PUT = st.tuples(st.just("put"), st.sampled_from(KEYS), st.sampled_from(VALUES))
STEP = st.one_of(
    PUT,
    PUT,
    PUT,
    PUT,
    st.tuples(st.just("create"), NAMES, INDEXES),
    st.tuples(st.just("index"), NAMES, INDEXES),
    *(
        st.tuples(st.just(call), NAMES)
        for call in ("drop", "rename", "truncate", "rebuild", "flush", "flush")
    ),
    st.tuples(st.just("hold"), NAMES, st.integers(0, HISTORY)),
    *(st.tuples(st.just(call)) for call in ("let_go", "trim", "maintain", "reopen")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=40))
def test_a_table_is_a_dict(steps: list[tuple[Any, ...]]) -> None:
    history = History()
    try:
        for call, *arguments in steps:
            getattr(history, call)(*arguments)
            history.check()
        history.end()
    finally:
        history.store.close()
