"""The bindings of tables: every call once, and what its errors are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from braidlog import _native
from braidlog.errors import InvalidArgumentError, NotFoundError, TrimmedError

TABLE = (1, 2, 3, 0, [(10, "price", "json:/price:float", False, 0)])


class Fixture:
    """A store with one log, and a table of it."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.store, _ = _native.Store.open(path)
        self.stream = self.store.create_log("orders", 7, b"")
        self.view = self.store.view(self.stream)
        self.directory = path / "tables"
        self.cache = _native.TableCache()
        self.options = options
        _native.create_table_files(
            self.view, self.directory, TABLE, self.cache, **options
        )
        self.table = self.open()

    def open(self, table: Any = TABLE) -> _native.Table:
        return _native.Table.open(
            self.view, self.directory, table, self.cache, **self.options
        )

    def put(self, *records: tuple[bytes, bytes | None]) -> None:
        keys = [key for key, _ in records]
        values = [value for _, value in records]
        self.store.submit_many(self.stream, values, keys=keys).result()


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[Fixture]:
    fixture = Fixture(tmp_path)
    fixture.put(*[(b"k%02d" % n, b'{"price": %d.5}' % (n % 10)) for n in range(40)])
    fixture.put((b"k07", None), (b"k08", b"no json"))
    yield fixture
    fixture.table.close()
    fixture.store.close()


def test_a_reader_sees_what_was_appended(fixture: Fixture) -> None:
    found = fixture.table.get(b"k03")
    assert found is not None
    assert (found.key, found.value, found.position) == (b"k03", b'{"price": 3.5}', 4)
    assert fixture.table.get(b"k07") is None
    assert fixture.table.get(b"none") is None
    assert fixture.table.position == 42


def test_scans(fixture: Fixture) -> None:
    snapshot = fixture.table.snapshot()
    everything = [record.key for record in snapshot.scan()]
    assert everything == [b"k%02d" % n for n in range(40) if n != 7]
    some = snapshot.scan(begin=b"k10", end=b"k20", reverse=True, limit=3)
    assert [record.key for record in some] == [b"k19", b"k18", b"k17"]
    assert len(list(snapshot.scan(prefix=b"k3"))) == 10
    with pytest.raises(InvalidArgumentError, match="limit"):
        snapshot.scan(limit=-1)
    assert snapshot.divide(1, 9) == [(b"", None, 0)]


def test_batches_have_the_columns_of_a_log(fixture: Fixture) -> None:
    snapshot = fixture.table.snapshot()
    table = pa.RecordBatchReader.from_stream(snapshot.batches()).read_all()
    assert table.column_names == ["position", "timestamp", "key", "value", "headers"]
    assert table.num_rows == 39
    assert table["value"][0].as_py() == b'{"price": 0.5}'
    few = snapshot.batches(prefix=b"k1", columns=["key"], limit=4)
    [batch] = [pa.record_batch(batch) for batch in few]
    assert batch.to_pydict() == {"key": [b"k10", b"k11", b"k12", b"k13"]}


def test_many_keys(fixture: Fixture) -> None:
    snapshot = fixture.table.snapshot()
    found = snapshot.get_many([b"k05", b"none", b"k01"])
    assert [record and record.position for record in found] == [6, None, 2]
    keys = pa.table({"key": pa.array([b"k05", b"none", b"k01"])})
    rows = pa.record_batch(snapshot.get_many_arrow(keys, columns=["key", "position"]))
    assert rows.to_pydict() == {
        "key": [b"k05", b"none", b"k01"],
        "position": [6, None, 2],
    }
    with pytest.raises(InvalidArgumentError, match="binary or text without nulls"):
        snapshot.get_many_arrow(pa.table({"key": [1, 2]}))


def test_an_index(fixture: Fixture) -> None:
    snapshot = fixture.table.snapshot()
    found = snapshot.scan_index("price", begin=1, end=2.5)
    assert [record.key for record in found] == [
        *(b"k%02d" % n for n in (1, 11, 21, 31)),
    ]
    batches = snapshot.index_batches("price", begin=9.5, columns=["key"])
    assert sum(len(batch) for batch in batches) == 4
    assert snapshot.index_values("price", 1) == [((0.5,), b"k00")]
    with pytest.raises(NotFoundError, match="none"):
        snapshot.scan_index("none")
    with pytest.raises(InvalidArgumentError, match="type float"):
        snapshot.scan_index("price", begin="x")
    with pytest.raises(TypeError, match="a field of an index"):
        snapshot.scan_index("price", begin=[1])
    [index] = fixture.table.stats()["indexes"]
    assert index["refused"] == (1, [(42, "the value is not JSON")])


def test_upkeep_and_reopening(fixture: Fixture) -> None:
    early = fixture.table.snapshot()
    assert fixture.table.snapshot(5).position == 5
    assert fixture.table.flush()
    assert not fixture.table.flush()
    while fixture.table.compact() or fixture.table.merge():
        pass
    fixture.table.settle()
    with pytest.raises(TrimmedError):
        fixture.table.snapshot(5)
    assert early.at(5).get(b"k07") is None
    assert fixture.table.retained == fixture.table.floor == 42
    assert fixture.table.verify() == (39, 38)
    fixture.table.close()
    fixture.table = fixture.open()
    assert fixture.table.position == 42
    assert fixture.table.stats()["records"] == 42
    assert fixture.cache.nbytes > 0


def test_an_index_is_built_later(fixture: Fixture) -> None:
    fixture.table.catch_up()
    assert fixture.table.follow() == (42, False)
    index = (11, "whole", "json:/price:int", False, fixture.table.position)
    assert fixture.table.begin_index(TABLE, index) == 42
    assert fixture.table.indexes() == (["price"], ["whole"])
    read: list[int] = []

    def progress(records: int) -> bool:
        read.append(records)
        return True

    fixture.table.build_index(11, progress)
    assert read == [39]
    assert fixture.table.indexes() == (["price", "whole"], [])
    refused = fixture.table.stats()["indexes"][1]["refused"]
    assert refused[0] == 39
    fixture.table.drop_index(11)
    with pytest.raises(NotFoundError, match=f"{11:032x}"):
        fixture.table.drop_index(11)


def test_options_and_specs_are_checked(tmp_path: Path) -> None:
    assert _native.index_spec("json:/a") == "json:/a:scalar"
    with pytest.raises(InvalidArgumentError, match="the types are scalar"):
        _native.index_spec("json:/a:number")
    for options in ({"size": 1}, {"deletes": ("gone", "")}, {"compression": "xz"}):
        with pytest.raises(InvalidArgumentError):
            Fixture(tmp_path / str(len(options)) / str(options)[:12], **options)
