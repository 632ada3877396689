"""Members of a shard come and go in real processes, under load."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import braidlog
from braidlog.client import Client
from braidlog.testing.cluster import LocalCluster
from braidlog.wire.messages import StreamInfo
from cluster.test_nodes import readmit

pytestmark = [pytest.mark.process, pytest.mark.slow]

SETTINGS = {"timing": {"shard_repair_ms": 1500, "retention_ms": 200}}
LOG = "wal"


class Writer:
    """Appends without end; what it was told is what has to be there."""

    def __init__(self, seeds: str) -> None:
        self.told: dict[bytes, int] = {}
        self._seeds = seeds
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.failed: Exception | None = None

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with braidlog.connect(self._seeds) as client:
                log = client.log(LOG)
                count = 0
                while not self._ending.is_set():
                    value = b"%d" % count
                    self.told[value] = log.append(value)
                    count += 1
        except Exception as error:
            self.failed = error

    def get_on(self) -> None:
        """Wait until more was acknowledged."""
        before = len(self.told)
        until(
            lambda: len(self.told) >= before + 20 or self.failed is not None,
            "appends go on",
        )
        assert self.failed is None

    def check(self, client: Client) -> None:
        assert self.failed is None
        log = client.log(LOG)
        found = {bytes(r.value or b""): r.position for r in log.read()}
        assert len(found) == log.refresh().stop - 1, "a record is there twice"
        assert all(found[value] == at for value, at in self.told.items())


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 40
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(5, directory=tmp_path, voters=3, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with braidlog.connect(cluster.seeds) as client:
        create(client)
        yield client


def create(client: Client) -> None:
    """Create the shard; a node that is not known to live gets its member later."""
    client.create_log(LOG, kind="shard", replication=3).append(b"first")
    until(partial(has_members, client, 3), "it has all its members")


def shard(client: Client) -> StreamInfo:
    (info,) = client.log(LOG).describe().streams
    return info


def is_on(client: Client, nodes: set[int]) -> bool:
    info = shard(client)
    assert info.members is not None
    settled = {*info.members.voters} == {*info.members.wanted}
    return settled and {*info.replicas} == nodes and not info.learners


def test_a_member_whose_node_is_lost_for_good_is_replaced(
    cluster: LocalCluster, client: Client
) -> None:
    there = {*shard(client).replicas}
    spare = min({*cluster.nodes} - there)
    with Writer(cluster.seeds) as writer:
        writer.get_on()
        lost = max(there)  # Perhaps the leader.
        cluster.kill(lost)
        writer.get_on()
        until(
            lambda: lost not in shard(client).replicas and is_whole(client),
            "another node takes its place",
        )
        # A majority of the present members has everything, without the lost one.
        also = next(each for each in shard(client).replicas if each in there)
        cluster.kill(also)
        writer.get_on()
        cluster.start(also)
        cluster.wait_ready(also)
    writer.check(client)
    assert shard(client).replicas
    assert spare in cluster.nodes


def is_whole(client: Client) -> bool:
    info = shard(client)
    return info.lacking_ms == 0 and {*(info.in_sync or ())} == {*info.replicas}


def has_members(client: Client, count: int) -> bool:
    return len(shard(client).replicas) == count and is_whole(client)


def test_moves_and_drains_under_load_fail_no_append(
    cluster: LocalCluster, client: Client
) -> None:
    with Writer(cluster.seeds) as writer:
        for _ in range(3):
            writer.get_on()
            info = shard(client)
            leader = info.replicas[0]
            target = min({*cluster.nodes} - {*info.replicas})
            client.move_replica(info.stream, leader, target)
            wanted = {*info.replicas} - {leader} | {target}
            until(partial(is_on, client, wanted), "it is moved")
        node = shard(client).replicas[1]
        client.drain_node(node)
        until(lambda: node not in shard(client).replicas, "it is drained")
        writer.get_on()
        client.drain_node(node, draining=False)
        # Back on a node that it was on before, as another member.
        info = shard(client)
        wanted = {*info.replicas[1:], node}
        client.move_replica(info.stream, info.replicas[0], node)
        until(lambda: is_on(client, wanted), "it is back")
        writer.get_on()
    writer.check(client)


def test_a_node_that_lost_its_directory_gets_its_member_anew(tmp_path: Path) -> None:
    with (
        LocalCluster(3, directory=tmp_path, settings=SETTINGS) as cluster,
        braidlog.connect(cluster.seeds) as client,
    ):
        create(client)
        with Writer(cluster.seeds) as writer:
            writer.get_on()
            node = shard(client).replicas[0]
            cluster.kill(node)
            shutil.rmtree(cluster.data(node))
            cluster.restart(node)
            writer.get_on()
            readmit(cluster, node)
            cluster.wait_ready(node)
            until(lambda: is_whole(client), "it has a member again")
            info = shard(client)
            assert info.members is not None
            assert node not in info.members.voters, "a lost member votes"
            assert set(info.replicas) == {1, 2, 3}
            # The new one counts: one of the others is gone, and appends go on.
            other = next(each for each in cluster.nodes if each != node)
            cluster.kill(other)
            writer.get_on()
            cluster.start(other)
            cluster.wait_ready(other)
        writer.check(client)


def test_more_and_fewer_members(cluster: LocalCluster, client: Client) -> None:
    log = client.log(LOG)
    with Writer(cluster.seeds) as writer:
        for count in (5, 2, 3, 1):
            log.set_replication(replication=count, min_replicas=count // 2 + 1)
            until(partial(has_members, client, count), f"it has {count} members")
            writer.get_on()
    writer.check(client)


def test_retention_lets_records_go_on_all_members(
    cluster: LocalCluster, client: Client
) -> None:
    log = client.create_log("kept", kind="shard", retention_bytes=1_000_000)
    for _ in range(60):
        log.append_many([b"x" * 1000] * 100)
    until(lambda: log.refresh().start > 4000, "what is too much goes")
    kept = log.refresh()
    assert len(kept) >= 1000
    assert next(iter(log.read())).position == kept.start
    log.set_options(retention_ms=1)
    until(lambda: len(log.refresh()) == 0, "all of it is old")
    assert log.append(b"on") == 6001
