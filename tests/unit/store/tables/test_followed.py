"""Tables of a store that was opened read-only, beside its writer and without one."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import braidlog
from braidlog.errors import (
    BeyondEndError,
    ClosedError,
    CorruptionError,
    MissingFileError,
    NotFoundError,
    NotReadyError,
    ReadOnlyError,
    TrimmedError,
)
from braidlog.testing import MemoryStore

INDEXES = {"by_city": "json:/city", "by_price": "json:/price:float"}


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[braidlog.Store]:
    with braidlog.open(tmp_path / "d", segment_bytes=1 << 20) as store:
        store.create_log("orders")
        store.create_table("stock", log="orders", indexes=INDEXES, history=10)
        yield store


@pytest.fixture
def reader(writer: braidlog.Store) -> Iterator[braidlog.Store]:
    with braidlog.open(writer.path, read_only=True) as store:
        yield store


def put(store: braidlog.Store, key: bytes, city: str, price: float = 1) -> int:
    value = json.dumps({"city": city, "price": price}).encode()
    return store.log("orders").append(value, key=key)


def same(one: Any, other: Any) -> None:
    """Compare two tables in every way that they can be read."""
    assert list(one) == list(other)
    assert list(one.scan(reverse=True, limit=3)) == list(
        other.scan(reverse=True, limit=3)
    )
    assert one.to_arrow() == other.to_arrow()
    keys = [b"tea", b"milk", b"none"]
    assert one.get_many(keys) == other.get_many(keys)
    array = pa.array(keys, pa.binary())
    assert one.get_many(array) == other.get_many(array)
    for name in INDEXES:
        assert list(one.index(name)) == list(other.index(name))
        assert one.index(name).to_arrow() == other.index(name).to_arrow()


@pytest.mark.parametrize("flushed", [0, 1, 2])
def test_a_reader_sees_what_the_writer_sees(
    writer: braidlog.Store, reader: braidlog.Store, flushed: int
) -> None:
    theirs, ours = writer.table("stock"), reader.table("stock")
    assert (ours.name, ours.log, ours.get(b"tea"), ours.applied) == (
        "stock",
        "orders",
        None,
        0,
    )
    first = put(writer, b"tea", "Oslo", 3)
    put(writer, b"milk", "Rome", 1)
    writer.log("orders").append(b"no json", key=b"bad")
    if flushed:
        theirs.flush()
    last = put(writer, b"tea", "Rome", 4)
    writer.log("orders").append(None, key=b"milk")
    if flushed == 2:
        theirs.flush()
    same(ours, theirs)
    assert ours.wait(last, timeout=5)
    with ours.at(first) as past, theirs.at(first) as their_past:
        assert past.position == first
        same(past, their_past)
    # Nobody writes: the same.
    writer.close()
    assert [record.key for record in ours] == [b"bad", b"tea"]
    assert ours.verify() == (2, 2)
    with braidlog.open(writer.path, read_only=True) as anew:
        same(anew.table("stock"), ours)


def test_positions_out_of_range_are_said(
    writer: braidlog.Store, reader: braidlog.Store
) -> None:
    for n in range(40):
        put(writer, b"tea", f"city {n}")
    ours = reader.table("stock")
    writer.table("stock").flush()
    with pytest.raises(TrimmedError, match="'stock'") as trimmed, ours.at(5):
        pass
    assert trimmed.value.first == 30
    with pytest.raises(BeyondEndError) as beyond, ours.at(41):
        pass
    assert beyond.value.next == 41
    with pytest.raises(BeyondEndError, match="41"):
        ours.get(b"tea", after=41)
    record = ours.get(b"tea", after=40)
    assert record is not None
    assert record.position == 40


def test_a_reader_changes_nothing(
    writer: braidlog.Store, reader: braidlog.Store
) -> None:
    put(writer, b"tea", "Oslo")
    ours = reader.table("stock")
    for call in (
        ours.flush,
        ours.ddl,
        ours.rebuild,
        reader.ddl,
        lambda: reader.drop_table("stock"),
        lambda: reader.create_table("other", log="orders"),
        lambda: reader.create_table("stock", log="orders", exist_ok=True),
    ):
        with pytest.raises(ReadOnlyError):
            call()
    assert list(ours) == list(writer.table("stock"))


def test_figures_and_settings_are_those_of_the_writer(
    writer: braidlog.Store, reader: braidlog.Store
) -> None:
    put(writer, b"tea", "Oslo")
    writer.log("orders").append(b"x")
    writer.log("orders").append(b"{", key=b"bad")
    theirs, ours = writer.table("stock"), reader.table("stock")
    theirs.flush()
    put(writer, b"milk", "Oslo")
    assert ours.describe() == theirs.describe()
    assert ours.describe().left_out == 1
    assert ours.describe().indexes[0].missing == 1
    mine, known = ours.stats(), theirs.stats()
    assert (mine.applied, mine.flushed, mine.files) == (4, 3, known.files)
    assert (mine.flushes, mine.memory_bytes > 0) == (0, True)


def test_changes_of_the_catalog_are_seen(
    writer: braidlog.Store, reader: braidlog.Store
) -> None:
    put(writer, b"tea", "Oslo")
    ours = reader.table("stock")
    assert len(list(ours)) == 1
    with writer.ddl() as change:
        change.rename("stock", "goods")
        change.create_index("goods", "by_value", "value")
        change.create("copy", log="orders")
    assert reader.tables() == ["copy", "goods"]
    assert writer.table("goods").index("by_value").wait(timeout=60)
    assert ours.index("by_value").wait(timeout=60)
    assert len(list(ours.index("by_value"))) == 1
    assert ours.name == "goods"
    with writer.ddl() as change:
        change.drop_index("goods", "by_city")
        change.truncate("copy")
    with pytest.raises(NotFoundError, match="by_city"):
        ours.index("by_city")
    copy = reader.table("copy")
    assert list(copy) == []
    put(writer, b"milk", "Rome")
    assert [record.key for record in copy] == [b"milk"]
    writer.table("copy").rebuild()
    with pytest.raises(NotFoundError, match="stock"):
        reader.table("stock")
    with copy.at() as snapshot:
        writer.drop_table("copy")
        with pytest.raises(NotFoundError, match="was dropped"):
            copy.get(b"milk")
        assert snapshot.get(b"milk") is not None
    with pytest.raises(NotFoundError, match="copy"):
        reader.table("copy")


def test_an_index_that_is_built_is_not_read_before(
    writer: braidlog.Store, reader: braidlog.Store
) -> None:
    put(writer, b"tea", "Oslo")
    with writer._table_host()._upkeeping:  # So that nothing is built yet.
        with writer.ddl() as change:
            change.create_index("stock", "late", "value")
        index = reader.table("stock").index("late")
        assert not index.ready
        with pytest.raises(NotReadyError):
            list(index)
    assert index.wait(timeout=60)
    assert len(list(index)) == 1


def test_a_closed_reader_refuses(
    writer: braidlog.Store, reader: braidlog.Store
) -> None:
    put(writer, b"tea", "Oslo")
    ours = reader.table("stock")
    rows = ours.scan()
    reader.close()
    for call in (lambda: ours.get(b"tea"), lambda: next(rows), lambda: list(ours)):
        with pytest.raises(ClosedError):
            call()


def test_lost_files_are_named(writer: braidlog.Store) -> None:
    put(writer, b"tea", "Oslo")
    stock = writer.table("stock")
    stock.flush()
    entry = next(iter(writer._backend.tables()))
    writer.close()
    directory = writer.path / "tables" / f"{entry.id:032x}"
    by_city = entry.index("by_city")
    assert by_city is not None
    shutil.rmtree(directory / f"{by_city.tree:032x}")
    with braidlog.open(writer.path, read_only=True) as reader:
        ours = reader.table("stock")
        assert len(list(ours)) == len(list(ours.index("by_price"))) == 1
        for call in (lambda: list(ours.index("by_city")), ours.verify):
            with pytest.raises(MissingFileError, match="by_city") as lost:
                call()
            assert ours.damaged_index(lost.value) == "by_city"
    shutil.rmtree(directory)
    with braidlog.open(writer.path, read_only=True) as reader:
        with pytest.raises(CorruptionError) as gone:
            list(reader.table("stock"))
        assert reader.table("stock").damaged_index(gone.value) is None


def test_more_than_memory_may_have_is_to_be_tried_again(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "d") as writer:
        writer.create_log("orders")
    with braidlog.open(tmp_path / "d") as writer:
        table = writer.create_table("big", log="orders", memory_bytes=1 << 16)
        del table
        assert writer._tables is not None  # Its upkeep would flush it.
        writer._tables.close()
        with braidlog.open(writer.path, read_only=True) as reader:
            ours = reader.table("big")
            for _ in range(3):
                keys = [os.urandom(16) for _ in range(100)]
                writer.log("orders").append_many([b"x" * 1000] * 100, keys=keys)
                if ours.stats().memory_bytes >= 4 << 16:
                    break
            keys = [os.urandom(16) for _ in range(100)]
            writer.log("orders").append_many([b"x" * 1000] * 100, keys=keys)
            with pytest.raises(NotReadyError, match="not flushed") as refused:
                list(ours)
            assert "open it for writing" in (refused.value.hint or "")
    with braidlog.open(tmp_path / "d") as writer:
        writer.table("big").flush()
        with braidlog.open(writer.path, read_only=True) as reader:
            assert list(reader.table("big")) == list(writer.table("big"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_child_of_a_fork_opens_tables_again(
    writer: braidlog.Store, reader: braidlog.Store
) -> None:
    put(writer, b"tea", "Oslo")
    ours = reader.table("stock")
    assert len(list(ours)) == 1
    child = os.fork()
    if child == 0:
        found = list(ours)
        os._exit(0 if len(found) == 1 and ours.get(b"tea") else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert len(list(ours)) == 1


def test_a_store_in_memory_has_readers_too() -> None:
    with MemoryStore() as writer:
        writer.create_log("orders")
        stock = writer.create_table("stock", log="orders", indexes=INDEXES)
        put(writer, b"tea", "Oslo")
        with writer.reopen(read_only=True) as reader:
            same(reader.table("stock"), stock)
            stock.flush()
            same(reader.table("stock"), stock)


async def test_readers_for_asyncio(writer: braidlog.Store) -> None:
    put(writer, b"tea", "Oslo")
    async with braidlog.open_async(writer.path, read_only=True) as reader:
        stock = await reader.table("stock")
        record = await stock.get(b"tea")
        assert record is not None
        assert [each.key async for each in stock.scan()] == [b"tea"]
        async with stock.at() as snapshot:
            assert [each.key async for each in snapshot.scan()] == [b"tea"]
