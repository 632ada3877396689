"""Reading tables: keys, orders, bounds, positions, indexes by each kind of field."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from braidlog import Record
from braidlog.errors import (
    BeyondEndError,
    ClosedError,
    InvalidArgumentError,
    NotFoundError,
    PositionError,
    ReadOnlyError,
    TrimmedError,
)
from conformance.api import AnyLog, AnyNode, Opener, Reopen, opener_of, params
from conformance.tables import AnyTable


@pytest.fixture(params=params(tables=True))
def opener(request: pytest.FixtureRequest, tmp_path: Any) -> Opener:
    return opener_of(request, tmp_path)


@pytest.fixture
async def table(node: AnyNode, log: AnyLog) -> AnyTable:
    return await node.create_table("table", log="log", history=1000)


def keys(found: list[Record]) -> list[bytes | None]:
    return [record.key for record in found]


async def where(reads: Any, key: bytes, **options: Any) -> int | None:
    found = await reads.get(key, **options)
    return None if found is None else int(found.position)


# -- by key ----------------------------------------------------------------------


async def test_the_newest_record_of_a_key_counts(log: AnyLog, table: AnyTable) -> None:
    assert (await table.get(b"a"), await table.applied()) == (None, 0)
    first = await log.append(b"1", key=b"a", timestamp=5, headers=[("h", b"x")])
    assert await table.get(b"a", after=first) == await log.get(first)
    second = await log.append(b"2", key=b"a")
    await log.append(b"", key=b"empty")
    assert await where(table, b"a") == second
    empty = await table.get(b"empty")
    assert empty is not None
    assert empty.value == b""
    assert await table.applied() == 3
    await log.append(None, key=b"a")
    assert await table.get(b"a") is None
    assert keys(await table.scan()) == [b"empty"]


async def test_after_names_a_record_that_is_durable(
    log: AnyLog, table: AnyTable
) -> None:
    position = await log.append(b"1", key=b"a")
    for call in (
        table.get(b"a", after=2),
        table.scan(after=2),
        table.get_many([], after=9),
    ):
        with pytest.raises(BeyondEndError) as caught:
            await call
        assert caught.value.next == 2
    assert await where(table, b"a", after=position) == 1
    for wrong in (0, -1):
        with pytest.raises(PositionError):
            await table.scan(after=wrong)


async def test_many_keys_come_in_their_order(log: AnyLog, table: AnyTable) -> None:
    names = [b"%d" % n for n in range(50)]
    await log.append_many(names, keys=names)
    wanted = [b"7", b"none", b"49", b"7", b""]
    found = await table.get_many(wanted)
    assert [each and each.key for each in found] == [b"7", None, b"49", b"7", None]
    assert await table.get_many([]) == []
    for kind in (pa.binary(), pa.large_binary(), pa.string()):
        rows = await table.get_many(pa.array(["7", "none", "49"]).cast(kind))
        assert rows["key"].to_pylist() == [b"7", b"none", b"49"]
        assert rows["position"].to_pylist() == [8, None, 50]
        assert rows["value"].to_pylist() == [b"7", None, b"49"]
    for wrong in (pa.array([1]), pa.array([b"a", None])):
        with pytest.raises(InvalidArgumentError, match="without nulls"):
            await table.get_many(wrong)


@pytest.mark.parametrize("flushed", [False, True])
async def test_scans_with_every_bound(
    log: AnyLog, table: AnyTable, flushed: bool
) -> None:
    names = sorted({b"%d" % (n * 7919 % 300) for n in range(200)} | {b"", b"\xff\xff"})
    await log.append_many([b"v" + name for name in names], keys=names[::-1])
    if flushed:
        await table.flush()
        await log.append_many([b"new"] * 2, keys=[names[5], b"5x"])
        names = sorted({*names, b"5x"})
    bounds = [None, b"", b"2", b"25", b"5", b"\xff", b"\xff\xff", b"\xff\xff\xff"]
    for begin in bounds:
        for end in bounds:
            inside = [n for n in names if begin is None or n >= begin]
            inside = [n for n in inside if end is None or n < end]
            assert keys(await table.scan(begin, end)) == inside
            back = await table.scan(begin, end, reverse=True, limit=3)
            assert keys(back) == inside[::-1][:3]
    for prefix in bounds[1:]:
        assert prefix is not None
        inside = [n for n in names if n.startswith(prefix)]
        assert keys(await table.scan(prefix=prefix)) == inside
        found = await table.scan(b"22", b"24", prefix=prefix, reverse=True)
        assert keys(found) == [n for n in inside[::-1] if b"22" <= n < b"24"]
    for limit in (0, 1, 10_000):
        assert keys(await table.scan(limit=limit)) == names[:limit]
    for wrong in (-1, "1", True):
        with pytest.raises(InvalidArgumentError, match="limit"):
            await table.scan(limit=wrong)


async def test_batches_are_what_the_scan_gives(log: AnyLog, table: AnyTable) -> None:
    names = [b"%03d" % (n * 7 % 100) for n in range(150)]
    await log.append_many([b"%d" % n for n in range(150)], keys=names, timestamps=9)
    await log.append(None, key=b"007")
    await log.append(b"h", key=b"008", headers=[("a", b"1"), ("b", None)])
    schema = (await log.to_arrow()).schema
    for bounds, options in [
        ((), {}),
        ((b"01", b"09"), {}),
        ((), {"prefix": b"00"}),
        ((b"zzz",), {}),
    ]:
        found = await table.scan(*bounds, **options)
        whole = await table.to_arrow(*bounds, **options)
        assert whole.schema == schema
        rows = list(
            zip(*(whole[name].to_pylist() for name in ("position", "key")), strict=True)
        )
        assert rows == [(each.position, each.key) for each in found]
        assert whole["value"].to_pylist() == [each.value for each in found]
        headers = [
            [tuple(each) for each in row] for row in whole["headers"].to_pylist()
        ]
        assert headers == [list(each.headers) for each in found]
        batches = await table.batches(*bounds, **options)
        assert pa.Table.from_batches(batches, schema) == whole
    some = await table.to_arrow(columns=["value", "key"])
    assert some.column_names == ["value", "key"]
    with pytest.raises(InvalidArgumentError, match="colour"):
        await table.to_arrow(columns=["colour"])


# -- by position -----------------------------------------------------------------


async def test_a_table_at_a_position(log: AnyLog, table: AnyTable) -> None:
    for number in range(1, 21):
        await log.append(b"%d" % number, key=b"k%d" % (number % 3))
    await table.flush()
    async with table.at(7) as early, table.at() as newest:
        await log.append_many([b"later"] * 50, keys=[b"k%d" % n for n in range(50)])
        await table.flush()
        assert (early.position, newest.position) == (7, 20)
        assert [each.position for each in await early.scan()] == [6, 7, 5]
        assert [each.position for each in await newest.scan()] == [18, 19, 20]
        assert await where(early, b"k1") == 7
        assert await where(early, b"k1", after=7) == 7
        with pytest.raises(BeyondEndError):
            await early.get(b"k1", after=8)
        assert (await early.to_arrow())["position"].to_pylist() == [6, 7, 5]
        assert [each.num_rows for each in await early.batches(b"k1", b"k2")] == [1]
        assert [
            each and each.position for each in await early.get_many([b"k2", b"x"])
        ] == [5, None]
    assert len(await table.scan()) == 50
    with pytest.raises(BeyondEndError):
        async with table.at(72):
            pass
    with pytest.raises(PositionError):
        async with table.at(0):
            pass


async def test_a_position_that_is_too_long_ago(node: AnyNode, log: AnyLog) -> None:
    table = await node.create_table("short", log="log", history=5)
    for number in range(30):
        await log.append(b"%d" % number, key=b"k%d" % (number % 3))
    await table.flush()
    with pytest.raises(TrimmedError) as caught:
        async with table.at(3):
            pass
    oldest = (await table.describe()).oldest
    assert caught.value.first == oldest <= 25
    async with table.at(oldest) as snapshot:
        assert len(await snapshot.scan()) == 3


async def test_a_closed_snapshot_refuses(log: AnyLog, table: AnyTable) -> None:
    await log.append(b"1", key=b"a")
    async with table.at(1) as snapshot:
        pass
    with pytest.raises(ClosedError):
        await snapshot.get(b"a")
    with pytest.raises(ClosedError):
        await snapshot.scan()


async def test_waiting_for_a_position(log: AnyLog, table: AnyTable) -> None:
    assert not await table.wait(1, timeout=0)
    position = await log.append(b"1", key=b"a")
    assert await table.wait(position, timeout=10)
    assert not await table.wait(position + 1, timeout=0.05)
    with pytest.raises(PositionError):
        await table.wait(0)


# -- indexes ---------------------------------------------------------------------

NUMBERS = [
    3,
    -7,
    2.5,
    0,
    -0.0,
    1 << 53,
    (1 << 53) + 1,
    -(1 << 63),
    (1 << 64) - 1,
    1e300,
]


async def test_untyped_fields_of_json_sort_as_bool_number_text(
    node: AnyNode, log: AnyLog
) -> None:
    table = await node.create_table("t", log="log", indexes={"by": "json:/a/0"})
    values = [*NUMBERS, True, False, "", "b", "a\x00", "a", "é"]
    for at, value in enumerate([*values, None]):
        text = json.dumps({"a": [value]}).encode()
        await log.append(text, key=b"%02d" % at)
    await log.append(b'{"b": 1}', key=b"absent")
    rank = {bool: 0, int: 1, float: 1, str: 2}
    order = sorted(
        range(len(values)),
        key=lambda at: (
            (rank[type(values[at])], values[at], at)
            if not isinstance(values[at], str)
            else (2, str(values[at]).encode(), at)
        ),
    )
    by = await table.index("by")
    assert keys(await by.scan()) == [b"%02d" % at for at in order]
    assert keys(await by.scan(reverse=True)) == [b"%02d" % at for at in order[::-1]]
    assert keys(await by.get(0)) == [b"03", b"04"]
    assert keys(await by.get(1 << 53)) == [b"05"]
    assert keys(await by.get(True)) == [b"10"]
    assert keys(await by.get("a")) == [b"15"]
    assert keys(await by.scan(2.5, 3.5)) == [b"02", b"00"]
    assert keys(await by.get(0, limit=1)) == [b"03"]
    description = (await table.describe()).indexes[0]
    assert (description.field, description.state, description.missing) == (
        "json:/a/0",
        "active",
        0,
    )


FIELDS: list[tuple[str, list[Any], list[bytes]]] = [
    ("json:/f:int", [-5, 0, 7, 1 << 60], [b'{"f": 1.5}', b'{"f": "x"}']),
    ("json:/f:float", [-2.5, 0, 1, 3.25], [b'{"f": true}', b'{"f": {}}']),
    ("json:/f:text", ["", "a", "a\x00b", "b"], [b'{"f": 1}', b"[1", b""]),
    ("json:/f:bool", [False, True], [b'{"f": 0}', b"nothing"]),
]


@pytest.mark.parametrize(
    ("field", "values", "refused"), FIELDS, ids=lambda x: str(x)[:12]
)
async def test_typed_fields_of_json(
    node: AnyNode, log: AnyLog, field: str, values: list[Any], refused: list[bytes]
) -> None:
    table = await node.create_table("t", log="log", indexes={"by": field})
    for at, value in reversed(list(enumerate(values))):
        await log.append(json.dumps({"f": value}).encode(), key=b"%d" % at)
    positions = [await log.append(text, key=b"r") for text in refused]
    by = await table.index("by")
    assert keys(await by.scan()) == [b"%d" % at for at in range(len(values))]
    for at, value in enumerate(values):
        assert keys(await by.get(value)) == [b"%d" % at]
        assert keys(await by.scan(value)) == [b"%d" % n for n in range(at, len(values))]
        assert keys(await by.scan(None, value)) == [b"%d" % n for n in range(at)]
    description = (await table.describe()).indexes[0]
    assert description.missing == len(refused)
    assert description.missing_first is not None
    assert description.missing_first[0] == positions[0]
    with pytest.raises(InvalidArgumentError, match="type"):
        await by.get(b"bytes")


async def test_fields_of_headers_and_values(node: AnyNode, log: AnyLog) -> None:
    indexes = {
        "raw": "header:city",
        "text": "header:city:text",
        "int": "header:n:int",
        "value": "value",
        "number": "value:float",
    }
    table = await node.create_table("t", log="log", indexes=indexes)
    rows = [
        (b"a", b"1.5", [("city", b"Oslo"), ("n", b"10")]),
        (b"b", b"-3", [("city", b"Bergen"), ("n", b"9")]),
        (b"c", b"text", [("city", b"\xff"), ("n", b"x")]),
        (b"d", b"", [("city", None)]),
    ]
    for key, value, headers in rows:
        await log.append(value, key=key, headers=headers)
    found = {name: keys(await (await table.index(name)).scan()) for name in indexes}
    assert found == {
        "raw": [b"b", b"a", b"c"],
        "text": [b"b", b"a"],
        "int": [b"b", b"a"],
        "value": [b"d", b"b", b"a", b"c"],
        "number": [b"b", b"a"],
    }
    missing = {each.name: each.missing for each in (await table.describe()).indexes}
    assert missing == {"raw": 0, "text": 1, "int": 1, "value": 0, "number": 2}
    assert keys(await (await table.index("text")).get("Oslo")) == [b"a"]
    assert keys(await (await table.index("raw")).get(b"\xff")) == [b"c"]


async def test_several_fields_make_one_index(node: AnyNode, log: AnyLog) -> None:
    field = "json:/city:text+json:/n:int+header:h"
    table = await node.create_table("t", log="log", indexes={"by": field})
    rows = [
        ("Oslo", 2, b"x"),
        ("Oslo", 1, b"y"),
        ("Bergen", 9, b"x"),
        ("Oslo", 1, b"a"),
    ]
    for at, (city, number, header) in enumerate(rows):
        text = json.dumps({"city": city, "n": number}).encode()
        await log.append(text, key=b"%d" % at, headers=[("h", header)])
    await log.append(b'{"city": "Oslo"}', key=b"lacks one", headers=[("h", b"x")])
    by = await table.index("by")
    assert keys(await by.scan()) == [b"2", b"3", b"1", b"0"]
    assert keys(await by.get(("Oslo", 1))) == [b"3", b"1"]
    assert keys(await by.get("Oslo")) == [b"3", b"1", b"0"]
    assert keys(await by.scan(("Oslo", 1, b"b"), ("Oslo", 3))) == [b"1", b"0"]
    with pytest.raises(InvalidArgumentError, match="4 values for an index of 3"):
        await by.get(("Oslo", 1, b"x", 4))


async def test_an_index_follows_its_table(node: AnyNode, log: AnyLog) -> None:
    table = await node.create_table(
        "t", log="log", indexes={"by": "value"}, history=100
    )
    for value, key in [(b"x", b"1"), (b"y", b"2"), (b"x", b"3"), (b"z", b"1")]:
        await log.append(value, key=key)
    await log.append(None, key=b"2")
    by = await table.index("by")
    for _ in range(2):
        assert keys(await by.scan()) == [b"3", b"1"]
        assert keys(await by.get(b"y")) == []
        async with table.at(3) as snapshot:
            early = await snapshot.index("by")
            assert keys(await early.get(b"x")) == [b"1", b"3"]
            assert keys(await early.scan(b"x\x00", reverse=True)) == [b"2"]
            rows = await early.to_arrow(columns=["value", "key"])
            assert rows["value"].to_pylist() == [b"x", b"x", b"y"]
        await table.flush()
    assert [each.num_rows for each in await by.batches(b"z")] == [1]
    assert await table.verify() == (2, 2)
    with pytest.raises(NotFoundError, match="did you mean 'by'"):
        await table.index("bye")


async def test_a_strict_index_refuses_to_be_read(node: AnyNode, log: AnyLog) -> None:
    indexes = {"loose": "json:/a", "strict": "strict json:/a"}
    table = await node.create_table("t", log="log", indexes=indexes)
    await log.append(b'{"a": 1}', key=b"a")
    strict = await table.index("strict")
    assert keys(await strict.scan()) == [b"a"]
    position = await log.append(b"no json", key=b"b")
    assert keys(await (await table.index("loose")).scan()) == [b"a"]
    with pytest.raises(InvalidArgumentError, match=f"position {position}"):
        await strict.scan()
    assert len(await table.scan()) == 2


# -- figures, and what a reader may --------------------------------------------------


async def test_what_is_said_of_a_table(
    node: AnyNode, log: AnyLog, opener: Opener
) -> None:
    await log.append_many([b"1"] * 4, keys=[b"a", b"b", None, b"k" * 20_000])
    table = await node.create_table(
        "t", log="log", begin=2, history=7, memory_bytes=1 << 20, deletes="empty"
    )
    assert await table.wait(4, timeout=60)
    seen = await table.describe()
    assert (seen.name, seen.log, seen.start, seen.history) == ("t", "log", 2, 7)
    assert (seen.deletes, seen.memory_bytes_max) == ("empty", 1 << 20)
    assert (seen.applied, seen.lag) == (4, 0)
    assert (seen.left_out, seen.left_out_first, seen.indexes) == (2, 3, ())
    if not opener.CLUSTER:
        assert (seen.pin, seen.failure) == (2, None)
    await table.flush()
    figures = await table.stats()
    assert (figures.applied, figures.flushed) == (4, 4)
    assert (figures.files, figures.flushes, figures.left_out) == (1, 1, 2)
    pins = {each.position for each in await log.cursors()}
    assert pins == {5}
    if opener.CLUSTER:
        hosts = (await table.describe()).hosts
        assert [(each.applied, each.failure) for each in hosts] == [(4, None)] * 3
    assert (await node.tables(), table.name, table.log) == (["t"], "t", "log")


async def test_everything_is_there_after_a_reopen(reopen: Reopen) -> None:
    node = await reopen()
    log = await node.create_log("log")
    table = await node.create_table("t", log="log", indexes={"by": "value"})
    for number in range(60):
        await log.append(b"%d" % (number % 7), key=b"%d" % (number % 23))
        if number == 30:
            await table.flush()
    before = (await table.scan(), await (await table.index("by")).scan())
    await node.close()
    node = await reopen()
    table = await node.table("t")
    assert (await table.scan(), await (await table.index("by")).scan()) == before
    assert await table.verify() == (23, 23)


async def test_a_reader_of_the_directory(opener: Opener, reopen: Reopen) -> None:
    if not opener.READ_ONLY:
        return  # What a client of a cluster may do is a matter of its token.
    node = await reopen()
    log = await node.create_log("log")
    table = await node.create_table("t", log="log", indexes={"by": "value"})
    reader = await reopen(read_only=True)
    assert await reader.tables() == ["t"]
    theirs = await reader.table("t")
    for flushed in (False, True):
        await log.append(b"%d" % flushed, key=b"%d" % flushed)
        if flushed:
            await table.flush()
        assert await theirs.scan() == await table.scan()
        assert (
            await (await theirs.index("by")).scan()
            == await (await table.index("by")).scan()
        )
    for call in (
        theirs.flush(),
        reader.create_table("u", log="log"),
        reader.drop_table("t"),
        reader.ddl(("drop", "t")),
    ):
        with pytest.raises(ReadOnlyError):
            await call


async def test_a_closed_store_refuses(
    node: AnyNode, log: AnyLog, table: AnyTable
) -> None:
    await log.append(b"1", key=b"a")
    await node.close()
    for call in (table.get(b"a"), table.scan(), table.describe(), node.tables()):
        with pytest.raises(ClosedError):
            await call
