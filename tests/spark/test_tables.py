"""Tables of directories inside a real Spark."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.errors import (
    BeyondEndError,
    InvalidArgumentError,
    NotFoundError,
    TrimmedError,
)
from braidlog.spark import log_errors, register
from braidlog.spark.source import table_reader

pytestmark = [
    pytest.mark.spark,
    pytest.mark.process,
    pytest.mark.timeout(180),
    # Sockets between Spark's processes are closed by the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

KEYS = 20_000
CITIES = 400

JSON = {"valueFormat": "json", "valueSchema": "city string, n bigint, price double"}


def put(log: braidlog.Log, numbers: range, generation: int) -> None:
    log.append_many(
        [
            json.dumps(
                {"city": f"c{n * 7 % CITIES}", "n": n, "price": n / 4, "g": generation}
            ).encode()
            for n in numbers
        ],
        keys=[b"key %05d" % n for n in numbers],
        timestamps=[1_000_000 * n for n in numbers],
    )


@pytest.fixture
def stock(data: Path) -> Path:
    """A table of several files: keys replaced, keys deleted, some only in the log."""
    with braidlog.open(data) as store:
        log = store.create_log("orders")
        table = store.create_table(
            "stock",
            log="orders",
            indexes={"by_city": "json:/city", "by_n": "json:/n:int"},
            history=5000,
        )
        put(log, range(KEYS), 1)
        table.flush()
        put(log, range(0, KEYS, 3), 2)
        table.flush()
        log.append(None, key=b"key 00001")
        log.append(b"x", headers=[("a", b"b")])
        put(log, range(50, 60), 3)
    return data


def load(spark: Any, data: Path, schema: str | None = None, **options: str) -> Any:
    register(spark)
    reader = spark.read.format("braidlog").options(path=str(data), table="stock")
    reader = reader.options(**options)
    return (reader.schema(schema) if schema else reader).load()


def expected(data: Path, at: int | None = None) -> list[tuple[bytes, int]]:
    with (
        braidlog.open(data, read_only=True) as store,
        store.table("stock").at(at) as rows,
    ):
        return [(bytes(row.key or b""), row.position) for row in rows]


def found(frame: Any) -> list[tuple[bytes, int]]:
    rows = frame.select("key", "position").collect()
    return sorted((bytes(row.key), row.position) for row in rows)


def test_reads_every_column(spark: Any, stock: Path) -> None:
    frame = load(spark, stock)
    with braidlog.open(stock, read_only=True) as store:
        known = {row.position: row for row in store.table("stock")}
    rows = frame.collect()
    assert len(rows) == len(known) == KEYS - 1
    for row in random.Random(1).sample(rows, 50):
        record = known[row.position]
        assert (row.stream, row.llsn) == (1, record.position)
        assert (bytes(row.key), bytes(row.value)) == (record.key, record.value)
        assert row.headers == {}
    assert frame.columns == load(spark, stock, at="26000").columns
    assert load(spark, stock, "key binary").count() == KEYS - 1


def test_all_tasks_read_one_position(spark: Any, stock: Path) -> None:
    with braidlog.open(stock) as store:
        frame = load(spark, stock)
        before = expected(stock)
        assert found(frame) == before
        at = max(position for _, position in before)
        put(store.log("orders"), range(300), 4)
        assert found(load(spark, stock, at=str(at))) == expected(stock, at)
        # Spark keeps the plan of a frame, and with it the position.
        assert found(frame) == before
        assert found(load(spark, stock)) == expected(stock)
        store.table("stock").flush()
        assert found(load(spark, stock, at=str(at))) == expected(stock, at)
    with pytest.raises(TrimmedError, match="oldest"), log_errors():
        load(spark, stock, at="5")
    with pytest.raises(BeyondEndError), log_errors():
        load(spark, stock, at="999999")


def test_a_task_that_comes_too_late_says_so(spark: Any, stock: Path) -> None:
    options = table_reader_options(stock)
    reader = table_reader.TableReader(options, ())
    [partition] = reader.partitions()
    with braidlog.open(stock) as store:
        put(store.log("orders"), range(6000), 4)
        store.table("stock").flush()
        with pytest.raises(TrimmedError, match="was planned") as late:
            list(reader.read(partition))
        assert "history" in (late.value.hint or "")
        store.table("stock").rebuild()
        with pytest.raises(NotFoundError, match="made anew"):
            list(reader.read(partition))


def table_reader_options(data: Path) -> Any:
    from braidlog.spark.source.options import parse

    return parse({"path": str(data), "table": "stock"})


def test_keys_are_narrowed(spark: Any, stock: Path) -> None:
    everything = expected(stock)
    raw = load(spark, stock, pushdown="true")
    plain = load(spark, stock, keyFormat="utf8")
    for where in (
        "key = 'key 00050'",
        "key = 'key 00001'",
        "key >= 'key 01990'",
        "key < 'key 00007' and key > 'key 00002'",
        "key between 'key 00100' and 'key 00120'",
        "key in ('key 00003', 'nothing', 'key 01999')",
        "key like 'key 0012%'",
        "key like 'key 0012%' or key = 'key 00000'",
        "key in ('key 00003', 'key 00004') and value is not null",
    ):
        # One for each query: Spark keeps the filters of the last one.
        pushed = load(spark, stock, pushdown="true", keyFormat="utf8")
        rows = sorted(row.key for row in pushed.where(where).collect())
        assert rows == sorted(row.key for row in plain.where(where).collect()), where
    low = raw.where("key >= cast('key 01000' as binary)")
    assert found(low) == [row for row in everything if row[0] >= b"key 01000"]
    some = load(spark, stock, keyFrom="key 00010", keyTo="key 00020")
    assert found(some) == [
        row for row in everything if b"key 00010" <= row[0] < b"key 00020"
    ]
    assert found(load(spark, stock, key="key 00055")) == [
        row for row in everything if row[0] == b"key 00055"
    ]


def test_indexes_answer_filters(
    spark: Any, stock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = load(spark, stock, **JSON)
    cases = (
        "value.city = 'c5'",
        "value.city in ('c5', 'c6')",
        "value.n >= 19950",
        "value.n = 51 and value.city = 'c37'",
        "value.n < 0",
        "value.price > 4990",
        "value.city = 'c5' and key < cast('key 00500' as binary)",
        "value.city is null",
        "value.n > 5",
    )
    for where in cases:
        rows = found(load(spark, stock, pushdown="true", **JSON).where(where))
        assert rows == found(plain.where(where)), where
        if where == "value.city = 'c5'":
            assert len(rows) == KEYS // CITIES


def test_the_plan_takes_an_index_where_it_pays(stock: Path) -> None:
    from pyspark.sql.datasource import EqualTo, GreaterThan

    with braidlog.open(stock) as store:
        store.table("stock").flush()

    def tasks(*filters: Any) -> list[Any]:
        options = table_reader_options(stock)
        reader = table_reader.PushdownTableReader(options, ())
        assert list(reader.pushFilters(list(filters))) == list(filters)
        return [partition.value for partition in reader.partitions()]

    [by_city] = tasks(EqualTo(("value", "city"), "c5"))
    assert by_city.index == "by_city"
    assert by_city.part.begin.startswith(b"\x30c5")
    [most] = tasks(GreaterThan(("value", "n"), 5))
    assert most.index == ""
    [both] = tasks(
        EqualTo(("value", "city"), "c5"), GreaterThan(("key",), b"key 01000")
    )
    assert (both.index, both.part.begin) == ("", b"key 01000")


def test_options_that_make_no_sense_are_refused(spark: Any, stock: Path) -> None:
    for options, said in (
        ({"log": "orders"}, "exclude each other"),
        ({"from": "5"}, "exclude each other"),
        ({"since": "1"}, "exclude each other"),
        ({"at": "0"}, "a position"),
        ({"tabel": "x"}, "tabel"),
    ):
        with pytest.raises(InvalidArgumentError, match=said), log_errors():
            load(spark, stock, **options)
    with (
        pytest.raises(InvalidArgumentError, match="name one with 'table'"),
        log_errors(),
    ):
        spark.read.format("braidlog").options(
            path=str(stock), log="orders", at="5"
        ).load()
    with pytest.raises(NotFoundError, match="'nothing'"), log_errors():
        load(spark, stock, table="nothing")
    stream = spark.readStream.format("braidlog")
    frame = stream.options(path=str(stock), table="stock").load()
    place = str(stock.parent / "checkpoint")
    query = frame.writeStream.format("noop").option("checkpointLocation", place)
    with pytest.raises(InvalidArgumentError, match="stream its log"), log_errors():
        query.trigger(availableNow=True).start().awaitTermination()
