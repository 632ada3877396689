"""Arrow at both ends of a log: appending it, reading as it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from braidlog import Log, Producer, Store
from braidlog.errors import ClosedError, InvalidArgumentError, TooLargeError
from unit.store.conftest import SEGMENT_BYTES, Opener, values

HEADERS = pa.map_(pa.string(), pa.binary())
SCHEMA = pa.schema(
    [
        ("position", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
LONG = b"longer than a view keeps inline"


@pytest.mark.parametrize(
    "type_",
    [
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.dictionary(pa.int8(), pa.binary()),
        pa.dictionary(pa.uint32(), pa.large_binary()),
    ],
    ids=str,
)
def test_values_and_keys_of_any_binary_type(log: Log, type_: pa.DataType) -> None:
    column = [b"a", b"", LONG, b"a"]
    keys = [None, b"", LONG, b"k"]
    table = pa.table(
        {
            "value": pa.array(column, pa.binary()).cast(type_)
            if not pa.types.is_dictionary(type_)
            else pa.array(column, type_.value_type).dictionary_encode().cast(type_),
            "key": pa.array(keys, pa.binary()).cast(type_)
            if not pa.types.is_dictionary(type_)
            else pa.array(keys, type_.value_type).dictionary_encode().cast(type_),
        }
    )
    assert log.append_arrow(table) == range(1, 5)
    assert [(record.value, record.key) for record in log] == list(
        zip(column, keys, strict=True)
    )


@pytest.mark.parametrize(
    "type_", [pa.string(), pa.large_string(), pa.string_view()], ids=str
)
def test_text_is_stored_as_utf8(log: Log, type_: pa.DataType) -> None:
    log.append_arrow(pa.table({"value": pa.array(["ü", "", "日本語" * 9], type_)}))
    assert values(log) == ["ü".encode(), b"", ("日本語" * 9).encode()]


@pytest.mark.parametrize(
    ("type_", "given", "stored"),
    [
        (pa.timestamp("s"), 3, 3_000_000),
        (pa.timestamp("ms", "Europe/Berlin"), -3, -3000),
        (pa.timestamp("us", "UTC"), 3, 3),
        (pa.timestamp("ns"), 3999, 3),
        (pa.timestamp("ns"), -1, -1),
        (pa.int64(), -(1 << 63), -(1 << 63)),
    ],
    ids=str,
)
def test_timestamps_of_any_unit(
    log: Log, type_: pa.DataType, given: int, stored: int
) -> None:
    log.append_arrow(
        pa.table(
            {"value": [b""], "timestamp": pa.array([given], pa.int64()).cast(type_)}
        )
    )
    assert log[1].timestamp == stored


def test_headers_from_a_map(log: Log) -> None:
    rows = [[("a", b"1"), ("a", b"2")], None, [], [("ü", b"")]]
    log.append_arrow(pa.table({"value": [b""] * 4, "headers": pa.array(rows, HEADERS)}))
    expected = [(("a", b"1"), ("a", b"2")), (), (), (("ü", b""),)]
    assert [record.headers for record in log] == expected


def test_columns_of_nulls_are_absent_ones(log: Log) -> None:
    log.append_arrow(
        pa.table({"value": [b"v"], "key": pa.nulls(1), "headers": pa.nulls(1)})
    )
    assert (log[1].key, log[1].headers) == (None, ())
    log.append_arrow(pa.table({"value": pa.nulls(2), "key": [b"a", b"b"]}))
    assert [record.value for record in log.read(2)] == [None, None]
    assert repr(log[3]).endswith("key=b'b', value=None)")


SHAPES: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda table: table,
    "chunked": lambda table: pa.concat_tables([table.slice(i, 1) for i in range(3)]),
    "sliced": lambda table: pa.concat_tables([table, table]).slice(3, 3),
    "batch": lambda table: table.to_batches()[0],
    "reader": lambda table: table.to_reader(max_chunksize=2),
    "structs": lambda table: table.to_struct_array().combine_chunks(),
    "polars": pl.from_arrow,
    "pandas": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "duckdb": lambda table: duckdb.from_arrow(table),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_from_whatever_speaks_arrow(log: Log, shape: str) -> None:
    table = pa.table({"key": [b"a", None, b"c"], "value": [b"1", b"2", b"3"]})
    assert log.append_arrow(SHAPES[shape](table)) == range(1, 4)
    found = [(record.key, record.value) for record in log]
    assert found == [(b"a", b"1"), (None, b"2"), (b"c", b"3")]


def test_no_rows(log: Log) -> None:
    empty = pa.table({"value": pa.array([], pa.binary())})
    assert log.append_arrow(empty) == range(1, 1)
    assert log.append_arrow(empty.schema.empty_table().to_reader()) == range(1, 1)
    assert log.submit_arrow(empty).result() == range(1, 1)
    # Of no rows nobody may know the type.
    untyped = pa.table({"value": [], "key": [], "timestamp": [], "headers": []})
    assert log.append_arrow(untyped) == range(1, 1)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["key"], "column `value` is missing"),
        (["value", "colour"], "`colour` is not one of"),
        (["value", "position"], "`position` is assigned by the log"),
    ],
)
def test_columns_are_checked_where_there_are_no_rows(
    log: Log, names: list[str], said: str
) -> None:
    empty = pa.table({name: pa.array([], pa.binary()) for name in names})
    for data in (empty, empty.to_reader()):
        with pytest.raises(InvalidArgumentError, match=said):
            log.append_arrow(data)
    with pytest.raises(InvalidArgumentError, match="type"):
        log.append_arrow(pa.table({"value": pa.array([], pa.int64())}))


def values_of(*columns: tuple[str, pa.Array]) -> pa.Table:
    return pa.Table.from_arrays([c for _, c in columns], names=[n for n, _ in columns])


GOOD = ("value", pa.array([b"a", b"b"]))
REFUSED = {
    "no value": ("`value` is missing", values_of(("key", GOOD[1]))),
    "value type": ("`value` has type Int64", pa.table({"value": [1, 2]})),
    "fixed size": (
        "has type FixedSize",
        pa.table({"value": pa.array([b"a"], pa.binary(1))}),
    ),
    "key type": ("`key` has type", values_of(GOOD, ("key", pa.array([1, 2])))),
    "position": (
        "`position` is assigned",
        values_of(GOOD, ("position", pa.array([1, 2]))),
    ),
    "unknown": ("`other` is not one of", values_of(GOOD, ("other", pa.array([1, 2])))),
    "twice": ("`value` is there twice", values_of(GOOD, GOOD)),
    "time type": (
        "`timestamp` has type",
        values_of(GOOD, ("timestamp", pa.array(["", ""]))),
    ),
    "null time": (
        "`timestamp`, row 1: null",
        values_of(GOOD, ("timestamp", pa.array([1, None]))),
    ),
    "time overflow": (
        "row 1: timestamp does not fit",
        values_of(GOOD, ("timestamp", pa.array([1, 1 << 62], pa.timestamp("s")))),
    ),
    "header type": (
        "`headers` has type",
        values_of(
            GOOD,
            ("headers", pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int8()))),
        ),
    ),
    "many headers": (
        "header count of a record of 257 exceeds",
        values_of(GOOD, ("headers", pa.array([[], [("a", b"")] * 257], HEADERS))),
    ),
    "later batch": (
        "`timestamp`, row 2: null",
        pa.Table.from_batches(
            [
                pa.record_batch({"value": GOOD[1], "timestamp": pa.array([1, 1])}),
                pa.record_batch(
                    {"value": [b"c"], "timestamp": pa.array([None], pa.int64())}
                ),
            ]
        ),
    ),
    "too large": (
        "exceeds the limit",
        pa.table({"value": [b"x" * 1000] * 20_000 + [b"y" * SEGMENT_BYTES]}),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_appended_is_refused_and_changes_nothing(
    log: Log, case: str
) -> None:
    words, table = REFUSED[case]
    with pytest.raises(InvalidArgumentError, match=words):
        log.append_arrow(table)
    with pytest.raises(InvalidArgumentError, match=words):
        log.submit_arrow(table)
    assert log.append(b"next") == 1


@pytest.mark.parametrize("thing", [None, [b"a"], {"value": [b"a"]}, b"a"], ids=str)
def test_what_is_not_arrow_is_a_type_error(log: Log, thing: object) -> None:
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        log.append_arrow(thing)


def test_a_plain_array_is_not_a_record_batch(log: Log) -> None:
    with pytest.raises(ValueError, match="expected a record batch"):
        log.append_arrow(pa.array([b"a"]))


def raising() -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"value": pa.array([b"first"])})
    raise RuntimeError("boom")


def reader(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    schema = pa.schema([("value", pa.binary())])
    return pa.RecordBatchReader.from_batches(schema, batches)


def test_a_stream_that_breaks_changes_nothing(log: Log) -> None:
    with pytest.raises(InvalidArgumentError, match="boom"):
        log.append_arrow(reader(raising()))
    assert log.append(b"next") == 1


def test_a_long_stream_that_breaks_says_what_is_there(log: Log) -> None:
    megabyte = pa.record_batch({"value": pa.array([b"x" * 1000] * 1000)})

    def long() -> Iterator[pa.RecordBatch]:
        for _ in range(80):
            yield megabyte
        yield from raising()

    with pytest.raises(InvalidArgumentError, match="boom") as caught:
        log.append_arrow(reader(long()))
    assert caught.value.__notes__ == [
        "the first 80001 records were appended, from position 1 on"
    ]
    assert log.append(b"next") == 80_002
    assert log[80_001].value == b"first"


def test_a_stream_may_append_to_the_same_log(log: Log) -> None:
    def appending() -> Iterator[pa.RecordBatch]:
        for i in range(3):
            log.append(b"inner")
            yield pa.record_batch({"value": pa.array([b"outer%d" % i])})

    assert log.append_arrow(reader(appending())) == range(4, 7)


def test_sequences_run_over_all_batches(log: Log) -> None:
    producer = Producer(7)
    table = pa.concat_tables([pa.table({"value": [b"%d" % i]}) for i in range(5)])
    assert log.append_arrow(table, producer=producer, sequence=1) == range(1, 6)
    assert log.append_arrow(table, producer=producer, sequence=1) == range(1, 6)
    assert log.next_sequence(producer) == 6
    assert len(log) == 5


def test_a_log_as_a_table(ten: Log) -> None:
    table = ten.to_arrow()
    assert table.schema.equals(SCHEMA)
    table.validate(full=True)
    assert table["position"].to_pylist() == list(range(1, 11))
    assert table["value"].to_pylist() == values(ten)
    assert table["key"].to_pylist() == [record.key for record in ten]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == list(range(10, 101, 10))


def test_columns_are_chosen_and_ordered(ten: Log) -> None:
    assert ten.to_arrow(columns=["value", "position"]).column_names == [
        "value",
        "position",
    ]
    none = ten.to_arrow(columns=[])
    assert (none.num_rows, none.num_columns) == (10, 0)
    for wrong in (["nope"], ["value", "value"]):
        with pytest.raises(InvalidArgumentError, match=wrong[0]):
            ten.to_arrow(columns=wrong)
    with pytest.raises(TypeError):
        ten.to_arrow(columns="value")  # type: ignore[arg-type]


def test_ranges_of_a_table(ten: Log) -> None:
    assert ten.to_arrow(3, 5)["position"].to_pylist() == [3, 4]
    assert ten.to_arrow(3)["position"].to_pylist() == list(range(3, 11))
    assert ten.to_arrow(end=3)["position"].to_pylist() == [1, 2]
    assert ten.to_arrow(11).num_rows == ten.to_arrow(5, 2).num_rows == 0


def test_an_empty_log_is_an_empty_table(log: Log) -> None:
    assert log.to_arrow().schema.equals(SCHEMA)
    assert list(log.batches()) == []
    assert pa.table(log).num_rows == 0


def test_keys_and_headers_survive_clipping(log: Log) -> None:
    rows = 3000
    keys = [None if i % 3 == 0 else b"%d" % i for i in range(rows)]
    heads = [[("h", b"%d" % i)] * (i % 4) for i in range(rows)]
    log.append_many([b"%d" % i for i in range(rows)], keys=keys, headers=heads)
    for begin in (1, 2, 9, 1001):
        table = log.to_arrow(begin, 2500)
        table.validate(full=True)
        assert table["key"].to_pylist() == keys[begin - 1 : 2499]
        assert table["headers"].to_pylist() == heads[begin - 1 : 2499]


@pytest.mark.parametrize("compression", ["none", "zstd", "lz4"])
def test_large_and_small_batches_in_one_scan(node: Store, compression: Any) -> None:
    log = node.create_log("mixed", compression=compression)
    expected = []
    for i in range(30):
        one, many = b"%d" % i, [b"%d" % i * 500] * 200
        log.append(one, key=one)
        log.append_many(many)
        expected += [one, *many]
    batches = list(log.batches())
    assert [v for b in batches for v in b["value"].to_pylist()] == expected
    assert [p for b in batches for p in b["position"].to_pylist()] == [
        *range(1, len(log) + 1)
    ]
    assert all(batch.num_rows for batch in batches)


def test_a_table_outlives_its_node(ten: Log, node: Store) -> None:
    expected = values(ten)
    table, batch = ten.to_arrow(), next(iter(ten.batches()))
    stream = ten.__arrow_c_stream__()
    node.close()
    assert table["value"].to_pylist() == batch["value"].to_pylist() == expected
    del table, batch
    with pytest.raises((ClosedError, OSError, pa.ArrowInvalid), match="closed"):
        pa.RecordBatchReader._import_from_c_capsule(stream).read_all()


def test_every_frame_library_reads_a_log_directly(ten: Log) -> None:
    assert pl.DataFrame(ten)["value"].to_list() == values(ten)
    assert pa.table(ten).to_pandas()["value"].tolist() == values(ten)
    orders = pa.RecordBatchReader.from_stream(ten)
    found = duckdb.sql("select count(*), max(position) from orders").fetchall()
    assert found == [(10, 10)]
    del orders


def test_a_schema_without_reading(ten: Log) -> None:
    assert pa.schema(ten).equals(SCHEMA)


def test_a_log_copied_by_arrow(ten: Log, node: Store) -> None:
    copy = node.create_log("copy")
    columns = ["timestamp", "key", "value", "headers"]
    copy.append_arrow(ten.to_arrow(columns=columns))
    assert [r.as_tuple() for r in copy] == [r.as_tuple() for r in ten]
    with pytest.raises(InvalidArgumentError, match="position"):
        copy.append_arrow(ten)


def test_arrow_survives_a_reopen(log: Log, node: Store, opener: Opener) -> None:
    table = pa.table({"value": [b"%d" % i * 50 for i in range(40_000)]})
    log.append_arrow(table)
    node.close()
    assert opener().log("orders").to_arrow(columns=["value"]).equals(table)


def test_the_limit_of_a_batch_holds_for_arrow(log: Log) -> None:
    with pytest.raises(TooLargeError) as caught:
        log.append_arrow(pa.table({"value": [b"x" * SEGMENT_BYTES]}))
    assert caught.value.limit == SEGMENT_BYTES // 4
