"""Crashes behind every operation of the disk, while tables are changed.

What the reopened store has: the catalog from before the change or from behind it, never
a mixture; of each table what its log said from the table's start on, also where the log
was trimmed since; no files of tables or trees that the catalog does not know.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from braidlog import _native
from braidlog.store.tables.entry import TableEntry
from braidlog.testing import MemoryStore

POLICIES = ("drop", "subset", "torn", "keep")
# A cut is met under one of them, or under all.
WHOLE = bool(os.environ.get("BRAIDLOG_WHOLE"))
FIELDS = {"city": "json:/city", "n": "json:/n:int", "late": "json:/n"}


def opened(disk: _native.MemoryDisk) -> MemoryStore:
    store = MemoryStore.__new__(MemoryStore)
    options = {"segment_bytes": 64 << 10, "wal_bytes_max": 64 << 16, "disk": disk}
    store._open(options, read_only=False)
    return store


def known(store: MemoryStore) -> dict[str, Any]:
    """Return of the catalog what a change decides; building an index goes on anyway."""
    return {
        table.name: (table.id, table.primary, table.start, trees(table))
        for table in store._backend.tables()
    }


def trees(table: TableEntry) -> list[tuple[str, str, int]]:
    return [(index.name, index.field, index.tree) for index in table.indexes]


class Story:
    """Steps on a disk that records, and the operations behind which each was done."""

    def __init__(self) -> None:
        self.disk = _native.MemoryDisk(seed=7, record=True)
        self.store = opened(self.disk)
        self.log = self.store.create_log("log")
        self.number = 0
        self.records: list[tuple[bytes, bytes | None]] = []
        self.begun = self.disk.operations
        self.done: list[tuple[int, dict[str, Any], int]] = []
        self.note()

    def note(self) -> None:
        self.done.append((self.disk.operations, known(self.store), self.number))

    def put(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            n = self.number
            text = json.dumps({"city": f"c{n % 3}", "n": n}).encode()
            value = None if n % 11 == 0 else text
            self.log.append(value, key=b"k%d" % (n % 9))
            self.records.append((b"k%d" % (n % 9), value))
            self.note()

    def trim(self, before: int) -> None:
        assert self.log.trim(before) == before
        self.note()

    def ddl(self, *changes: tuple[Any, ...]) -> None:
        with self.store.ddl() as change:
            for call, *arguments in changes:
                options = arguments.pop() if isinstance(arguments[-1], dict) else {}
                getattr(change, call)(*arguments, **options)
        self.note()

    def flush(self, name: str) -> None:
        self.store.table(name).flush()
        self.note()

    def merge(self, name: str) -> None:
        host = self.store._table_host()
        table = host.native(host.entry(name))
        while table._native.compact():
            pass
        self.note()

    def tell(self) -> None:
        """Do everything that changes a table, or the files of one."""
        self.ddl(("create", "a", {"log": "log", "indexes": {"city": FIELDS["city"]}}))
        self.put(6)
        self.flush("a")
        self.ddl(
            ("create", "b", {"log": "log", "begin": 4}),
            ("rename", "a", "c"),
            ("create_index", "b", "n", FIELDS["n"]),
        )
        self.put(6)
        self.flush("c")
        self.flush("b")
        self.merge("c")
        self.ddl(("rebuild", "c"), ("truncate", "b"), ("drop_index", "b", "n"))
        self.put(6)
        self.flush("c")
        self.flush("b")
        # From here on only files have what is behind.
        self.trim(self.number - 1)
        self.ddl(("create_index", "c", "late", FIELDS["late"]))
        assert self.store.table("c").index("late").wait(timeout=30)
        self.note()
        self.put(5)
        self.flush("c")
        self.flush("b")
        self.trim(self.number)
        self.merge("c")
        self.ddl(("drop", "b"), ("rename", "c", "b"), ("drop_index", "b", "city"))
        self.store._table_host().maintain()
        self.note()
        self.store.close()


@pytest.fixture(scope="module")
def story() -> Story:
    found = Story()
    found.tell()
    return found


def test_every_crash_leaves_the_old_or_the_new_catalog(story: Story) -> None:
    last = story.disk.operations
    cuts = range(story.begun, last + 1)
    assert len(cuts) > 300
    for at, policy in enumerate(POLICIES):
        mine = cuts if WHOLE else cuts[at :: len(POLICIES)]
        for some in pieces(list(mine), 64):
            images = story.disk.crashes(some, policy)
            for cut, image in zip(some, images, strict=True):
                try:
                    check(story, cut, image)
                except BaseException as error:
                    error.add_note(f"cut {cut} of {last}, {policy}")
                    raise


def pieces(cuts: list[int], size: int) -> list[list[int]]:
    return [cuts[at : at + size] for at in range(0, len(cuts), size)]


def check(story: Story, cut: int, image: _native.MemoryDisk) -> None:
    done = [each for each in story.done if each[0] <= cut]
    behind = story.done[len(done) : len(done) + 1]
    appended, allowed = done[-1][2], [each[1] for each in [done[-1], *behind]]
    with opened(image) as store:
        found = known(store)
        assert found in allowed, "neither the old nor the new catalog"
        log = store.log("log")
        assert appended < log.end <= appended + 2
        records = story.records[: log.end - 1]
        check_tables(store, records)
        store._table_host().maintain()
        new = (b"k1", b'{"city": "new", "n": -1}')
        log.append(new[1], key=new[0])
        records = [*records, new]
        for name in store.tables():
            store.table(name).flush()
        check_tables(store, records)
        entries = store._backend.tables()
    check_files(entries, image)
    with opened(image) as store:
        assert known(store) == found
        check_tables(store, records)


def check_tables(store: MemoryStore, records: list[tuple[bytes, bytes | None]]) -> None:
    log = store.log("log")
    tail = [(each.key, each.value) for each in log.read()]
    assert tail == records[log.first - 1 :]
    for entry in store._backend.tables():
        rows: dict[bytes, tuple[int, bytes]] = {}
        for position, (key, value) in enumerate(records, start=1):
            if position >= entry.start:
                rows.pop(key, None)
                if value is not None:
                    rows[key] = (position, value)
        table = store.table(entry.name)
        found = [(each.key, (each.position, each.value)) for each in table]
        assert found == sorted(rows.items()), entry.name
        for index in entry.indexes:
            field = "city" if index.name == "city" else "n"
            by = table.index(index.name)
            assert by.wait(timeout=30)
            values = {key: json.loads(value)[field] for key, (_, value) in rows.items()}
            wanted = sorted(rows, key=lambda key: (values[key], key))
            assert [each.key for each in by] == wanted, (entry.name, index.name)
        assert table.verify() == (len(rows), len(rows) * len(entry.indexes))


def check_files(entries: list[TableEntry], image: _native.MemoryDisk) -> None:
    """Look whether each directory of tables is one of the catalog."""
    wanted = {f"{table.id:032x}" for table in entries}
    inside = {f"{index.tree:032x}" for table in entries for index in table.indexes}
    inside |= {f"{table.primary:032x}" for table in entries}
    for path, _ in image.files():
        parts = Path(path).parts
        if "tables" in parts:
            at = parts.index("tables")
            assert parts[at + 1] in wanted, path
            assert parts[at + 2] in inside | {"COUNTERS"}, path
