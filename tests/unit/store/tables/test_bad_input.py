"""What makes no sense: typed errors that say what to do, and nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import braidlog
from braidlog import _native
from braidlog.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    LogError,
    LogInUseError,
    NotFoundError,
)
from unit.store.tables.damage import in_memory, refused


@pytest.fixture
def store(tmp_path: Path) -> Iterator[braidlog.Store]:
    with braidlog.open(tmp_path / "d", segment_bytes=1 << 20) as store:
        store.create_log("log")
        yield store


# -- calls -----------------------------------------------------------------------


def test_names_fields_and_options(store: braidlog.Store) -> None:
    store.create_table("t", log="log", indexes={"by": "value"})
    with refused(AlreadyExistsError, "table 't' exists"):
        store.create_table("t", log="log")
    with refused(NotFoundError, "log 'lag' does not exist"):
        store.create_table("u", log="lag")
    with refused(NotFoundError, "table 'u' does not exist"):
        store.drop_table("u")
    with refused(InvalidArgumentError, "the types are scalar, bool, int"):
        store.create_table("u", log="log", indexes={"by": "json:/a:decimal"})
    with refused(InvalidArgumentError, "memory_bytes must be from 65536"):
        store.create_table("u", log="log", memory_bytes=100)
    with refused(LogInUseError, 'followed by table "t"'):
        store.delete_log("log")
    with refused(InvalidArgumentError, "begins with json:, header: or value"):  # noqa: SIM117
        with store.ddl() as change:
            change.create_index("t", "new", "key")
    assert [each.name for each in store.table("t").describe().indexes] == ["by"]


def test_more_than_there_may_be() -> None:
    disk = _native.MemoryDisk()
    store = in_memory(disk)
    store.create_log("log")
    with refused(LogError, "64"):
        indexes = {f"i{n}": "value" for n in range(65)}
        store.create_table("t", log="log", indexes=indexes)
    with refused(LogError, "4096"):
        store.create_table("t", log="log", indexes={"by": "json:/" + "x" * 5000})
    with refused(LogError, "16384"):
        store.create_table("t", log="log", deletes="pattern:" + "x" * 20_000)
    with refused(LogError, "1024"), store.ddl() as change:
        for number in range(1025):
            change.create(f"t{number}", log="log")
    assert store.tables() == []
    store._table_host().maintain()
    store.close()
    assert [path for path, _ in disk.files() if "/tables/" in path] == []


def test_values_of_another_type(store: braidlog.Store) -> None:
    indexes = {"n": "json:/n:int", "any": "json:/n", "text": "json:/n:text"}
    table = store.create_table("t", log="log", indexes=indexes)
    store.log("log").append(b'{"n": 5}', key=b"a")
    with refused(InvalidArgumentError, "type int"):
        table.index("n").get("5")
    with refused(InvalidArgumentError, "type text"):
        table.index("text").scan(5)
    wrong: Any
    for wrong in ([5], {"n": 5}, object()):
        with pytest.raises(TypeError, match="bool, int, float, str or bytes"):
            table.index("n").get(wrong)
    for number, found in [(10**400, 0), (-(10**400), 1)]:
        assert len(list(table.index("any").scan(number))) == found
    for wrong in ("a", 5, None):
        with pytest.raises(TypeError):
            table.get(wrong)
    with pytest.raises(TypeError):
        table.scan("a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="reverse must be a bool"):
        table.scan(reverse="yes")  # type: ignore[arg-type]
    with refused(InvalidArgumentError, "without nulls"):
        table.get_many(pa.array([5]))
    assert table.get(b"k" * (20 << 10)) is None


def test_records_that_an_index_cannot_hold_are_listed(store: braidlog.Store) -> None:
    table = store.create_table(
        "t", log="log", indexes={"n": "json:/n:int", "strict": "strict json:/n:int"}
    )
    log = store.log("log")
    log.append_many([b'{"n": 1}', b'{"n": 2', b'{"n": "x"}'], keys=[b"a", b"b", b"c"])
    log.append(b'{"n": 4}', key=b"k" * (16 << 10))
    seen = {each.name: each for each in table.describe().indexes}
    for name in ("n", "strict"):
        assert seen[name].missing == 3
        assert seen[name].missing_first == (2, "the value is not JSON")
    assert [each.key for each in table.index("n")] == [b"a"]
    with refused(InvalidArgumentError, "lacks 3 records.*position 2: .*make it again"):
        table.index("strict").scan()
    table.flush()
    log.trim(log.end)
    table.verify()
    assert len(list(table)) == 4


def test_a_strict_index_does_not_forget_what_it_lacks(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "d") as store:
        log = store.create_log("log")
        table = store.create_table("t", log="log", indexes={"n": "strict value:int"})
        log.append_many([b"1", b"x"], keys=[b"a", b"b"])
        table.flush()
        log.trim(log.end)
    (counters,) = (tmp_path / "d" / "tables").rglob("COUNTERS")
    counters.unlink()
    with braidlog.open(tmp_path / "d") as store:
        table = store.table("t")
        with refused(InvalidArgumentError, "position 2: .*make it again"):
            index = table.index("n")
            index.wait(timeout=30)
            list(index)
        assert len(list(table)) == 2
