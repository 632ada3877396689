"""Tables to back up, what can be read of them, and what a restore gives back."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import braidlog
from braidlog import Store
from braidlog.backup import restore, verify

INDEXES = {"by_city": "json:/city", "by_both": "json:/n:int+json:/city"}


def keep(store: Store, name: str = "stock", **options: Any) -> Any:
    store.create_log("orders", exist_ok=True)
    return store.create_table(name, log="orders", indexes=INDEXES, **options)


def put(store: Store, begin: int, end: int) -> None:
    log = store.log("orders")
    for n in range(begin, end):
        key = b"k%d" % (n % 13)
        if n % 11 == 10:
            log.append(None, key=key)
        elif n % 17 == 16:
            log.append(b"without a key")
        else:
            value = b'{"city":"c%d","n":%d,"x":"%s"}' % (n % 3, n % 5, b"x" * 200)
            log.append(value, key=key)


def flush(store: Store, *, merge: bool = False) -> None:
    for name in store.tables():
        table = store.table(name)
        table.flush()
        native = store._table_host().native(store._table_host().entry(name))._native
        while merge and native.compact():
            pass


def rows(reads: Any) -> list[Any]:
    return [record.as_tuple() for record in reads]


def seen(store: Store, name: str = "stock") -> dict[str, Any]:
    """What a table says of itself, and everything that can be read of it."""
    table = store.table(name)
    described = replace(table.describe(), pin=0, oldest=0)
    with table.at() as snapshot:
        found = {each: rows(snapshot.index(each)) for each in INDEXES}
        found["all"] = rows(snapshot)
    return {"described": described} | found


def history(store: Store, name: str = "stock") -> dict[int, Any]:
    table = store.table(name)
    positions = range(max(1, table.describe().oldest), table.applied + 1)
    found = {}
    for position in positions:
        with table.at(position) as snapshot:
            found[position] = rows(snapshot)
    return found


def check(place: Path, wanted: dict[str, Any], name: str | None = None) -> None:
    """Restore a backup, compare, and go on with what came back."""
    assert verify(place, name).findings == []
    target = place.with_name("restored")
    restored = restore(place, target, name)
    assert restored.tables == len(wanted)
    try:
        with braidlog.open(target) as store:
            assert sorted(store.tables()) == sorted(wanted)
            for table, expected in wanted.items():
                assert store.table(table).index("by_city").wait(timeout=30)
                assert seen(store, table) == expected
                store.table(table).verify()
            end = store.log("orders").end
            put(store, end, end + 30)
            flush(store, merge=True)
            for table in wanted:
                store.table(table).verify()
            after = {table: seen(store, table) for table in wanted}
        with braidlog.open(target) as store:
            assert {table: seen(store, table) for table in wanted} == after
    finally:
        shutil.rmtree(target)
