"""The Spark reader without Spark: options, filters, planning, projection, pickling."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StructField,
    StructType,
    TimestampType,
)

import braidlog
from braidlog.errors import InvalidArgumentError, NotFoundError, TrimmedError
from braidlog.sources.chunks import rechunk
from braidlog.sources.plan import Bounds, Extent, Span, plan
from braidlog.spark.source.data_source import BraidlogDataSource
from braidlog.spark.source.filters import narrow
from braidlog.spark.source.options import BYTES_PER_PARTITION, parse
from braidlog.spark.source.reader import LogReader, PushdownLogReader
from braidlog.spark.source.schema import COLUMNS, DDL
from braidlog.spark.source.selection import EVERYTHING, Range, Selection

BASE = {"path": "data", "log": "orders"}
SECOND = 1_000_000


def spans(*args: Any) -> list[tuple[int, int]]:
    return [(span.begin, span.end) for span in plan(*args)]


class TestPlan:
    def test_joins_small_segments_up_to_the_target(self) -> None:
        extents = [Extent(1, 11, 40), Extent(11, 21, 40), Extent(21, 31, 40)]
        assert plan(extents, Bounds(1, 31), 100) == [Span(1, 21, 80), Span(21, 31, 40)]

    def test_cuts_a_large_segment_into_equal_parts(self) -> None:
        assert spans([Extent(1, 101, 1000)], Bounds(1, 101), 300) == [
            (1, 26),
            (26, 51),
            (51, 76),
            (76, 101),
        ]

    def test_never_makes_more_parts_than_records(self) -> None:
        assert spans([Extent(5, 7, 1000)], Bounds(1, 7), 10)[-2:] == [(5, 6), (6, 7)]

    def test_clips_to_the_bounds(self) -> None:
        extents = [Extent(1, 101, 1000), Extent(101, 201, 1000)]
        assert plan(extents, Bounds(91, 111), 10_000) == [Span(91, 111, 200)]

    def test_reads_what_no_segment_covers(self) -> None:
        assert spans([Extent(1, 11, 10)], Bounds(1, 15), 100) == [(1, 15)]
        assert spans([], Bounds(1, 15), 100) == [(1, 15)]
        assert spans([], Bounds(15, 15), 100) == []

    def test_drops_segments_by_timestamp_and_keeps_the_gap(self) -> None:
        extents = [
            Extent(1, 11, 10, 0, 9),
            Extent(11, 21, 10, 10, 19),
            Extent(21, 31, 10, 5, 25),
        ]
        assert spans(extents, Bounds(1, 31, since=20), 100) == [(21, 31)]
        assert spans(extents, Bounds(1, 31, until=10), 100) == [(1, 11), (21, 31)]
        assert spans(extents, Bounds(1, 31, since=9, until=11), 100) == [(1, 31)]

    def test_reads_overlapping_segments_once(self) -> None:
        moved = Extent(1, 101, 40, 0, 9)  # a few old records that the cleaner moved
        native = Extent(31, 61, 600, 50, 59)
        assert spans([moved, native], Bounds(1, 101), 10_000) == [(1, 101)]
        assert spans([native, moved], Bounds(1, 101, since=50), 10_000) == [(31, 61)]
        assert spans([moved, native], Bounds(1, 101, until=50), 10_000) == [(1, 101)]
        assert spans([moved, native], Bounds(1, 101, since=60), 10_000) == []

    @pytest.mark.parametrize("target", [1, 7, 50, 333, 10**9])
    @pytest.mark.parametrize("sizes", [[1], [3, 1, 900], [100] * 20, [1, 0, 0, 5000]])
    def test_covers_every_position_once(self, sizes: list[int], target: int) -> None:
        at, extents = 1, []
        for size in sizes:
            extents.append(Extent(at, at + size // 3 + 1, size))
            at = extents[-1].end
        found = spans(extents, Bounds(1, at), target)
        assert [p for begin, end in found for p in range(begin, end)] == list(
            range(1, at)
        )


class TestOptions:
    def test_defaults(self) -> None:
        options = parse(BASE)
        assert options.begin is None
        assert options.selection == EVERYTHING
        assert (options.order, options.fail_on_trimmed) == ("stream", True)
        assert options.bytes_per_partition == BYTES_PER_PARTITION == 128 << 20
        assert options.pushdown is False

    def test_reads_everything_in_any_case(self) -> None:
        options = parse(
            BASE
            | {"FROM": "3", "to": "9", "since": "1970-01-01T00:00:01", "UNTIL": "5"}
            | {"BytesPerPartition": "64m", "pushdown": "TRUE"}
        )
        assert options.begin == 3
        assert options.selection == Selection(Range(3, 9), Range(SECOND, 5))
        assert options.bytes_per_partition == 64 << 20
        assert options.pushdown is True

    def test_the_token_of_a_cluster(self) -> None:
        base = {"cluster": "host:7400", "log": "x"}
        environ = {"BRAIDLOG_TOKEN": "secret-e"}
        assert parse(base).origin.token == ""
        assert parse(base, environ).origin.token == "secret-e"
        given = parse(base | {"token": "secret-o"}, environ)
        assert given.origin.token == "secret-o"
        assert "secret" not in repr(given)
        assert parse(BASE, environ).origin.token == ""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("2024-01-01", 1_704_067_200 * SECOND),
            ("2024-01-01T01:00:00+01:00", 1_704_067_200 * SECOND),
            ("2024-01-01T00:00:00.000001Z", 1_704_067_200 * SECOND + 1),
            ("-7", -7),
        ],
    )
    def test_timestamps(self, text: str, expected: int) -> None:
        assert parse(BASE | {"since": text}).selection.timestamp.begin == expected

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"log": "x"}, r'\.option\("path"'),
            ({"path": "x"}, r'\.option\("log"'),
            (BASE | {"untl": "5"}, "did you mean 'until'"),
            (BASE | {"colour": "red"}, "'colour' does not exist.*bytesPerPartition"),
            (BASE | {"from": "0"}, "'from' must be a position"),
            (BASE | {"to": "-1"}, "'to' must be a position"),
            (BASE | {"since": "soon"}, "'since' must be an ISO 8601 time"),
            (BASE | {"until": str(1 << 63)}, "'until' must be an ISO 8601 time"),
            (BASE | {"bytesPerPartition": "0"}, "must be a size"),
            (BASE | {"pushdown": "maybe"}, "must be true or false"),
            (BASE | {"cluster": "host:7400"}, "exclude each other"),
            (BASE | {"token": "t"}, "'token' can only be used with 'cluster'"),
            (BASE | {"ca": "file"}, "'ca' can only be used with 'cluster'"),
            ({"cluster": "host:7400"}, r'\.option\("log"'),
        ],
    )
    def test_refuses(self, options: dict[str, str], message: str) -> None:
        with pytest.raises(InvalidArgumentError, match=message):
            parse(options)


class TestFilters:
    def test_comparisons_become_ranges_and_are_not_returned(self) -> None:
        moment = datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
        selection, left = narrow(
            [
                datasource.GreaterThan(("position",), 4),
                datasource.LessThanOrEqual(("position",), 9),
                datasource.GreaterThanOrEqual(("timestamp",), moment),
                datasource.LessThan(("timestamp",), moment.replace(second=5)),
                datasource.GreaterThan(("key",), bytearray(b"a")),
                datasource.LessThanOrEqual(("key",), b"k"),
                datasource.In(("stream",), [3, 1]),
                datasource.LessThan(("stream",), 3),
            ]
        )
        assert selection == Selection(
            Range(5, 10),
            Range(2 * SECOND, 5 * SECOND),
            Range(end=3, among=frozenset((1, 3))),
            Range(b"a\x00", b"k\x00"),
        )
        assert left == []

    def test_equality(self) -> None:
        selection, left = narrow([datasource.EqualTo(("position",), 7)])
        assert (selection.position, left) == (Range(7, 8), [])

    @pytest.mark.parametrize(
        "given",
        [
            datasource.IsNotNull(("position",)),
            datasource.StringStartsWith(("key",), "k"),
            datasource.EqualTo(("value",), b"k"),
            datasource.Not(datasource.EqualTo(("position",), 3)),
            datasource.GreaterThan(("headers", "position"), 3),
            datasource.EqualTo(("position",), None),
            datasource.EqualTo(("position",), True),
            datasource.In(("position",), [1, None]),
            datasource.In(("position",), []),
        ],
    )
    def test_leaves_the_rest_to_spark(self, given: Any) -> None:
        selection, left = narrow([given])
        assert selection == EVERYTHING
        assert left == [given]


class TestRechunk:
    def batches(self, *rows: int) -> list[Any]:
        at, made = 0, []
        for count in rows:
            made.append(pa.record_batch({"n": pa.array(range(at, at + count))}))
            at += count
        return made

    @pytest.mark.parametrize("rows", [(1,) * 50, (1000,), (3, 400, 0, 2, 90), ()])
    def test_keeps_rows_and_bounds_sizes(self, rows: tuple[int, ...]) -> None:
        chunks = list(rechunk(self.batches(*rows), 80))
        values = [n for chunk in chunks for n in chunk.column("n").to_pylist()]
        assert values == list(range(sum(rows)))
        assert all(0 < chunk.num_rows <= 10 for chunk in chunks)

    def test_gathers_single_records(self) -> None:
        assert [c.num_rows for c in rechunk(self.batches(*[1] * 25), 80)] == [10, 10, 5]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log with a record a second."""
    with braidlog.open(tmp_path / "data") as node:
        log = node.create_log("orders")
        log.append_many(
            [b"value %d" % i for i in range(1, 101)],
            keys=[b"key %d" % (i % 3) if i % 10 else None for i in range(1, 101)],
            timestamps=[i * SECOND for i in range(1, 101)],
        )
    return tmp_path / "data"


Source = Callable[..., BraidlogDataSource]


@pytest.fixture
def source(directory: Path) -> Source:
    def make(**options: str) -> BraidlogDataSource:
        return BraidlogDataSource({"path": str(directory), "log": "orders"} | options)

    return make


def positions_only() -> StructType:
    return StructType([StructField("position", LongType())])


def everything() -> StructType:
    from pyspark.sql.types import MapType, StringType

    kinds = {
        "int": IntegerType(),
        "bigint": LongType(),
        "timestamp": TimestampType(),
        "binary": BinaryType(),
        "map<string,binary>": MapType(StringType(), BinaryType()),
    }
    return StructType(
        [StructField(name, kinds[kind]) for name, (kind, _) in COLUMNS.items()]
    )


def read(reader: Any) -> Any:
    """Do what Spark does: pickle the reader and each partition to the tasks."""
    batches = []
    for partition in pickle.loads(pickle.dumps(reader.partitions())):
        batches += list(pickle.loads(pickle.dumps(reader)).read(partition))
    return pa.Table.from_batches(batches) if batches else None


class TestReader:
    def test_schema_is_ddl_and_checks_the_log(self, source: Source) -> None:
        assert source().schema() == DDL
        with pytest.raises(
            NotFoundError, match=r"'order' does not.*did you mean 'orders'"
        ):
            source(log="order").schema()

    def test_reads_all_columns_as_spark_wants_them(self, source: Source) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = everything()
        table = read(source().reader(schema))
        assert table.schema.equals(to_arrow_schema(schema, timezone="UTC"))
        assert table.column("position").to_pylist() == list(range(1, 101))
        assert table.column("llsn").equals(table.column("position"))
        assert set(table.column("stream").to_pylist()) == {1}
        assert table.column("key").null_count == 10
        assert table.column("value")[41].as_py() == b"value 42"
        assert table.column("timestamp")[0].as_py() == datetime(
            1970, 1, 1, 0, 0, 1, tzinfo=UTC
        )

    def test_projection_keeps_order_and_nullability(self, source: Source) -> None:
        schema = StructType(
            [StructField("key", BinaryType()), StructField("llsn", LongType(), False)]
        )
        table = read(source().reader(schema))
        assert table.schema.names == ["key", "llsn"]
        assert not table.schema.field("llsn").nullable

    def test_reads_only_the_columns_it_needs(
        self, source: Source, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[list[str]] = []
        kind: Any = None
        with braidlog.open(source().options["path"], read_only=True) as node:
            kind = type(node.log("orders"))
        original = kind.batches

        def spy(self: Any, *args: Any, columns: list[str], **kwargs: Any) -> Any:
            asked.append(columns)
            return original(self, *args, columns=columns, **kwargs)

        monkeypatch.setattr(kind, "batches", spy)
        read(source().reader(positions_only()))
        read(source(since="5000000").reader(positions_only()))
        assert asked == [["position"], ["position", "timestamp"]]

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"from": "11", "to": "21"}, range(11, 21)),
            ({"from": "91", "to": "500"}, range(91, 101)),
            ({"from": "101"}, range(0)),
            ({"since": "1970-01-01T00:00:31"}, range(31, 101)),
            ({"until": str(31 * SECOND)}, range(1, 31)),
            ({"since": str(5 * SECOND), "to": "8"}, range(5, 8)),
        ],
    )
    def test_bounds(
        self, source: Source, options: dict[str, str], expected: range
    ) -> None:
        table = read(source(**options).reader(positions_only()))
        found = [] if table is None else table.column("position").to_pylist()
        assert found == list(expected)

    def test_many_partitions_give_the_same(self, source: Source) -> None:
        reader = source(bytesPerPartition="100").reader(positions_only())
        assert len(reader.partitions()) > 10
        assert read(reader).column("position").to_pylist() == list(range(1, 101))

    def test_planning_pins_the_end(self, source: Source, directory: Path) -> None:
        reader = source().reader(positions_only())
        partitions = reader.partitions()
        with braidlog.open(directory) as node:
            node.log("orders").append(b"later")
        rows = sum(b.num_rows for p in partitions for b in reader.read(p))
        assert rows == 100

    def test_an_empty_log_is_one_empty_partition(self, tmp_path: Path) -> None:
        with braidlog.open(tmp_path) as node:
            node.create_log("empty")
        source = BraidlogDataSource({"path": str(tmp_path), "log": "empty"})
        reader = source.reader(positions_only())
        assert len(reader.partitions()) == 1
        assert read(reader) is None

    def test_trimmed_start(self, source: Source, directory: Path) -> None:
        with braidlog.open(directory) as node:
            node.log("orders").trim(before=41)
        table = read(source().reader(positions_only()))
        assert table.column("position").to_pylist() == list(range(41, 101))
        with pytest.raises(TrimmedError, match=r"begins at position 41.*asks for 40"):
            source(**{"from": "40"}).reader(positions_only()).partitions()

    def test_takes_filters_only_on_request(self, source: Source) -> None:
        plain = source().reader(positions_only())
        pushing = source(pushdown="true").reader(positions_only())
        base = datasource.DataSourceReader.pushFilters
        assert type(plain) is LogReader
        assert type(plain).pushFilters is base
        assert type(pushing) is PushdownLogReader
        assert type(pushing).pushFilters is not base

    def test_pushed_filters_narrow_what_is_read(self, source: Source) -> None:
        reader: Any = source(pushdown="true", to="60").reader(positions_only())
        given = [
            datasource.GreaterThan(("position",), 20),
            datasource.EqualTo(("value",), b"k"),
            datasource.LessThan(
                ("timestamp",), datetime(1970, 1, 1, 0, 0, 30, tzinfo=UTC)
            ),
        ]
        assert reader.pushFilters(given) == [given[1]]
        assert read(reader).column("position").to_pylist() == list(range(21, 30))

    @pytest.mark.parametrize(
        ("field", "message"),
        [
            (StructField("offset", LongType()), "no column `offset bigint`.*position"),
            (StructField("position", IntegerType()), "no column `position int`"),
            (StructField("key", BinaryType(), False), "'key' of a log can be null"),
        ],
    )
    def test_refuses_other_columns(
        self, source: Source, field: StructField, message: str
    ) -> None:
        with pytest.raises(InvalidArgumentError, match=message):
            source().reader(StructType([field]))


def test_spark_finds_the_source_by_its_module() -> None:
    import pyspark_braidlog

    assert pyspark_braidlog.DefaultSource is BraidlogDataSource
    assert pyspark_braidlog.DefaultSource.name() == "braidlog"


def test_the_module_never_raises_without_pyspark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys

    import pyspark_braidlog

    monkeypatch.setitem(sys.modules, "braidlog.spark.source.data_source", None)
    assert not hasattr(pyspark_braidlog, "DefaultSource")
