"""Shards in real processes: owners, conditions, and leaders that are killed."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

import braidlog
from braidlog.client import Client
from braidlog.client.blocking import ClusterLog
from braidlog.errors import (
    ConflictError,
    FencedError,
    InvalidArgumentError,
    LogError,
    NotFoundError,
)
from braidlog.testing.cluster import LocalCluster

pytestmark = [pytest.mark.process]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(3, directory=tmp_path_factory.mktemp("shards")) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    for node in cluster.nodes:
        if not cluster.is_running(node):
            cluster.start(node)
    cluster.wait_ready()
    with braidlog.connect(cluster.seeds) as client:
        yield client


def _shard(client: Client, name: str) -> ClusterLog:
    return client.create_log(name, kind="shard", replication=3)


def _leader(client: Client, name: str) -> int:
    (info,) = client.log(name).describe().streams
    return info.replicas[0]


def test_a_writer_fences_the_one_before(client: Client) -> None:
    log = _shard(client, "fenced")
    assert log.append(b"free") == 1
    assert log.owner() == ("", 0)
    one = log.acquire("one")
    assert one.append(b"1") == 2
    assert log.owner() == ("one", one.epoch)
    with pytest.raises(FencedError) as refused:
        log.append(b"nobody's")
    assert refused.value.owner == "one"
    with pytest.raises(FencedError) as refused:
        log.acquire("two")
    two = log.acquire("two", expected=refused.value.current)
    assert two.epoch > one.epoch
    assert two.end == 3
    with pytest.raises(FencedError):
        one.append(b"late")
    with pytest.raises(FencedError):
        one.renew()
    three = log.acquire("three", force=True)
    assert three.append_many([b"a", b"b"]) == range(3, 5)
    three.release()
    assert log.append(b"free again") == 5
    values = [record.value for record in log.read()]
    assert values == [b"free", b"1", b"a", b"b", b"free again"]


def test_an_append_is_at_the_expected_position_or_not_at_all(client: Client) -> None:
    writer = _shard(client, "conditional").acquire("w")
    assert writer.append(b"1", expected=1) == 1
    with pytest.raises(ConflictError) as refused:
        writer.append(b"again", expected=1)
    assert refused.value.end == 2
    assert writer.append(b"2", expected=2) == 2


def test_an_owner_that_is_silent_is_taken_over(client: Client) -> None:
    log = _shard(client, "lapsed")
    log.acquire("one", ttl=0.3)
    with pytest.raises(FencedError):
        log.acquire("two")
    time.sleep(0.6)
    assert log.acquire("two", ttl=60).append(b"x") == 1


def test_a_log_of_streams_has_no_owner(client: Client) -> None:
    log = client.create_log("plain")
    with pytest.raises(InvalidArgumentError, match="no shard"):
        log.acquire("one")
    with pytest.raises(InvalidArgumentError, match="kind"):
        client.create_log("what", kind="other")
    with pytest.raises(InvalidArgumentError, match="one stream"):
        client.create_log("wide", kind="shard", streams=2)


@pytest.mark.slow
def test_a_killed_leader_loses_and_doubles_nothing(
    cluster: LocalCluster, client: Client
) -> None:
    log = _shard(client, "killed")
    log.append(b"first")
    told: dict[bytes, int] = {}
    ending = threading.Event()

    def append(number: int) -> None:
        with braidlog.connect(cluster.seeds) as own:
            mine = own.log("killed")
            count = 0
            while not ending.is_set():
                value = b"%d:%d" % (number, count)
                told[value] = mine.append(value)
                count += 1

    threads = [threading.Thread(target=append, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        time.sleep(0.7)
        leader = _leader(client, "killed")
        cluster.kill(leader)
        before = len(told)
        deadline = time.monotonic() + 20
        while len(told) < before + 50 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(told) >= before + 50, "nobody took over"
        cluster.start(leader)
        cluster.wait_ready()
    ending.set()
    for thread in threads:
        thread.join()
    found = {bytes(r.value or b""): r.position for r in log.read()}
    assert len(found) == log.refresh().stop - 1, "a record is there twice"
    assert all(found[value] == position for value, position in told.items())


@pytest.mark.slow
def test_all_killed_at_once_and_everything_acknowledged_is_there(
    cluster: LocalCluster, client: Client, tmp_path: Path
) -> None:
    log = _shard(client, "all")
    writer = log.acquire("w")
    positions = [writer.append(b"%d" % n) for n in range(200)]
    for node in cluster.nodes:
        cluster.kill(node)
    for node in reversed(cluster.nodes):
        cluster.start(node)
    cluster.wait_ready()
    assert [int(r.value or b"-1") for r in log.read()] == list(range(200))
    assert writer.append(b"on") == positions[-1] + 1
    log.trim(150)
    assert log.read(150).__next__().position == 150
    with pytest.raises(LogError):
        log.get(10)
    client.delete_log("all")
    assert "all" not in client.logs()


def test_timestamps_are_refused_where_there_are_none(client: Client) -> None:
    client.create_log("plain", streams=1, exist_ok=True)
    with pytest.raises(InvalidArgumentError, match="no shard"):
        client.timestamps("plain")
    with pytest.raises(NotFoundError):
        client.timestamps("nowhere")
    _shard(client, "clock")
    for count in (0, 2**33):
        with pytest.raises(InvalidArgumentError):
            client.timestamps("clock", count)
    with pytest.raises(InvalidArgumentError):
        client.timestamps("clock", -1)
    before = time.time_ns() // 1000
    first = client.timestamps("clock", 3, wall=True)
    assert len(first) == 3
    # One machine, one clock.
    assert first[0] >= before
    assert client.timestamps("clock")[0] >= first.stop
    assert client.log("clock").refresh().stop == 1, "they take no positions"


@pytest.mark.slow
def test_timestamps_rise_whoever_leads(cluster: LocalCluster, client: Client) -> None:
    _shard(client, "rising")
    ending = threading.Event()
    lock = threading.Lock()
    given: list[range] = []
    latest = 0

    def ask(wall: bool) -> None:
        nonlocal latest
        with braidlog.connect(cluster.seeds) as own:
            while not ending.is_set():
                low = latest  # Given to somebody before this asks.
                got = own.timestamps("rising", 7, wall=wall)
                with lock:
                    given.append(got)
                    assert got.start > low
                    latest = max(latest, got[-1])

    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(ask, wall) for wall in (False, False, True)]
        for _ in range(3):
            time.sleep(0.5)
            leader = _leader(client, "rising")
            cluster.kill(leader)
            before = len(given)
            deadline = time.monotonic() + 20
            while len(given) < before + 50 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert len(given) >= before + 50, "nobody took over"
            cluster.start(leader)
            cluster.wait_ready()
        ending.set()
        for each in asking:
            each.result()
    given.sort(key=lambda each: each.start)
    assert all(one.stop <= two.start for one, two in pairwise(given))


def _members(cluster: LocalCluster, log: str) -> list[tuple[str, str]]:
    """Return role and state of the members of a shard, as their nodes say."""
    found = []
    for node in cluster.nodes:
        with urllib.request.urlopen(f"{cluster.http(node)}/status", timeout=10) as got:
            status = json.load(got)
        found += [
            (each["role"], each["state"])
            for each in status["replicas"]
            if each["log"] == log
        ]
    return sorted(found)


def test_a_shard_in_which_nothing_happens_goes_quiet_and_wakes(
    cluster: LocalCluster, client: Client
) -> None:
    log = _shard(client, "idle")
    log.append(b"1")
    asleep = [("follower", "quiet"), ("follower", "quiet"), ("leader", "quiet")]
    deadline = time.monotonic() + 30
    while (found := _members(cluster, "idle")) != asleep:
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    assert log.append(b"2") == 2
    # Its leader is missed although nobody has said anything for long.
    while _members(cluster, "idle") != asleep:
        assert time.monotonic() < deadline + 30
        time.sleep(0.2)
    cluster.kill(_leader(client, "idle"))
    assert log.append(b"3") == 3
