"""The client against a cluster in memory that fails on demand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pyarrow as pa
import pytest

from braidlog.client import AsyncClient, AsyncClusterLog
from braidlog.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    NotFoundError,
    NotReadyError,
    OlderNodesError,
    TooLargeError,
    TrimmedError,
)
from braidlog.wire.messages import Append, Message, Read
from unit.client.batches import FakeBatch
from unit.client.fake import FakeCluster


async def values(log: AsyncClusterLog) -> list[bytes]:
    return [record.value async for record in log.read()]


async def test_appends_are_spread_and_read_in_one_order(
    cluster: FakeCluster, log: AsyncClusterLog
) -> None:
    positions = [await log.append(b"%d" % i) for i in range(30)]
    assert positions == list(range(1, 31))
    assert await values(log) == [b"%d" % i for i in range(30)]
    # Each is a batch, and each batch goes to the next stream.
    assert [len(stream.batches) for stream in cluster.streams.values()] == [10] * 3


async def test_a_key_stays_in_its_stream(
    cluster: FakeCluster, log: AsyncClusterLog
) -> None:
    for i in range(20):
        await log.append(b"v", key=b"%d" % (i % 4))
    for key in (b"0", b"1", b"2", b"3"):
        found = [
            s.number
            for s in cluster.streams.values()
            for b in s.batches
            if key in FakeBatch(b.data).keys
        ]
        assert len(set(found)) == 1


async def test_what_is_appended_together_goes_as_one_batch(
    cluster: FakeCluster, log: AsyncClusterLog
) -> None:
    cluster.received.clear()
    await asyncio.gather(*(log.append(b"v", key=b"k") for _ in range(100)))
    appends = [m for _, m in cluster.received if isinstance(m, Append)]
    assert len(appends) == 1


async def test_null_values_are_refused_while_a_node_does_not_know_them(
    cluster: FakeCluster, log: AsyncClusterLog
) -> None:
    cluster.features = {2: 0}
    cluster.bump()
    await log.refresh()
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "append": lambda: log.append(None),
        "header": lambda: log.append(b"", headers={"h": None}),
        "many": lambda: log.append_many([b"a", None]),
        "arrow": lambda: log.append_arrow(pa.table({"value": [b"a", None]})),
    }
    for name, call in calls.items():
        with pytest.raises(OlderNodesError, match="node 2 of the cluster is") as error:
            await call()
        assert (error.value.nodes, error.value.outcome) == ((2,), "not_stored"), name
    with pytest.raises(OlderNodesError):
        log.submit(None)
    assert await log.append(b"other") == 1
    cluster.features = {}
    cluster.bump()
    await log.refresh()
    for call in calls.values():
        await call()
    assert await values(log) == [b"other", None, b"", b"a", None, b"a", None]


@pytest.mark.parametrize("fault", ["before", "after"])
async def test_a_broken_connection_is_not_seen(
    cluster: FakeCluster, log: AsyncClusterLog, fault: str
) -> None:
    faults = [fault, "", fault]

    def fail(node: int, message: Message) -> str:
        return faults.pop() if isinstance(message, Append) and faults else ""

    cluster.fault = fail
    for i in range(5):
        assert await log.append(b"%d" % i, key=b"k") == i + 1
    assert cluster.values("log") == [b"%d" % i for i in range(5)]
    appends = [each for _, each in cluster.received if isinstance(each, Append)]
    # What is sent again says so.
    assert [each.repeat for each in appends[:4]] == [False, True, False, True]


async def test_appends_follow_the_primary(
    cluster: FakeCluster, log: AsyncClusterLog
) -> None:
    await log.append(b"a", key=b"k")
    stream = next(s for s in cluster.streams.values() if s.batches)
    cluster.kill(stream.replicas[0])
    later = asyncio.create_task(log.append(b"b", key=b"k"))
    await asyncio.sleep(0.02)
    assert not later.done()
    cluster.fail_over(stream.number)
    assert await later == 2
    assert await values(log) == [b"a", b"b"]


async def test_a_primary_that_hangs_is_left(
    cluster: FakeCluster, log: AsyncClusterLog
) -> None:
    await log.append(b"a", key=b"k")
    stream = next(s for s in cluster.streams.values() if s.batches)
    old = stream.replicas[0]
    cluster.fault = lambda node, message: (
        "hang" if node == old and isinstance(message, Append) else ""
    )
    later = asyncio.create_task(log.append(b"b", key=b"k"))
    await asyncio.sleep(0.02)
    cluster.fail_over(stream.number)
    assert await later == 2


async def test_a_sealed_stream_is_waited_for(
    client: AsyncClient, cluster: FakeCluster, log: AsyncClusterLog
) -> None:
    stream = log._appender.stream_of(b"k")
    await client.seal(stream)
    later = asyncio.create_task(log.append(b"b", key=b"k"))
    # Others go on.
    assert await log.append(b"a") == 1
    assert not later.done()
    await client.unseal(stream)
    assert await later == 2


async def test_records_without_a_key_leave_a_stream_that_is_sealed(
    client: AsyncClient, cluster: FakeCluster, log: AsyncClusterLog
) -> None:
    first = min(cluster.streams)
    cluster.fault = lambda node, message: (
        "hang" if isinstance(message, Append) and message.stream == first else ""
    )
    under_way = asyncio.create_task(log.append(b"a"))
    await asyncio.sleep(0.01)
    assert [await log.append(b"b"), await log.append(b"c")] == [1, 2]
    gathers = asyncio.create_task(log.append(b"d"))
    await asyncio.sleep(0.01)
    await client.seal(first)
    assert await log.append(b"e", timeout=1) == 3
    assert not under_way.done()
    assert not gathers.done()
    cluster.fault = lambda node, message: ""
    await client.unseal(first)
    assert sorted(await asyncio.gather(under_way, gathers)) == [4, 5]


async def test_a_deadline_says_whether_the_outcome_is_known(
    cluster: FakeCluster, client: AsyncClient, log: AsyncClusterLog
) -> None:
    cluster.fault = lambda node, message: "hang" if isinstance(message, Append) else ""
    first = asyncio.create_task(log.append(b"a", key=b"k", timeout=0.05))
    await asyncio.sleep(0.01)
    second = asyncio.create_task(log.append(b"b", key=b"k", timeout=0.02))
    with pytest.raises(DeadlineError) as caught:
        await second
    assert str(caught.value.outcome) == "not_stored"
    with pytest.raises(DeadlineError) as caught:
        await first
    assert caught.value.outcome == "unknown"


async def test_a_refused_record_leaves_no_hole(
    cluster: FakeCluster, log: AsyncClusterLog
) -> None:
    cluster.record_bytes_max = 10
    big = asyncio.create_task(log.append(bytes(100), key=b"k"))
    small = [asyncio.create_task(log.append(b"%d" % i, key=b"k")) for i in range(3)]
    await asyncio.wait([big, *small])
    with pytest.raises(TooLargeError):
        await big
    cluster.record_bytes_max = 1000
    await log.append(b"last", key=b"k")
    assert cluster.values("log")[-1] == b"last"


async def test_a_cancelled_append_leaves_no_hole(
    cluster: FakeCluster, log: AsyncClusterLog
) -> None:
    for i in range(10):
        task = asyncio.create_task(log.append(b"%d" % i, key=b"k"))
        for _ in range(i % 5):
            await asyncio.sleep(0)
        task.cancel()
    await log.append(b"last", key=b"k")
    stored = cluster.values("log")
    assert stored[-1] == b"last"
    assert stored == sorted(set(stored))


async def test_memory_is_bounded(cluster: FakeCluster) -> None:
    async with cluster.client(
        outstanding_bytes_max=1000, record_bytes_max=900
    ) as client:
        log = await client.create_log("log")
        cluster.fault = lambda node, message: (
            "hang" if isinstance(message, Append) else ""
        )
        log.submit(bytes(800))
        with pytest.raises(NotReadyError):
            log.submit(bytes(800))
        with pytest.raises(NotReadyError):
            await log.append(bytes(800), timeout=0.01)


async def test_following_survives_failures(
    cluster: FakeCluster, log: AsyncClusterLog
) -> None:
    chance = random.Random(1)

    def fail(node: int, message: Message) -> str:
        if isinstance(message, Read | Append) and chance.random() < 0.2:
            return chance.choice(["before", "after"])
        return ""

    cluster.fault = fail
    seen: list[bytes] = []

    async def follow() -> None:
        async for record in log.subscribe():
            assert record.position == len(seen) + 1
            seen.append(record.value)
            if len(seen) == 200:
                return

    async with asyncio.timeout(20):
        following = asyncio.create_task(follow())
        for i in range(50):
            await asyncio.gather(*(log.append(b"%d.%d" % (i, j)) for j in range(4)))
        await following
    assert seen == cluster.values("log")
    assert len(set(seen)) == 200


async def test_a_replica_that_moved(cluster: FakeCluster, log: AsyncClusterLog) -> None:
    await log.append(b"a", key=b"k")
    stream = next(s for s in cluster.streams.values() if s.batches)
    seen = asyncio.Queue[bytes]()

    async def follow() -> None:
        async for record in log.subscribe():
            seen.put_nowait(record.value)

    task = asyncio.create_task(follow())
    assert await seen.get() == b"a"
    cluster.nodes[4] = "n4:7400"
    stream.replicas = (4,)
    stream.epoch += 1
    later = asyncio.create_task(log.append(b"b", key=b"k"))
    await asyncio.sleep(0.01)
    cluster.bump()
    assert await later == 2
    async with asyncio.timeout(5):
        assert await seen.get() == b"b"
    task.cancel()


async def test_a_replica_that_learns_nothing_is_left(cluster: FakeCluster) -> None:
    async with cluster.client(read_wait_s=0.01) as client:
        log = await client.create_log("log")
        await log.append_many([b"a", b"b"])
        cluster.stale = {2, 3}
        async with asyncio.timeout(5):
            assert await values(log) == [b"a", b"b"]


async def test_following_across_a_trim(log: AsyncClusterLog) -> None:
    await log.append_many([b"%d" % i for i in range(10)])
    assert await log.trim(5) == 5
    with pytest.raises(TrimmedError) as caught:
        async for _ in log.subscribe(2):
            pass
    assert caught.value.first == 5


async def test_the_first_timestamp_follows_a_trim_that_overtakes_it(
    cluster: FakeCluster, log: AsyncClusterLog
) -> None:
    await log.append_many([b"a", b"b"], timestamps=[7, 5])

    def trimmed(node: int, message: Message) -> str:
        if isinstance(message, Read):
            cluster.named("log").trim = 2
            cluster.bump()
        return ""

    cluster.fault = trimmed
    assert await log.first_timestamp() == 5


async def test_the_first_timestamp_is_not_waited_for_beyond_a_timeout(
    cluster: FakeCluster, log: AsyncClusterLog
) -> None:
    await log.append(b"a")
    cluster.fault = lambda node, message: "before" if isinstance(message, Read) else ""
    with pytest.raises(DeadlineError, match="first record of log 'log'"):
        await log.first_timestamp(timeout=0.01)


async def test_many_with_keys_keep_their_places(
    cluster: FakeCluster, log: AsyncClusterLog
) -> None:
    given = [b"%d" % i for i in range(40)]
    positions = await log.append_many(given, keys=[b"%d" % (i % 7) for i in range(40)])
    assert sorted(positions) == list(range(1, 41))
    stored = cluster.values("log")
    assert [stored[position - 1] for position in positions] == given


async def test_many_above_a_batch(cluster: FakeCluster) -> None:
    async with cluster.client(batch_bytes_max=1000) as client:
        log = await client.create_log("log", streams=2)
        assert await log.append_many([bytes(100)] * 50) == range(1, 51)
        assert len([b for s in cluster.streams.values() for b in s.batches]) > 5


async def test_a_deleted_log(client: AsyncClient, log: AsyncClusterLog) -> None:
    await log.append(b"a")
    await client.delete_log("log")
    with pytest.raises(NotFoundError):
        await log.append(b"b")
    with pytest.raises(NotFoundError):
        await values(log)


async def test_closing_fails_what_is_not_settled(
    cluster: FakeCluster, client: AsyncClient, log: AsyncClusterLog
) -> None:
    cluster.fault = lambda node, message: "hang" if isinstance(message, Append) else ""
    task = asyncio.create_task(log.append(b"a"))
    await asyncio.sleep(0.01)
    await client.close()
    with pytest.raises(ClosedError) as caught:
        await task
    assert caught.value.outcome == "unknown"
    with pytest.raises(ClosedError):
        await log.append(b"b")


async def test_closing_fails_who_waits_for_room(cluster: FakeCluster) -> None:
    client = cluster.client(outstanding_bytes_max=1000, record_bytes_max=900)
    async with client:
        log = await client.create_log("log")
        cluster.fault = lambda node, message: (
            "hang" if isinstance(message, Append) else ""
        )
        tasks = [asyncio.create_task(log.append(bytes(400)))]
        await asyncio.sleep(0.01)
        # One gathers behind it, and one does not fit.
        tasks += [asyncio.create_task(log.append(bytes(400))) for _ in range(2)]
        await asyncio.sleep(0.01)
    for task in tasks:
        with pytest.raises(ClosedError):
            await asyncio.wait_for(task, 1)


async def test_a_subscription_ends_when_the_client_closes(
    client: AsyncClient, log: AsyncClusterLog
) -> None:
    await log.append(b"a")
    seen = asyncio.Event()

    async def follow() -> None:
        async for _ in log.subscribe():
            seen.set()

    task = asyncio.create_task(follow())
    await seen.wait()
    await client.close()
    await task


async def test_nobody_there(cluster: FakeCluster) -> None:
    cluster.dead = set(cluster.nodes)
    with pytest.raises(ConnectionLostError, match="no node can be reached") as caught:
        async with cluster.client(timeout_s=1e9, refused_s=0.01):
            pass
    assert all(address in caught.value.message for address in cluster.nodes.values())
    assert str(caught.value.outcome) == "not_stored"


async def test_who_may_only_be_slow_is_waited_for(cluster: FakeCluster) -> None:
    cluster.dead = {1, 2}
    cluster.fault = lambda node, message: "hang"
    with pytest.raises(DeadlineError, match="did not answer within"):
        async with cluster.client(timeout_s=0.1, refused_s=0.001):
            pass


async def test_a_client_that_was_there_waits_for_nodes_to_be_back(
    cluster: FakeCluster,
) -> None:
    async with cluster.client(timeout_s=1e9, refused_s=0.001) as client:
        for node in cluster.nodes:
            cluster.kill(node)
        waiting = asyncio.create_task(client.logs())
        await asyncio.sleep(0.05)
        cluster.dead.clear()
        assert await waiting == []


async def test_a_repeated_command_happens_once(
    cluster: FakeCluster, client: AsyncClient
) -> None:
    faults = ["after"]
    cluster.fault = lambda node, message: (
        faults.pop() if type(message).__name__ == "Execute" and faults else ""
    )
    await client.create_log("once")
    assert await client.logs() == ["once"]


async def test_plain_values_are_looked_at_one_by_one_if_they_must_be(
    cluster: FakeCluster, log: AsyncClusterLog
) -> None:
    """Values that are not ``bytes``, or too many for one batch, take the other way."""
    assert await log.append_many([b"a", bytearray(b"b")]) == range(1, 3)
    assert await log.append_many([b"c", b"d"], timestamps=7) == range(3, 5)
    assert await log.append_many(iter([b"e"])) == range(5, 6)
    found = [record async for record in log.read()]
    assert [record.value for record in found] == [b"a", b"b", b"c", b"d", b"e"]
    assert [record.timestamp for record in found][2:4] == [7, 7]
    with pytest.raises(TypeError):
        await log.append_many([b"x", 5])  # type: ignore[list-item]
    with pytest.raises(TooLargeError):
        await log.append_many([bytes(16 << 20)])
