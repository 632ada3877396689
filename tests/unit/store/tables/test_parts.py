"""Parts of a table and of an index, for several that read at a time."""

import itertools
import json
from pathlib import Path

import pyarrow as pa
import pytest

import braidlog
from braidlog.errors import ClosedError, InvalidArgumentError, NotFoundError
from braidlog.store.tables.entry import TablePart
from braidlog.store.tables.table import Table
from unit.store.tables.stock import INDEXES, put

COUNT = 3000


@pytest.fixture
def stock(store: braidlog.Store) -> Table:
    """A table whose last records are in memory only."""
    stock = store.create_table("stock", log="orders", indexes=INDEXES)
    for begin, end in ((0, COUNT - 100), (COUNT - 100, COUNT)):
        numbers = range(begin, end)
        store.log("orders").append_many(
            [
                json.dumps({"city": f"c{n % 3}", "price": n / 4}).encode()
                for n in numbers
            ],
            keys=[b"key %05d" % (n * 7919 % COUNT) for n in numbers],
        )
        if not begin:
            stock.flush()
    return stock


def check_order(parts: list[TablePart], begin: bytes, end: bytes | None) -> None:
    assert (parts[0].begin, parts[-1].end) == (begin, end)
    for one, following in itertools.pairwise(parts):
        assert one.end == following.begin > one.begin


def test_parts_of_keys_are_all_of_them_once(stock: Table) -> None:
    with stock.at() as snapshot:
        parts = snapshot.divide(4000)
        assert len(parts) > 4
        check_order(parts, b"", None)
        rows = [row for part in parts for row in snapshot.scan(part.begin, part.end)]
        assert rows == list(snapshot.scan())
        assert len(rows) == COUNT
        some = snapshot.divide(4000, b"key 00500", b"key 01000")
        assert 1 < len(some) < len(parts)
        check_order(some, b"key 00500", b"key 01000")
        [whole] = snapshot.divide(1 << 40)
        # A page may count on both sides of a border.
        assert whole.bytes <= sum(part.bytes for part in parts) < 3 * whole.bytes
        assert snapshot.divide(4000, b"b", b"b") == []
        assert len(snapshot.divide(0)) >= len(parts)
        with pytest.raises(InvalidArgumentError):
            snapshot.divide(-1)
    with pytest.raises(ClosedError):
        snapshot.divide(4000)


def test_parts_of_an_index_are_all_of_its_entries_once(stock: Table) -> None:
    columns = ["position", "key"]
    with stock.at() as snapshot:
        index = snapshot.index("by_price")
        parts = index.divide(2000, 100.0, 600.0)
        assert len(parts) > 3
        tables = [
            pa.Table.from_batches(index.part_batches(part, columns=columns))
            for part in parts
        ]
        found = pa.concat_tables(tables)
        assert found == index.to_arrow(100.0, 600.0, columns=columns).combine_chunks()
        assert found.num_rows == 2000
        # Values that many records have are divided too.
        one = snapshot.index("by_city").divide(1, "c1", "c2")
        assert len(one) > 1
        assert snapshot.index("by_city").divide(1, "c1", "c1") == []
        with pytest.raises(InvalidArgumentError):
            index.divide(2000, "text")
        with pytest.raises(InvalidArgumentError, match="colour"):
            next(index.part_batches(parts[0], columns=["colour"]))
        with pytest.raises(NotFoundError):
            snapshot.index("nothing")


def test_a_table_that_is_in_memory_is_one_part(store: braidlog.Store) -> None:
    stock = store.create_table("stock", log="orders", indexes=INDEXES)
    for n in range(50):
        put(store, b"%d" % n, "Oslo", n)
    with stock.at() as snapshot:
        assert snapshot.divide(1) == [TablePart(b"", None, 0)]
        [part] = snapshot.index("by_city").divide(1)
        assert part == TablePart(b"", None, 0)
        batches = snapshot.index("by_city").part_batches(part)
        assert sum(batch.num_rows for batch in batches) == 50


def test_a_reader_divides_beside_the_writer(
    stock: Table, tmp_path: Path, store: braidlog.Store
) -> None:
    with braidlog.open(tmp_path / "d", read_only=True) as reader:
        with reader.table("stock").at() as snapshot:
            parts = snapshot.divide(4000)
            position = snapshot.position
            put(store, b"key 00001", "later", 1)
            rows = [r for part in parts for r in snapshot.scan(part.begin, part.end)]
        assert len(parts) > 4
        with stock.at(position) as written:
            assert rows == list(written.scan())
