"""Calls that meet in the wrong moment: bounds, closes, deletions, other programs."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import pytest

from braidlog.client import AsyncClient, AsyncClusterLog, Client, background
from braidlog.client.append.byte_budget import ByteBudget
from braidlog.client.background import BackgroundLoop
from braidlog.errors import (
    ClosedError,
    DeadlineError,
    LogError,
    NotFoundError,
    NotReadyError,
    PositionError,
    TrimmedError,
    UnauthorizedError,
)
from braidlog.types import Producer
from braidlog.wire.messages import Append, Message, Read
from unit.client.fake import FakeCluster


def no_appends(node: int, message: Message) -> str:
    return "hang" if isinstance(message, Append) else ""


async def soon(call: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(call, 5)


# -- budget ----------------------------------------------------------------------


async def test_nobody_overtakes_who_got_room_and_has_not_run_yet() -> None:
    budget = ByteBudget(10)
    assert budget.take_now(10)
    first = asyncio.create_task(budget.take(4))
    await asyncio.sleep(0)
    budget.give(10)
    assert not budget.take_now(4)
    second = asyncio.create_task(budget.take(4))
    await first
    await soon(second)
    assert budget.take_now(2)
    assert not budget.take_now(1)


async def test_one_key_keeps_its_order_at_the_bound(cluster: FakeCluster) -> None:
    """Also if an append begins in the moment in which those before it get room."""
    async with cluster.client(
        outstanding_bytes_max=400, record_bytes_max=400
    ) as client:
        log = await client.create_log("log", streams=2)
        chance, calls = random.Random(1), []
        for i in range(300):
            calls.append(asyncio.create_task(log.append(b"%d" % i, key=b"k")))
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
        positions = await soon(asyncio.gather(*calls))
        assert positions == sorted(positions)


async def test_a_producer_at_the_bound_leaves_no_gap(cluster: FakeCluster) -> None:
    async with cluster.client(
        outstanding_bytes_max=200, record_bytes_max=200
    ) as client:
        log = await client.create_log("log")
        chance, producer, calls = random.Random(1), Producer(7), []
        for i in range(1, 300):
            call = log.append(b"v", producer=producer, sequence=i)
            calls.append(asyncio.create_task(call))
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0)
        assert await soon(asyncio.gather(*calls)) == list(range(1, 300))


# -- close and delete ------------------------------------------------------------


@pytest.mark.parametrize("how", ["read", "connect"])
async def test_a_subscription_ends_whatever_it_waits_for(
    cluster: FakeCluster, how: str
) -> None:
    """The nodes are gone, so it looks for them when the client closes."""
    client = cluster.client(retry_max_s=0.001)
    await client.__aenter__()
    log = await client.create_log("log")
    await log.append(b"a")
    seen = asyncio.Event()

    async def follow() -> list[int]:
        found = []
        async for record in log.subscribe():
            found.append(record.position)
            seen.set()
        return found

    task = asyncio.create_task(follow())
    await seen.wait()
    if how == "connect":
        right = cluster.connect

        async def hang(address: str) -> Any:
            await asyncio.sleep(60)
            return await right(address)

        client._cluster._links._connector = hang
    for node in cluster.nodes:
        cluster.kill(node)
    cluster.fault = lambda node, message: "hang"
    await asyncio.sleep(0.05)
    await client.close()
    assert await soon(task) == [1]


async def test_whoever_asks_when_the_client_closes_hears_of_it(
    cluster: FakeCluster,
) -> None:
    client = cluster.client()
    await client.__aenter__()
    log = await client.create_log("log")
    cluster.dead = set(cluster.nodes)

    async def hang(address: str) -> Any:
        await asyncio.sleep(60)

    client._cluster._links._connector = hang
    for link in cluster.links:
        link.lose()
    scan = asyncio.create_task(client.logs())
    refresh = asyncio.create_task(client._cluster.refresh())
    wait = asyncio.create_task(log.wait(5))
    await asyncio.sleep(0.02)
    await client.close()
    for task in (scan, refresh):
        with pytest.raises(ClosedError):
            await soon(task)
    assert await soon(wait) is False


def test_a_close_ends_what_other_threads_wait_for() -> None:
    fake = FakeCluster()
    client = Client(fake.client)
    client.__enter__()
    log = client.create_log("log")
    log.append(b"a")
    fake.fault = no_appends
    found: dict[str, object] = {}
    seen: list[int] = []

    def call(name: str, function: Callable[[], object]) -> None:
        try:
            found[name] = function()
        except LogError as error:
            found[name] = type(error)

    calls: dict[str, Callable[[], object]] = {
        "subscribe": lambda: seen.extend(r.position for r in log.subscribe()),
        "wait": lambda: log.wait(9),
        "append": lambda: log.append(b"b"),
        "many": lambda: log.append_many([b"b"] * 9),
    }
    threads = [
        threading.Thread(target=call, args=each, daemon=True) for each in calls.items()
    ]
    for thread in threads:
        thread.start()
    while not seen or sum(isinstance(m, Append) for _, m in fake.received) < 2:
        time.sleep(0.001)
    client.close()
    for thread in threads:
        thread.join(5)
    assert seen == [1]
    assert found == {
        "subscribe": None,
        "wait": False,
        "append": ClosedError,
        "many": ClosedError,
    }


async def test_closing_fails_many_that_wait_for_room(cluster: FakeCluster) -> None:
    client = cluster.client(
        outstanding_bytes_max=1000, record_bytes_max=900, batch_bytes_max=500
    )
    async with client:
        log = await client.create_log("log", streams=2)
        cluster.fault = no_appends
        many = asyncio.create_task(log.append_many([bytes(400)] * 9))
        await asyncio.sleep(0.01)
    with pytest.raises(ClosedError) as caught:
        await soon(many)
    assert caught.value.outcome == "unknown"


async def test_an_append_to_a_log_that_is_deleted_meanwhile(
    cluster: FakeCluster, client: AsyncClient, log: AsyncClusterLog
) -> None:
    cluster.fault = no_appends
    append = asyncio.create_task(log.append(b"a"))
    await asyncio.sleep(0.01)
    await client.delete_log("log")
    with pytest.raises(NotFoundError) as caught:
        await soon(append)
    assert caught.value.outcome == "unknown"


async def test_a_subscription_to_a_log_of_the_same_name_is_another_one(
    client: AsyncClient, log: AsyncClusterLog
) -> None:
    await log.append(b"a")
    seen = asyncio.Event()

    async def follow() -> None:
        async for _ in log.subscribe():
            seen.set()

    task = asyncio.create_task(follow())
    await seen.wait()
    await client.delete_log("log")
    again = await client.create_log("log")
    await again.append(b"b")
    with pytest.raises(NotFoundError):
        await soon(task)
    with pytest.raises(NotFoundError):
        _ = [record async for record in log.subscribe(2, timeout=0)]
    assert [r.value async for r in again.subscribe(timeout=0)] == [b"b"]


async def test_nothing_stays_of_subscriptions_that_failed(
    cluster: FakeCluster, client: AsyncClient, log: AsyncClusterLog
) -> None:
    answer = cluster.answer

    async def refused(node: int, message: Message, payload: bytes) -> Any:
        if isinstance(message, Read):
            raise UnauthorizedError("no reads with this token")
        return await answer(node, message, payload)

    await log.append_many([b"a"] * 9)
    listeners = len(client._cluster._listeners)
    await log.trim(5)
    for _ in range(3):
        with pytest.raises(TrimmedError):
            _ = [r async for r in log.subscribe(2, timeout=0)]
        reading = log._reader.follow(5, 0)
        await anext(reading)
        await reading.aclose()
    cluster.answer = refused  # type: ignore[method-assign]
    for _ in range(3):
        with pytest.raises(UnauthorizedError):
            _ = [r async for r in log.read()]
    assert len(client._cluster._listeners) == listeners


# -- what failed of many ---------------------------------------------------------


async def test_many_of_which_some_are_stored_may_be_in_the_log(
    cluster: FakeCluster,
) -> None:
    """A caller that is told "not_stored" appends all of them again."""
    async with cluster.client(
        outstanding_bytes_max=1000, record_bytes_max=900, batch_bytes_max=500
    ) as client:
        log = await client.create_log("log")
        left = [3]

        def fail(node: int, message: Message) -> str:
            if isinstance(message, Append):
                left[0] -= 1
            return "hang" if left[0] < 0 and isinstance(message, Append) else ""

        cluster.fault = fail
        with pytest.raises((NotReadyError, DeadlineError)) as caught:
            await log.append_many([bytes(400)] * 9, timeout=0.05)
        assert len(cluster.values("log")) == 3
        assert caught.value.outcome == "unknown"
        assert any("3 of 9" in note for note in caught.value.__notes__)


async def test_many_of_which_the_first_is_refused(cluster: FakeCluster) -> None:
    """Those behind it are sent all the same, and nobody knows what became of them."""
    async with cluster.client(record_bytes_max=900, batch_bytes_max=500) as client:
        log = await client.create_log("log", streams=2)
        cluster.record_bytes_max = 450
        keys = [b"a", b"d"]
        assert len({log._appender.stream_of(key) for key in keys}) == 2
        with pytest.raises(LogError) as caught:
            await log.append_many([bytes(480), b"x"], keys=keys)
        assert caught.value.outcome == "unknown"


async def test_many_of_which_none_was_sent_are_certainly_not_there(
    cluster: FakeCluster,
) -> None:
    async with cluster.client(
        outstanding_bytes_max=1000,
        record_bytes_max=900,
        batch_bytes_max=500,
        in_flight_max=1,
    ) as client:
        log = await client.create_log("log")
        cluster.fault = no_appends
        first = asyncio.create_task(log.append(b"a"))
        await asyncio.sleep(0.01)
        with pytest.raises((NotReadyError, DeadlineError)) as caught:
            await log.append_many([bytes(400)] * 9, timeout=0.05)
        assert caught.value.outcome == "not_stored"
        first.cancel()


# -- positions -----------------------------------------------------------------


@pytest.mark.parametrize("start", [-1, 0])
async def test_positions_before_the_first(log: AsyncClusterLog, start: int) -> None:
    await log.append(b"a")
    with pytest.raises(PositionError):
        _ = [r async for r in log.subscribe(start, timeout=0)]


# -- cursors ---------------------------------------------------------------------


async def test_a_cursor_that_another_creates_and_moves_is_left_there(
    cluster: FakeCluster, log: AsyncClusterLog
) -> None:
    await log.append_many([b"a"] * 9)
    async with cluster.client() as other:
        theirs = await other.log("log")
        store = log._cursor_store
        rows = store.rows

        async def late() -> Any:
            found = await rows()
            if not found:
                await (await theirs.cursor("c", pin=True)).commit(7)
            return found

        store.rows = late  # type: ignore[method-assign]
        cursor = await log.cursor("c")
        assert (cursor.position, cursor.pin) == (7, True)


async def test_a_commit_changes_the_position_and_nothing_else(
    client: AsyncClient, log: AsyncClusterLog
) -> None:
    await log.append_many([b"a"] * 9)
    cursor = await log.cursor("c")
    await log.set_cursor("c", 3, pin=True, lease=60)
    await cursor.commit(5)
    (row,) = await log.cursors()
    assert (row.position, row.pin, row.lease) == (5, True, 60.0)
    await row.delete()
    with pytest.raises(NotFoundError):
        await cursor.commit(6)
    assert await log.cursors() == []


async def test_options_that_two_programs_change_at_a_time_are_both_kept(
    cluster: FakeCluster, log: AsyncClusterLog, tmp_path: Path
) -> None:
    async with cluster.client() as other:
        theirs = await other.log("log")
        linearize, left = log._cluster.linearize, [1]

        async def late() -> Any:
            routes = await linearize()
            left[0] -= 1
            if not left[0]:
                await theirs.set_archive(tmp_path)
                log._cluster._routes = routes  # It has not heard of that yet.
            return routes

        log._cluster.linearize = late  # type: ignore[method-assign, assignment]
        await log.set_options(retention_ms=5000)
        log._cluster.linearize = linearize  # type: ignore[method-assign]
        await log.refresh()
        options = log.options
        assert (options.retention_ms, options.archive) == (5000, str(tmp_path))


# -- threads ---------------------------------------------------------------------


def test_a_call_that_begins_while_the_loop_ends_is_ended_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "_LAST_S", 0.01)
    loop = BackgroundLoop()
    begun: list[Future[None]] = []

    def stop() -> None:
        loop._loop.stop()
        begun.append(loop.begin(asyncio.sleep(60)))

    loop.post(stop)
    loop._thread.join(5)
    with pytest.raises(CancelledError):
        begun[0].result(5)
    with pytest.raises(ClosedError):
        loop.run(asyncio.sleep(0))


def test_an_iteration_may_be_collected_in_the_thread_of_the_client() -> None:
    with Client(FakeCluster().client) as client:
        log = client.create_log("log")
        log.append(b"a")
        records: Any = log.subscribe()
        assert next(records).value == b"a"
        client._loop.post(records.close)
        assert client._loop.begin(client._target.logs()).result(5) == ["log"]


# -- no leader -------------------------------------------------------------------


async def test_what_has_begun_to_read_goes_on_without_a_leader(
    cluster: FakeCluster,
) -> None:
    async with cluster.client(prefetch_bytes=1, timeout_s=0.3) as client:
        log = await client.create_log("log")
        for number in range(20):
            await log.append(b"%d" % number)
        reading, following = log.read(), log.subscribe()
        assert (await anext(reading)).value == (await anext(following)).value == b"0"
        cluster.leaderless = True
        assert [record.position async for record in reading] == list(range(2, 21))
        assert [(await anext(following)).position for _ in range(19)][-1] == 20
        for call in (log.get(1), anext(log.read()), anext(log.subscribe(1))):
            with pytest.raises(DeadlineError, match="knows no leader") as caught:
                await call
            assert caught.value.hint.endswith("then run it again")
