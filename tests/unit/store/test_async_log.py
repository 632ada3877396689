"""The API for asyncio: many appends at once, cancelling, closing meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import braidlog
from braidlog import AsyncLog, Producer
from braidlog.errors import (
    ClosedError,
    LockedError,
    NotFoundError,
    ReadOnlyError,
    StoreFailedError,
)

SEGMENT_BYTES = 1 << 20


def opened(data: Path, **options: object) -> braidlog.AsyncStore:
    return braidlog.open_async(data, segment_bytes=SEGMENT_BYTES, **options)


async def test_gathered_appends_share_syncs(tmp_path: Path) -> None:
    # On a disk: in memory a sync is over before the next append has come.
    async with opened(tmp_path / "data") as node:
        log = await node.create_log("a")
        before = (await node.stats()).syncs
        positions = await asyncio.gather(*(log.append(b"%d" % i) for i in range(1000)))
        assert sorted(positions) == list(range(1, 1001))
        assert (await node.stats()).syncs - before < 500
        found = {record.position: record.value async for record in log.read()}
        assert found == {p: b"%d" % i for i, p in enumerate(positions)}


async def test_every_kind_of_append_at_once(data: Path) -> None:
    async with opened(data) as node:
        log = await node.create_log("a")

        async def work(number: int) -> int:
            count = 0
            for i in range(20):
                await log.append(b"one")
                count += len(await log.append_many([b"%d" % number] * i))
                table = pa.table({"value": [b"%d" % i] * number})
                count += 1 + len(await log.append_arrow(table))
                assert await log.submit(b"future") > 0
                count += 1
            return count

        counts = await asyncio.gather(*(work(number) for number in range(6)))
        assert log.end == 1 + sum(counts)


@pytest.mark.parametrize("turn", range(5))
async def test_what_is_durable_already_is_not_waited_for(data: Path, turn: int) -> None:
    # Nothing is synced for these, so no sync wakes the loop.
    producer = Producer(1)
    async with asyncio.timeout(10), opened(data) as node:
        log = await node.create_log("a")
        assert await log.append_many([]) == range(1, 1)
        assert await log.append(b"x", producer=producer, sequence=1) == 1
        assert await log.append(b"x", producer=producer, sequence=1) == 1
        assert await log.append_many([b"x"], producer=producer, sequence=1) == range(
            1, 2
        )


async def test_a_sync_on_another_thread_wakes_the_loop(data: Path) -> None:
    async with asyncio.timeout(20), opened(data) as node:
        log = await node.create_log("a")
        for i in range(200):
            future = log.submit(b"async")
            await asyncio.to_thread(log.blocking.append, b"blocking")
            assert await future == 2 * i + 1


async def test_a_cancelled_append_is_stored_all_the_same(data: Path) -> None:
    async with opened(data) as node:
        log = await node.create_log("a")
        tasks = [asyncio.create_task(log.append(b"%d" % i)) for i in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in found[::2])
        assert found[1::2] == list(range(2, 21, 2))
        assert await log.append(b"next") == 21


async def test_errors_come_out_of_the_call(data: Path) -> None:
    async with opened(data) as node:
        log = await node.create_log("a")
        with pytest.raises(TypeError):
            await log.append("text")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            log.submit(5)  # type: ignore[arg-type]
        with pytest.raises(ZeroDivisionError):
            await log.append_many(b"%d" % (1 // i) for i in (1, 0))
        assert await log.append(b"x") == 1


async def follow(log: AsyncLog, count: int) -> list[int]:
    found: list[int] = []
    async for record in log.subscribe():
        found.append(record.position)
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("read_only", [False, True])
async def test_tasks_follow_while_others_append(data: Path, read_only: bool) -> None:
    async with opened(data) as node:
        log = await node.create_log("a")
        async with opened(data, read_only=True) as other:
            followed = await other.log("a") if read_only else log
            async with asyncio.timeout(20), asyncio.TaskGroup() as group:
                following = [group.create_task(follow(followed, 200)) for _ in range(4)]
                for _ in range(4):
                    group.create_task(append_one_by_one(log, 50))
            assert all(each.result() == list(range(1, 201)) for each in following)


async def append_one_by_one(log: AsyncLog, count: int, value: bytes = b"x") -> None:
    for i in range(count):
        await log.append(value)
        if i % 10 == 0:
            await asyncio.sleep(0.001)


async def test_a_cancelled_subscription(data: Path) -> None:
    async with opened(data) as node:
        log = await node.create_log("a")
        await log.append(b"x")
        for _ in range(50):
            task = asyncio.create_task(follow(log, 99))
            await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await asyncio.wait_for(follow(log, 1), 10) == [1]


async def test_a_cancelled_wait(data: Path) -> None:
    async with opened(data) as node:
        log = await node.create_log("a")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await log.wait(1)
        assert not await log.wait(1, timeout=0.01)


@pytest.mark.parametrize("read_only", [False, True])
async def test_any_number_may_wait(data: Path, read_only: bool) -> None:
    # If each held a thread while it waits, this one would be theirs for minutes.
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    async with (
        asyncio.timeout(60),
        opened(data) as node,
        contextlib.AsyncExitStack() as stack,
    ):
        log = await node.create_log("a")
        other = node
        if read_only:
            other = await stack.enter_async_context(opened(data, read_only=True))
        waited = await other.log("a")
        waiting = [asyncio.create_task(waited.wait(at)) for at in range(1, 3001)]
        hasty = [waited.wait(9999, timeout=0.01) for _ in range(300)]
        assert not any(await asyncio.gather(*hasty))
        for task in waiting[::3]:
            task.cancel()
        await log.append_many([b"x"] * 2000)
        told = [task for i, task in enumerate(waiting) if i % 3 and i < 2000]
        assert all(await asyncio.gather(*told))
        late = [task for i, task in enumerate(waiting) if i % 3 and i >= 2000]
        assert not any(task.done() for task in late)
        await other.close()
        assert not any(await asyncio.gather(*late))


async def test_who_gave_up_waiting_is_forgotten(data: Path) -> None:
    async with asyncio.timeout(20), opened(data) as node:
        log = await node.create_log("a")
        patient = asyncio.create_task(log.wait(1))
        for _ in range(300):
            assert not await log.wait(9999, timeout=1e-6)
        [queue] = node._waiting_tasks()._queues.values()
        assert queue.live == 1
        assert len(queue._waiting) < 100
        await log.append(b"x")
        assert await patient
        assert node._waiting_tasks()._queues == {}


async def test_close_ends_what_waits(data: Path) -> None:
    async with asyncio.timeout(20), opened(data) as node:
        log = await node.create_log("a")
        await log.append(b"x")
        waiting = asyncio.create_task(log.wait(9999))
        following = asyncio.create_task(follow(log, 99))
        appending = [log.submit(b"y") for _ in range(100)]
        await asyncio.sleep(0.01)
        await node.close()
        assert await waiting is False
        assert len(await following) >= 1
        # Closing made durable what was submitted.
        assert await asyncio.gather(*appending) == list(range(2, 102))
        with pytest.raises(ClosedError):
            await log.append(b"z")


async def test_a_deleted_log_ends_what_waits(data: Path) -> None:
    async with asyncio.timeout(20), opened(data) as node:
        log = await node.create_log("a")
        waiting = asyncio.create_task(log.wait(99))
        await asyncio.sleep(0.01)
        await node.delete_log("a")
        with pytest.raises(NotFoundError):
            await waiting
        with pytest.raises(NotFoundError):
            await log.append(b"x")


@contextlib.contextmanager
def failing_writes() -> Iterator[None]:
    """Let every write of this process fail: files must not grow beyond nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_failed_store_fails_what_waits(data: Path) -> None:
    async with asyncio.timeout(20), opened(data) as node:
        log = await node.create_log("a")
        await log.append(b"x")
        waiting = asyncio.create_task(log.wait(9999))
        following = asyncio.create_task(follow(log, 9999))
        await asyncio.sleep(0.01)
        with failing_writes():
            # Those that come after the failure are refused at once, the others wait.
            appends = [log.append(b"y") for _ in range(10)]
            found = await asyncio.gather(*appends, return_exceptions=True)
        assert {type(each) for each in found} == {StoreFailedError}
        for task in (waiting, following, asyncio.create_task(log.append(b"z"))):
            with pytest.raises(StoreFailedError):
                await task
        # What was durable can still be read.
        assert (await log.get(1)).value == b"x"
    async with opened(data) as node:
        assert await (await node.log("a")).append(b"goes on") >= 2


async def test_a_cancelled_open_leaves_no_lock(data: Path) -> None:
    for _ in range(20):
        node = opened(data)
        task = asyncio.create_task(node.__aenter__())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    for _ in range(1000):
        try:
            async with opened(data) as node:
                await node.create_log("a")
                return
        except LockedError:
            await asyncio.sleep(0.01)
    pytest.fail("the directory stays locked")


async def test_a_cancelled_close_closes(data: Path) -> None:
    node = await opened(data).__aenter__()
    log = await node.create_log("a")
    futures = [log.submit(bytes(1000)) for _ in range(1000)]
    task = asyncio.create_task(node.close())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await node.close()
    assert await asyncio.wait_for(asyncio.gather(*futures), 10)
    async with opened(data) as node:
        assert (await node.log("a")).end == 1001


async def test_a_node_that_was_not_entered(data: Path) -> None:
    node = opened(data)
    with pytest.raises(RuntimeError, match="async with"):
        await node.create_log("a")
    await node.close()
    assert not data.exists()  # noqa: ASYNC240


async def test_read_only(data: Path) -> None:
    async with opened(data) as writer:
        await (await writer.create_log("a")).append(b"x")
        async with opened(data, read_only=True) as node:
            log = await node.log("a")
            assert [r.value async for r in log.read()] == [b"x"]
            with pytest.raises(ReadOnlyError):
                await log.append(b"y")
            with pytest.raises(ReadOnlyError):
                log.submit(b"y")


async def test_reading_in_chunks(data: Path) -> None:
    async with opened(data) as node:
        log = await node.create_log("a")
        await log.append_many([b"%d" % i for i in range(5000)])
        found = [record.value async for record in log.read(2, 4500)]
        assert found == [b"%d" % i for i in range(1, 4499)]
        reading = log.read()
        async for record in reading:
            if record.position == 3:
                break
        await reading.aclose()  # type: ignore[attr-defined]


async def test_a_log_is_iterated_over_and_says_where_it_is(data: Path) -> None:
    node = braidlog.open_async(data)
    async with node:
        log = await node.create_log("log")
        await log.append_many([b"a", b"b"])
        assert [record.value async for record in log] == [b"a", b"b"]
        assert str(data) in repr(node)
        assert "AsyncLog" in repr(log)
        assert "'log'" in repr(log)


async def test_the_rest_of_the_api(data: Path) -> None:
    async with opened(data) as node:
        log = await node.create_log("a", compression="zstd")
        await log.append_many([b"x"] * 10, timestamps=range(10))
        assert (log.name, log.first, log.end) == ("a", 1, 11)
        assert (await log.get(3)).timestamp == 2
        assert await log.find(5) == 6
        assert (await log.to_arrow(columns=["value"])).num_rows == 10
        cursor = await log.cursor("c", pin=True)
        assert [c.name for c in await log.cursors()] == [cursor.name]
        assert await log.trim(5) == 1
        assert await log.trim(5, ignore_pins=True) == 5
        await log.set_options(retention_ms=1)
        assert (await log.describe()).retention_ms == 1
        assert (await log.stats()).records == 6
        await cursor.delete()
        await node.maintain()
        await node.sync()
        assert log.first == 11
        assert await node.logs() == ["a"]


async def test_a_node_may_be_entered_again(data: Path) -> None:
    node = opened(data)
    for turn in range(1, 4):
        async with asyncio.timeout(20), node:
            log = await node.create_log("a", exist_ok=True)
            waiting = asyncio.create_task(log.wait(turn))
            # Longer than a close lets those who wait be told.
            assert not await log.wait(turn, timeout=0.2)
            assert await log.append(b"x") == turn
            assert await waiting
        assert await log.wait(turn) is False
        with pytest.raises(ClosedError):
            log.submit(b"y")


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_node_is_entered_once_at_a_time(data: Path, read_only: bool) -> None:
    async with opened(data) as writer:
        await (await writer.create_log("a")).append(b"x")
    node = opened(data, read_only=read_only)
    async with node:
        with pytest.raises(RuntimeError, match="open already"):
            await node.__aenter__()
        assert (await (await node.log("a")).get(1)).value == b"x"
    assert node.blocking.closed


class Loops:
    """A node that is opened in one event loop and used in others."""

    def __init__(self, data: Path) -> None:
        self.node = opened(data)
        asyncio.run(self.enter())

    async def enter(self) -> None:
        await self.node.__aenter__()
        self.log = await self.node.create_log("a")
        self.lost = asyncio.create_task(self.log.wait(99))
        assert await self.log.append(b"x") == 1

    async def refuse(self) -> None:
        for call in (
            self.log.append(b"y"),
            self.log.append_many([b"y"]),
            self.log.append_arrow(pa.table({"value": ["y"]})),
            self.log.wait(2, timeout=1),
        ):
            with pytest.raises(RuntimeError, match="event loop in which it was opened"):
                await call
        with pytest.raises(RuntimeError, match="event loop in which it was opened"):
            self.log.submit(b"y")
        assert [record.value async for record in self.log.read()] == [b"x"]


def test_another_loop_is_refused_and_nothing_is_stored(data: Path) -> None:
    loops = Loops(data)
    asyncio.run(loops.refuse())
    assert loops.log.blocking.append(b"z") == 2
    asyncio.run(loops.node.close())
    with braidlog.open(data) as node:
        assert [record.value for record in node.log("a")] == [b"x", b"z"]


async def test_another_loop_may_not_close(data: Path) -> None:
    async with opened(data) as node:

        def close_elsewhere() -> None:
            with pytest.raises(RuntimeError, match="event loop in which it was opened"):
                asyncio.run(node.close())

        await asyncio.to_thread(close_elsewhere)
        assert await (await node.create_log("a")).append(b"x") == 1


def test_a_loop_that_ended_keeps_no_descriptor(data: Path) -> None:
    def count() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    gc.collect()  # What other tests left.
    before = count()
    loops = Loops(data)
    assert count() > before
    loops.node.blocking.close()
    del loops
    gc.collect()
    assert count() == before


def test_a_program_that_ends_while_it_opens_leaves_no_lock(data: Path) -> None:
    async def leave() -> None:
        # The end of the loop cancels whatever is left of the open as well.
        task = asyncio.create_task(opened(data).__aenter__())
        await asyncio.sleep(0)
        task.cancel()

    for _ in range(10):
        asyncio.run(leave())
        opened_again = braidlog.open(data)
        opened_again.close()


async def test_an_open_that_fails_half_way_leaves_no_lock(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "eventfd", refuse)
        with pytest.raises(OSError, match="too many"):
            await opened(data).__aenter__()
    async with opened(data) as node:
        assert await node.logs() == []
