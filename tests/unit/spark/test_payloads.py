"""Typed keys and values, and rows that are selected, against plain Python."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from braidlog.errors import InvalidArgumentError
from braidlog.spark.source.options import parse
from braidlog.spark.source.payloads import MalformedPayloadError, decode
from braidlog.spark.source.schema import Rows, ddl_of, requested
from braidlog.spark.source.selection import Range, Selection

BASE = {"path": "data", "log": "orders"}
ORDER = pa.struct([("id", pa.int64()), ("name", pa.string())])


def read(values: list[bytes], kind: Any, form: str, *, fail: bool = True) -> Any:
    positions = pa.array(range(11, 11 + len(values)), pa.int64())
    field = pa.field("value", kind)
    found = decode(pa.array(values, pa.binary()), positions, field, form, fail=fail)
    assert found.type == kind
    return found.to_pylist()


class TestText:
    def test_is_decoded(self) -> None:
        assert read(["ä".encode(), b""], pa.string(), "utf8") == ["ä", ""]

    def test_what_is_no_text_is_named_or_null(self) -> None:
        values = [b"a"] * 40 + [b"\xff"] + [b"b"] * 9
        with pytest.raises(MalformedPayloadError, match="value at position 51 is not"):
            read(values, pa.string(), "utf8")
        found = read(values, pa.string(), "utf8", fail=False)
        assert found == ["a"] * 40 + [None] + ["b"] * 9


class TestJson:
    def test_fields_in_any_order_and_of_any_number(self) -> None:
        values = [b'{"id": 1, "name": "a"}', b'{"name":\n"b","more":[1]}', b"{}"]
        assert read(values, ORDER, "json") == [
            {"id": 1, "name": "a"},
            {"id": None, "name": "b"},
            {"id": None, "name": None},
        ]
        assert read([], ORDER, "json") == []

    @pytest.mark.parametrize(
        "wrong",
        [
            b"",
            b"5",
            b'{"id": 1',
            b'{"id": "x"}',
            b'{"id": 1} {"id": 2}',
            b'{"id": 1}} {"v": {"id": 2}',
            b'{"name": "\xff"}',
            b',{"id": 1}',
        ],
    )
    def test_what_is_none_is_named_or_null(self, wrong: bytes) -> None:
        values = [b'{"id": 1}', wrong, b'{"id": 3}']
        with pytest.raises(MalformedPayloadError, match="position 12 is not json"):
            read(values, ORDER, "json")
        found = read(values, ORDER, "json", fail=False)
        assert [row and row["id"] for row in found] == [1, None, 3]

    @given(
        st.lists(
            st.one_of(
                st.binary(max_size=8),
                st.builds(
                    lambda n, text: json.dumps({"id": n, "name": text}).encode(),
                    st.integers(-(1 << 63), (1 << 63) - 1),
                    st.text(st.characters(codec="utf-8"), max_size=5),
                ),
            ),
            max_size=12,
        )
    )
    def test_agrees_with_json_loads(self, values: list[bytes]) -> None:
        found = read(values, ORDER, "json", fail=False)
        assert len(found) == len(values)
        for value, row in zip(values, found, strict=True):
            try:
                expected = json.loads(value)
            except ValueError:
                expected = None
            if isinstance(expected, dict):
                expected = {name: expected.get(name) for name in ("id", "name")}
            else:
                expected = None
            assert row == expected


def arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


class TestArrow:
    KIND = pa.list_(ORDER)

    def test_each_value_is_the_rows_of_its_stream(self) -> None:
        one = pa.table({"name": ["a", None], "id": pa.array([1, 2], pa.int32())})
        values = [arrow(one), arrow(one.slice(2)), arrow(one.slice(1))]
        assert read(values, self.KIND, "arrow") == [
            [{"id": 1, "name": "a"}, {"id": 2, "name": None}],
            [],
            [{"id": 2, "name": None}],
        ]

    @pytest.mark.parametrize(
        "wrong", [b"", b"no arrow", arrow(pa.table({"id": [1]}))], ids=str
    )
    def test_what_is_none_is_named_or_null(self, wrong: bytes) -> None:
        right = arrow(pa.table({"id": [1], "name": ["a"]}))
        with pytest.raises(MalformedPayloadError, match="position 12 is not arrow"):
            read([right, wrong], self.KIND, "arrow")
        assert read([right, wrong], self.KIND, "arrow", fail=False)[1] is None


class TestSchema:
    def test_ddl_says_the_types(self) -> None:
        json_options = {"valueFormat": "json", "valueSchema": "id bigint, name string"}
        ddl = ddl_of(parse(BASE | json_options | {"keyFormat": "utf8"}))
        assert "key string, value struct<id bigint, name string>, " in ddl
        arrow_options = {"valueFormat": "arrow", "valueSchema": "id bigint"}
        assert "value array<struct<id bigint>>" in ddl_of(parse(BASE | arrow_options))
        with pytest.raises(InvalidArgumentError, match=r"needs .option\('valueSchema'"):
            ddl_of(parse(BASE | {"valueFormat": "json"}))
        with pytest.raises(InvalidArgumentError, match="'valueSchema' needs"):
            parse(BASE | {"valueSchema": "id bigint"})

    def test_a_schema_given_by_the_user_is_enough(self) -> None:
        struct = StructType([StructField("id", LongType())])
        for form, kind in (("json", struct), ("arrow", ArrayType(struct))):
            options = parse(BASE | {"valueFormat": form})
            schema = StructType([StructField("value", kind)])
            (column,) = requested(schema, options)
            assert column.nullable
            other = StructType([StructField("value", StringType())])
            with pytest.raises(InvalidArgumentError, match="no column `value string`"):
                requested(other, options)

    def test_what_may_become_null_may_not_be_declared_otherwise(self) -> None:
        options = parse(BASE | {"valueFormat": "utf8", "malformed": "null"})
        schema = StructType([StructField("value", StringType(), False)])
        with pytest.raises(InvalidArgumentError, match="'value' of a log can be null"):
            requested(schema, options)


KEYS = st.one_of(st.none(), st.binary(max_size=2))


@st.composite
def ranges(draw: Any, values: Any) -> Range[Any]:
    bound = st.one_of(st.none(), values)
    among = draw(st.one_of(st.none(), st.frozensets(values, max_size=3)))
    return Range(draw(bound), draw(bound), among)


def numbers(low: int, high: int, bits: int) -> Any:
    """Some of those that are there, and those around what a column can hold."""
    bound = 1 << (bits - 1)
    edges = [-bound - 1, -bound, bound - 1, bound, 2 * bound]
    return st.integers(low, high) | st.sampled_from(edges)


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(1, 3), KEYS), max_size=12),
    ranges(numbers(1, 12, 64)),
    ranges(numbers(-3, 3, 64)),
    ranges(numbers(1, 3, 32)),
    ranges(st.binary(max_size=2)),
)
def test_rows_are_selected_as_python_would(
    records: list[tuple[int, int, bytes | None]],
    position: Range[int],
    timestamp: Range[int],
    stream: Range[int],
    key: Range[bytes],
) -> None:
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([n for _, n, _ in records], pa.int32()),
            pa.array(range(1, len(records) + 1), pa.int64()),
            pa.array([n for n, _, _ in records], pa.timestamp("us", "UTC")),
            pa.array([k for _, _, k in records], pa.binary()),
        ],
        ["stream", "position", "timestamp", "key"],
    )
    selection = Selection(position, timestamp, stream, key)
    options = parse(BASE)
    columns = requested(StructType([StructField("position", LongType())]), options)
    rows = Rows(columns, selection, options)
    found = [n for b in rows.of(iter([batch])) for n in b.column(0).to_pylist()]
    assert found == [
        at
        for at, (moment, number, name) in enumerate(records, 1)
        if at in position
        and moment in timestamp
        and number in stream
        and (name in key if name is not None else not key)
    ]
