"""What every implementation of the log promises, in one suite for all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from braidlog import Producer
from braidlog.errors import (
    AlreadyExistsError,
    BeyondEndError,
    FencedError,
    InvalidArgumentError,
    LogError,
    NotFoundError,
    PositionError,
    ReadOnlyError,
    SequenceGapError,
    TooLargeError,
    TrimmedError,
)
from conformance.api import AnyLog, AnyNode, Opener, Reopen
from unit.archive.made import archive_table


async def values(log: AnyLog) -> list[bytes]:
    return [record.value for record in await log.read()]


async def test_positions_are_dense(log: AnyLog) -> None:
    assert await log.append(b"a") == 1
    assert await log.append_many([b"b", b"c"]) == range(2, 4)
    assert await log.append_arrow(pa.table({"value": [b"d"]})) == range(4, 5)
    assert await log.append_many([]) == range(5, 5)
    assert await log.append_arrow(
        pa.table({"value": pa.array([], pa.binary())})
    ) == range(5, 5)
    assert (log.first, log.end) == (1, 5)
    assert await values(log) == [b"a", b"b", b"c", b"d"]


async def test_a_record_comes_back_as_it_went_in(log: AnyLog) -> None:
    headers = [("h", b"1"), ("h", b"2")]
    await log.append(b"v", key=b"k", timestamp=7, headers=headers)
    record = await log.get(1)
    assert record.as_tuple() == (1, 7, b"k", b"v", tuple(headers))
    assert await log.read() == [record]


async def test_a_null_value_is_not_an_empty_one(
    log: AnyLog, node: AnyNode, reopen: Reopen
) -> None:
    headers = [("a", None), ("b", b""), ("a", b"1")]
    await log.append(None, key=b"k", timestamp=7, headers=headers)
    await log.append(b"", key=b"k", timestamp=7)
    await log.append_many(
        [None, b"", b"v", None],
        keys=[b"k", None, b"l", b"m"],
        headers=[None, [("h", None)], None, {"h": b"x"}],
        timestamps=8,
    )
    await log.append_many([None, b"w"], timestamps=9)
    await log.append_many([], keys=[])
    table = pa.table(
        {
            "key": pa.array([b"n", b"o"], pa.binary()),
            "value": pa.array([None, b"x"], pa.binary()),
            "headers": pa.array([[], [("h", None)]], pa.map_(pa.string(), pa.binary())),
        }
    )
    await log.append_arrow(table)
    expected = [None, b"", None, b"", b"v", None, None, b"w", None, b"x"]
    named = [*headers, ("h", None), ("h", b"x"), ("h", None)]
    for _ in range(2):
        read = await log.read()
        assert [record.value for record in read] == expected
        assert [pair for record in read for pair in record.headers] == named
        assert [(await log.get(n)).value for n in range(1, 11)] == expected
        kept = [r.value for r in await log.read(key=b"k")]
        assert kept == [None, b"", None]
        exported = await log.to_arrow()
        assert exported["value"].to_pylist() == expected
        pairs = [pair for row in exported["headers"].to_pylist() for pair in row]
        assert pairs == named
        # Batches without null values lie beside them.
        assert await log.to_arrow(5, 6)
        await node.close()
        node = await reopen()
        log = await node.log("log")
    assert (await log.append_many([None] * 3000))[-1] == 3010
    assert set(await values(log)) == {None, b"", b"v", b"w", b"x"}


async def test_everything_is_there_after_a_reopen(
    log: AnyLog, node: AnyNode, reopen: Reopen
) -> None:
    await log.append_many([b"%d" % i for i in range(3000)])
    cursor = await log.cursor("c")
    await cursor.commit(5)
    cursor = await log.set_cursor("c", cursor.position, pin=True, lease=60.0)
    assert (cursor.pin, cursor.lease) == (True, 60.0)
    assert await log.trim(9) == 5
    await node.close()
    node = await reopen()
    log = await node.log("log")
    assert await values(log) == [b"%d" % i for i in range(4, 3000)]
    assert (await log.cursor("c")).position == 5


async def test_ranges_and_filters(log: AnyLog) -> None:
    for i in range(1, 11):
        await log.append(b"%d" % i, key=b"%d" % (i % 2), timestamp=10 * i)

    async def found(*bounds: int | None, **filters: Any) -> list[int]:
        return [record.position for record in await log.read(*bounds, **filters)]

    assert await found(3, 5) == [3, 4]
    assert await found(9) == [9, 10]
    assert await found(11) == await found(5, 5) == []
    assert await found(key=b"0", limit=2) == [2, 4]
    assert await found(since=30, until=50) == [3, 4]
    assert [await log.find(t) for t in (0, 55, 101)] == [1, 6, None]
    table = await log.to_arrow(2, 4, columns=["position"])
    assert table["position"].to_pylist() == [2, 3]


async def test_what_was_trimmed_comes_from_the_archive(
    log: AnyLog, tmp_path: Path
) -> None:
    for i in range(1, 11):
        await log.append(b"%d" % i, key=b"%d" % (i % 2), timestamp=10 * i)
    before = await log.read()
    table = await log.to_arrow()
    archive_table(table.slice(0, 6), log.id, tmp_path)
    await log.trim(5)
    assert await log.read(include_archive=tmp_path) == before
    with pytest.raises(NotFoundError):
        await log.read(include_archive=True)
    await log.set_archive(tmp_path)
    # The records are of 1970: with less a node may trim them in the midst of this.
    await log.set_options(retention_ms=10**13)
    archive = await log.archive()
    assert (archive.begin, archive.end, log.options.archive) == (1, 7, str(tmp_path))
    assert await log.read(include_archive=True) == before
    assert await log.to_arrow(include_archive=True) == table
    options: dict[str, Any] = {"include_archive": True, "columns": ["key"]}
    assert await log.to_arrow(3, 8, **options) == table.select(["key"]).slice(2, 5)
    found = await log.read(2, 9, key=b"0", since=30, limit=2, include_archive=True)
    assert [record.position for record in found] == [4, 6]
    assert await log.read(11, include_archive=True) == []
    await log.trim(9)
    for begin in (None, 3, 8):
        with pytest.raises(TrimmedError) as caught:
            await log.read(begin, include_archive=True)
        assert caught.value.first == 9
    assert await log.read(3, 7, include_archive=True) == before[2:6]
    assert await log.read(9, include_archive=True) == before[8:]
    with pytest.raises(BeyondEndError):
        await log.read(12, include_archive=True)
    with pytest.raises(PositionError):
        await log.read(0, include_archive=True)
    await log.set_archive(None)
    with pytest.raises(NotFoundError):
        await log.archive()


@pytest.mark.parametrize("position", [-1, 0, 3, 100])
async def test_outside_of_what_is_there(log: AnyLog, position: int) -> None:
    await log.append_many([b"a", b"b"])
    error = PositionError if position < 1 else BeyondEndError
    with pytest.raises(error):
        await log.get(position)


BAD: dict[str, tuple[type[Exception], Callable[[AnyLog], Awaitable[Any]]]] = {
    "type": (TypeError, lambda log: log.append("text")),  # type: ignore[arg-type]
    "one of many": (TypeError, lambda log: log.append_many([b"a", "b"])),  # type: ignore[list-item]
    "size": (TooLargeError, lambda log: log.append(bytes(1 << 20))),
    "late size": (
        TooLargeError,
        lambda log: log.append_many([*[b"x" * 1000] * 3000, bytes(1 << 20)]),
    ),
    "number": (
        InvalidArgumentError,
        lambda log: log.append_arrow(pa.table({"value": [1, 2]})),
    ),
    "position": (InvalidArgumentError, lambda log: log.get(-1)),
    "trim": (BeyondEndError, lambda log: log.trim(99)),
    "gap": (
        SequenceGapError,
        lambda log: log.append(b"", producer=Producer(1), sequence=5),
    ),
    "timeout": (InvalidArgumentError, lambda log: log.wait(9, timeout=float("nan"))),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_call_changes_nothing(log: AnyLog, case: str) -> None:
    error, call = BAD[case]
    with pytest.raises(error):
        await call(log)
    assert await log.append(b"next") == 1
    assert await values(log) == [b"next"]


async def test_a_repeat_is_stored_once(
    log: AnyLog, node: AnyNode, reopen: Reopen
) -> None:
    producer = Producer(1)
    for _ in range(2):
        assert await log.append(b"a", producer=producer, sequence=1) == 1
        assert await log.append_many(
            [b"b"] * 3, producer=producer, sequence=2
        ) == range(2, 5)
    await node.close()
    log = await (await reopen()).log("log")
    assert await log.append(b"a", producer=producer, sequence=1) == 1
    assert await log.next_sequence(producer) == 5
    assert await log.append(b"c", producer=Producer(1, 2), sequence=1) == 5
    with pytest.raises(FencedError):
        await log.append(b"d", producer=producer, sequence=5)


async def test_trimming(log: AnyLog) -> None:
    await log.append_many([b"x"] * 10)
    assert await log.trim(4) == 4
    assert await log.trim(2) == 4
    with pytest.raises(TrimmedError) as caught:
        await log.get(3)
    assert caught.value.first == 4
    assert await log.trim(11) == 11
    assert await values(log) == []
    assert await log.append(b"y") == 11


async def test_the_first_timestamp_is_that_of_the_first_record_kept(
    log: AnyLog, node: AnyNode, reopen: Reopen
) -> None:
    assert await log.first_timestamp() is None
    for timestamp in (70, 50, 90):
        await log.append(b"", timestamp=timestamp)
    assert await log.first_timestamp() == 70
    await log.trim(2)
    assert await log.first_timestamp() == 50
    await node.close()
    log = await (await reopen()).log("log")
    assert await log.first_timestamp() == 50
    await log.trim(4)
    assert await log.first_timestamp() is None
    await log.append(b"", timestamp=0)
    assert await log.first_timestamp() == 0


async def test_the_catalog(node: AnyNode, reopen: Reopen) -> None:
    names = ["a", "ü", "x y.z"]
    for name in names:
        await (await node.create_log(name)).append(name.encode())
    with pytest.raises(AlreadyExistsError):
        await node.create_log("a")
    assert (await node.create_log("a", exist_ok=True)).end == 2
    await node.delete_log("a")
    for call in (node.log, node.delete_log):
        with pytest.raises(NotFoundError):
            await call("a")
    await node.close()
    node = await reopen()
    assert await node.logs() == sorted(names[1:])


async def test_waiting(log: AnyLog) -> None:
    assert not await log.wait(1, timeout=0)
    assert not await log.wait(1, timeout=0.01)
    await log.append(b"x")
    assert await log.wait(1, timeout=0)
    assert await log.wait(1)


async def test_following(log: AnyLog) -> None:
    await log.append_many([b"x"] * 5)
    assert [r.position async for r in log.subscribe(timeout=0)] == [1, 2, 3, 4, 5]
    assert [r.position async for r in log.subscribe(4, timeout=0)] == [4, 5]
    assert [r async for r in log.subscribe(6, timeout=0.01)] == []


async def test_a_follower(log: AnyLog, reopen: Reopen, opener: Opener) -> None:
    if not opener.READ_ONLY:
        return  # What a client of a cluster may do is a matter of its token.
    follower = await reopen(read_only=True)
    followed = await follower.log("log")
    await log.append_many([b"a", b"b"])
    assert await values(followed) == [b"a", b"b"]
    assert await followed.wait(2)
    assert [r.position async for r in followed.subscribe(timeout=0)] == [1, 2]
    with pytest.raises(ReadOnlyError):
        await followed.append(b"c")
    with pytest.raises(ReadOnlyError):
        await follower.create_log("new")


async def test_closed(log: AnyLog, node: AnyNode) -> None:
    await log.append(b"x")
    await node.close()
    await node.close()
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: log.append(b"y"),
        lambda: log.append_many([b"y"]),
        lambda: log.get(1),
        log.read,
        node.logs,
    ]
    for call in calls:
        with pytest.raises(LogError, match="closed"):
            await call()


async def test_a_cursor_has_the_same_calls_everywhere(log: AnyLog) -> None:
    await log.append_many([b"x"] * 5)
    cursor = await log.cursor("c", pin=True, lease=60)
    other = await log.cursor("c")
    await cursor.commit(3)
    assert (cursor.name, cursor.position) == ("c", 3)
    assert (cursor.pin, cursor.lease) == (True, 60.0)
    await other.refresh()
    assert (other.position, other.touched) == (3, cursor.touched)
    with pytest.raises(InvalidArgumentError, match="from 1 to 6"):
        await cursor.commit(7)
    assert [(c.name, c.position) for c in await log.cursors()] == [("c", 3)]
    await cursor.delete()
    for call in (other.refresh, lambda: other.commit(1)):
        with pytest.raises(NotFoundError, match="'c'"):
            await call()
    assert await log.cursors() == []
