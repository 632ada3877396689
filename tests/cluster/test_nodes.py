"""A cluster of real processes: whatever happens to its nodes, what it promised holds.

After each story every record that was acknowledged is there once, at its position, on
every replica.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import braidlog
from braidlog.client.settings import ClientSettings
from braidlog.errors import InvalidArgumentError
from braidlog.testing.cluster import LocalCluster
from braidlog.wire.messages import NodeInfo, StreamInfo, StreamStatus
from cluster.check import contents, verify, wait_complete
from cluster.load import Load, running
from commands import said

pytestmark = [pytest.mark.process, pytest.mark.timeout(90)]

LOG = "orders"
SMALL = {"limits": {"segment_bytes": 4 << 20, "wal_bytes_max": 256 << 20}}
# Longer than what it takes to be declared dead.
AWAY_S = 1.2

Start = Callable[..., LocalCluster]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    clusters: list[LocalCluster] = []

    def begin(nodes: int = 3, voters: int = 3) -> LocalCluster:
        directory = tmp_path / f"cluster-{len(clusters)}"
        cluster = LocalCluster(
            nodes, directory=directory, settings=SMALL, voters=voters
        )
        clusters.append(cluster)
        return cluster.__enter__()

    yield begin
    for cluster in clusters:
        cluster.close()


@pytest.fixture
def cluster(start: Start) -> LocalCluster:
    return start()


@pytest.fixture
def load(cluster: LocalCluster, tmp_path: Path) -> Iterator[Load]:
    create(cluster)
    with running(cluster.seeds, LOG, tmp_path / "load") as load:
        load.wait_for(50)
        yield load


def create(cluster: LocalCluster, streams: int = 2) -> None:
    async def made() -> None:
        async with braidlog.connect_async(cluster.seeds) as client:
            await client.create_log(LOG, streams=streams, replication=3)

    asyncio.run(made())


def roles(cluster: LocalCluster) -> dict[str, int]:
    """Return a primary, a node that is none of the first stream, and the leader."""

    async def found() -> dict[str, int]:
        async with braidlog.connect_async(cluster.seeds) as client:
            first = min(await client.streams(LOG), key=lambda info: info.stream)
            leader = client._cluster.routes.metadata.leader
            return {
                "primary": first.replicas[0],
                "backup": first.replicas[-1],
                "leader": leader,
            }

    return asyncio.run(found())


def check(cluster: LocalCluster, load: Load, nodes: tuple[int, ...] = (1, 2, 3)) -> int:
    """Compare all replicas; return the position behind the last record."""
    return 1 + len(asyncio.run(verify(cluster.seeds, LOG, load.stop(), nodes)))


@pytest.mark.parametrize("role", ["backup", "primary", "leader"])
def test_a_killed_node_costs_nothing(
    cluster: LocalCluster, load: Load, role: str
) -> None:
    node = roles(cluster)[role]
    cluster.kill(node)
    load.wait_for(100)
    cluster.restart(node)
    load.wait_for(100)
    check(cluster, load)


def test_every_node_says_what_the_leader_knows(cluster: LocalCluster) -> None:
    create(cluster)
    cluster.kill(roles(cluster)["backup"])
    asyncio.run(lacks(cluster, 1))


async def lacks(cluster: LocalCluster, replicas: int) -> None:
    """Wait until every node that runs says how many replicas each stream lacks."""
    deadline = time.monotonic() + 30.0
    for node in filter(cluster.is_running, cluster.nodes):
        async with braidlog.connect_async(cluster.address(node)) as client:
            said: set[int] = set()
            while said != {3 - replicas}:
                assert time.monotonic() < deadline, (node, said)
                await asyncio.sleep(0.05)
                streams = await client.streams(LOG)
                said = {len(each.in_sync or ()) for each in streams}


@pytest.mark.parametrize("role", ["backup", "primary", "leader"])
def test_a_node_that_stood_still_goes_on(
    cluster: LocalCluster, load: Load, role: str
) -> None:
    node = roles(cluster)[role]
    cluster.send(node, signal.SIGSTOP)
    time.sleep(AWAY_S)
    load.wait_for(100)
    cluster.send(node, signal.SIGCONT)
    load.wait_for(100)
    check(cluster, load)


def test_a_command_to_a_leader_that_hangs_is_executed_once(
    cluster: LocalCluster,
) -> None:
    """No attempt of the client ends by itself: the nodes have to end them."""
    create(cluster)
    patient = ClientSettings(attempt_timeout_s=1e6, timeout_s=1e6)

    async def add() -> None:
        async with braidlog.connect_async(cluster.seeds, settings=patient) as client:
            leader = client._cluster.routes.metadata.leader
            others = [node for node in cluster.nodes if node != leader]
            seeds = ",".join(map(cluster.address, others))
            async with braidlog.connect_async(seeds, settings=patient) as caller:
                cluster.send(leader, signal.SIGSTOP)
                async with asyncio.timeout(60):
                    await caller.create_log("more", replication=1)
                cluster.send(leader, signal.SIGCONT)
                assert (await caller.logs()).count("more") == 1

    asyncio.run(add())


def test_a_rolling_restart_loses_no_append(cluster: LocalCluster, load: Load) -> None:
    for node in cluster.nodes:
        assert cluster.stop(node) == 0
        cluster.restart(node)
        # As a script would do it, with nothing else between the restarts.
        said("cluster", "health", "--wait", "--cluster", cluster.seeds)
        for info in asyncio.run(streams(cluster)):
            assert (len(info.in_sync or ()), info.learners) == (3, ())
        load.wait_for(20)
    check(cluster, load)
    assert load.promises().failures == []


async def streams(cluster: LocalCluster) -> tuple[StreamInfo, ...]:
    async with braidlog.connect_async(cluster.seeds) as client:
        return await client.streams(LOG)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_all_nodes_start_again(cluster: LocalCluster, load: Load, end: str) -> None:
    for node in cluster.nodes:
        getattr(cluster, end)(node)
    for node in cluster.nodes:
        cluster.restart(node)
    cluster.wait_ready()
    load.wait_for(50)
    check(cluster, load)


def test_a_fourth_node_takes_the_place_of_one_that_lost_its_disk(
    start: Start, tmp_path: Path
) -> None:
    cluster = start(4, voters=3)
    create(cluster)
    with running(cluster.seeds, LOG, tmp_path / "load") as load:
        load.wait_for(50)
        node = next(each for each in (1, 2, 3) if each != roles(cluster)["leader"])
        cluster.kill(node)
        shutil.rmtree(cluster.data(node))
        left = tuple(each for each in cluster.nodes if each != node)
        # Until the node is found dead its streams look complete.
        wait_members(cluster, set(left))
        asyncio.run(wait_complete(cluster.seeds, LOG, 3))
        load.wait_for(50)
        check(cluster, load, left)


def wait_members(cluster: LocalCluster, nodes: set[int]) -> None:
    deadline = time.monotonic() + 30
    while any(each != nodes for each in asyncio.run(replicas(cluster)).values()):
        assert time.monotonic() < deadline, f"the replicas are not {nodes}"
        time.sleep(0.1)


async def replicas(cluster: LocalCluster) -> dict[int, set[int]]:
    async with braidlog.connect_async(cluster.seeds) as client:
        return {i.stream: set(i.replicas) for i in await client.streams(LOG)}


def test_a_node_with_a_new_disk_copies_everything(start: Start, tmp_path: Path) -> None:
    # Node 4 is no member of the repository: that would have to be removed first.
    cluster = start(4, voters=3)
    create(cluster)
    with running(cluster.seeds, LOG, tmp_path / "load") as load:
        load.wait_for(50)
        asyncio.run(drain(cluster, 1))
        assert all(4 in each for each in asyncio.run(replicas(cluster)).values())
        cluster.kill(4)
        shutil.rmtree(cluster.data(4))
        readmit(cluster, 4)
        cluster.restart(4)
        load.wait_for(50)
        check(cluster, load, (2, 3, 4))


def readmit(cluster: LocalCluster, node: int) -> None:
    async def given_up() -> None:
        async with braidlog.connect_async(cluster.seeds) as client:
            deadline = time.monotonic() + 30
            while True:
                try:
                    return await client.readmit_node(node)
                except InvalidArgumentError:  # it is not found dead yet
                    assert time.monotonic() < deadline, f"node {node} is still alive"
                    await asyncio.sleep(0.05)

    asyncio.run(given_up())


def nodes(cluster: LocalCluster) -> dict[int, NodeInfo]:
    async def asked() -> dict[int, NodeInfo]:
        async with braidlog.connect_async(cluster.seeds) as client:
            return {info.node: info for info in await client.nodes()}

    return asyncio.run(asked())


@pytest.mark.parametrize("role", ["primary", "leader"])
def test_a_wiped_node_is_refused_until_it_is_readmitted(
    cluster: LocalCluster, load: Load, role: str
) -> None:
    node = roles(cluster)[role]
    before = nodes(cluster)[node].identity
    cluster.kill(node)
    shutil.rmtree(cluster.data(node))
    cluster.restart(node)
    load.wait_for(100)
    others = [each for each in cluster.nodes if each != node]
    for each in others:
        wait_output(
            cluster, each, f"the cluster knows node {node} by another directory"
        )
    wait_output(cluster, node, f"rejected our identity as node {node}")
    assert not cluster.is_ready(node)
    assert nodes(cluster)[node].identity == before

    readmit(cluster, node)
    cluster.wait_ready(node)
    load.wait_for(100)
    asyncio.run(wait_complete(cluster.seeds, LOG, 3))
    deadline = time.monotonic() + 30
    while not (found := nodes(cluster)[node]).voter:
        assert time.monotonic() < deadline, f"node {node} does not vote: {found}"
        time.sleep(0.1)
    assert found.identity != before
    # Its vote counts again: the two that go on are not a majority without it.
    cluster.kill(others[0])
    load.wait_for(50)
    cluster.restart(others[0])
    check(cluster, load)


def wait_output(cluster: LocalCluster, node: int, words: str) -> None:
    deadline = time.monotonic() + 30
    while words not in cluster.output(node).read_text():
        assert time.monotonic() < deadline, f"node {node} does not say: {words}"
        time.sleep(0.05)


def test_nodes_that_do_not_vote_find_one_another(start: Start, tmp_path: Path) -> None:
    cluster = start(4, voters=1)
    create(cluster, streams=4)
    with running(cluster.seeds, LOG, tmp_path / "load", tasks=8) as load:
        load.wait_for(200)
        load.stop()
    assert load.promises().failures == []


async def drain(cluster: LocalCluster, node: int) -> None:
    deadline = time.monotonic() + 30
    async with braidlog.connect_async(cluster.seeds) as client:
        await client.drain_node(node)
        while any(
            node in (*info.replicas, *info.learners)
            for info in await client.streams(LOG)
        ):
            assert time.monotonic() < deadline, await client.streams(LOG)
            await asyncio.sleep(0.05)
    await wait_complete(cluster.seeds, LOG, 3)


def test_a_node_is_drained_and_removed(start: Start, tmp_path: Path) -> None:
    cluster = start(4, voters=3)
    create(cluster)
    with running(cluster.seeds, LOG, tmp_path / "load") as load:
        load.wait_for(50)
        asyncio.run(drain(cluster, 4))
        asyncio.run(remove(cluster, 4))
        cluster.stop(4)
        load.wait_for(50)
        check(cluster, load)
    assert load.promises().failures == []


async def remove(cluster: LocalCluster, node: int) -> None:
    async with braidlog.connect_async(cluster.seeds) as client:
        await client.remove_node(node)
        assert node not in {info.node for info in await client.nodes()}


def test_a_sealed_stream_takes_nothing_until_it_is_unsealed(
    cluster: LocalCluster, load: Load
) -> None:
    async def seal_all() -> int:
        async with braidlog.connect_async(cluster.seeds) as client:
            for info in await client.streams(LOG):
                await client.seal(info.stream)
            sealed = await client.streams(LOG)
            assert {info.status for info in sealed} == {StreamStatus.SEALED}
            before = await (await client.log(LOG)).refresh()
            await asyncio.sleep(0.2)
            assert await (await client.log(LOG)).refresh() == before
            for info in sealed:
                await client.unseal(info.stream)
            return before.stop

    end = asyncio.run(seal_all())
    load.wait_for(50)
    assert check(cluster, load) > end
    assert load.promises().failures == []


def test_one_node_can_be_read(cluster: LocalCluster, load: Load) -> None:
    load.stop()
    asyncio.run(wait_complete(cluster.seeds, LOG, 3))
    cluster.kill(3)
    everything = asyncio.run(contents(cluster.seeds, LOG, 1))
    assert set(everything) >= load.promises().acknowledged.keys()
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(contents(cluster.seeds, LOG, 3), 1.0))
