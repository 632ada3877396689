"""Pipelines on a cluster of real processes, alive and dead."""

from __future__ import annotations

import logging
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import braidlog
from braidlog.client import connect
from braidlog.client.connection.routing import stream_index
from braidlog.pipelines.audit_job import audit
from braidlog.pipelines.compact_job import compact
from braidlog.pipelines.repartition_job import Destination, repartition
from braidlog.pipelines.replay_job import replay
from braidlog.sources import dead as sources_dead
from braidlog.sources.origin import Origin
from braidlog.testing.cluster import LocalCluster
from process.killed_pipeline import check
from process.replayed import PARTITIONS, fill, near

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

SMALL = {"limits": {"segment_bytes": 4 << 20, "wal_bytes_max": 256 << 20}}
LOG = "bank"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """The commands of an application in the log of a cluster, most in one stream."""
    path = tmp_path_factory.mktemp("cluster")
    with near.open(path / "bank") as host:
        fill(host, 400)
        host.hashes()
    with LocalCluster(3, directory=path / "nodes", settings=SMALL) as nodes:
        with connect(nodes.seeds) as client:
            log = client.create_log(LOG, streams=3)
            with braidlog.open(path / "bank" / "log", read_only=True) as node:
                records = list(node.log("commands").read())
            for record in records:  # One after the other: the order is theirs.
                log.append(record.value, key=record.key, timestamp=record.timestamp)
        yield nodes


@pytest.fixture(scope="module")
def hashes(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> object:
    """The state hashes of a replay of the live log, in one task."""
    report = replay(
        "process.replayed:near",
        Origin(LOG, cluster=cluster.seeds),
        tmp_path_factory.mktemp("replay") / "out",
        tasks=1,
        workers=1,
    )
    assert len(report.published["hashes"]) == PARTITIONS
    return report.published["hashes"]


def test_the_copies_of_all_nodes_are_the_same(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    origin = Origin(LOG, cluster=cluster.seeds)
    report = audit(origin, tmp_path / "out", workers=1)
    assert report.published["findings"] == []
    assert report.published["copies"] == ["node 1", "node 2", "node 3"]
    records = report.published["end"] - 1
    assert report.figures["records_read"] == 3 * records
    assert report.published["proved"]


def test_three_streams_become_seven_and_keys_keep_their_order(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    origin = Origin(LOG, cluster=cluster.seeds)
    there = Destination("spread", 7, cluster=cluster.seeds)
    report = repartition(origin, there, tmp_path / "out", workers=2)
    with connect(cluster.seeds) as client:
        before = list(client.log(LOG).read())
        after = list(client.log("spread").read())
        described = client.log("spread").describe().streams
        scan = client.scan("spread")
        numbers = sorted(info.stream for info in described)
        for info in described:
            keys: set[bytes] = set()
            columns = ["position", "key"]
            for batch in scan.batches(info.stream, 1, info.committed, columns=columns):
                keys.update(key for key in batch.column("key").to_pylist() if key)
            homes = {numbers[stream_index(key, 7)] for key in keys}
            assert homes <= {info.stream}
    assert len(described) == 7
    assert sum(report.published["records"]) == len(after) == len(before)
    for key in {record.key for record in before if record.key}:
        values = [record.value for record in before if record.key == key]
        assert [record.value for record in after if record.key == key] == values


def test_the_last_of_each_key_of_a_cluster(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    origin = Origin(LOG, cluster=cluster.seeds)
    report = compact(origin, tmp_path / "out", workers=1, bytes_per_task=50_000)
    with connect(cluster.seeds) as client:
        keys = {record.key for record in client.log(LOG).read() if record.key}
    assert report.figures["keys"] == len(keys)


@pytest.fixture(scope="module")
def dead(
    cluster: LocalCluster, hashes: object, tmp_path_factory: pytest.TempPathFactory
) -> list[Path]:
    """Copies of the directories of all nodes, which are stopped."""
    path = tmp_path_factory.mktemp("dead")
    for node in cluster.nodes:
        cluster.stop(node)
    found = []
    for number, node in enumerate(cluster.nodes, 1):
        found.append(path / f"node-{number}")
        shutil.copytree(cluster.data(node), found[-1])
    return found


@pytest.mark.parametrize("tasks", [1, 2, 7])
def test_directories_of_dead_nodes_give_the_same_state(
    dead: list[Path],
    hashes: object,
    tmp_path: Path,
    tasks: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In whatever order they are named; in ranges of positions or as one."""
    caplog.set_level(logging.INFO, sources_dead.__name__)
    if tasks == 7:
        monkeypatch.setattr(sources_dead, "_BYTES_MIN", 1)
    named = random.Random(tasks).sample(dead, len(dead))
    report = replay(
        "process.replayed:near",
        Origin(LOG, raw=tuple(map(str, named))),
        tmp_path / "out",
        tasks=tasks,
        workers=1,
        bytes_per_task=30_000,
    )
    assert report.published["hashes"] == hashes
    # Unless only the repository knows the last commits: then a merge reads all.
    left_to_a_merge = "committed is" in caplog.text
    assert tasks < 7 or left_to_a_merge or report.tasks > tasks + 1, caplog.messages
    assert len(set(report.published["states"].values())) == tasks


def test_a_flipped_bit_in_one_of_them_is_found(
    dead: list[Path], tmp_path: Path
) -> None:
    copies = [tmp_path / path.name for path in dead]
    for path, copy in zip(dead, copies, strict=True):
        shutil.copytree(path, copy)
    origin = Origin(LOG, raw=tuple(map(str, copies)))
    assert audit(origin, tmp_path / "a", workers=1).published["findings"] == []
    flipped = 0
    for slot in (copies[1] / "wal").glob("*.wal"):
        data = bytearray(slot.read_bytes())
        # The name of a procedure as CBOR, far from the ends: only records on both sides
        # of a hole, in its stream, tell that something is missing.
        found = [match.start() for match in re.finditer(b"cpay", data)]
        for at in found[len(found) // 4 :: max(len(found) // 4, 1)][:3]:
            data[at] ^= 1
            flipped += 1
        slot.write_bytes(data)
    assert flipped >= 3
    findings = audit(origin, tmp_path / "b", workers=1).published["findings"]
    # What is behind damaged bytes is read, so what lay in them is known.
    assert {each["kind"] for each in findings} == {"damaged", "missing"}
    assert {each["copy"] for each in findings} == {str(copies[1])}


def test_killed_pipelines_go_on_and_give_the_same(tmp_path: Path) -> None:
    hits = check(tmp_path, kills=3, seed=1)
    assert all(hits.values()), "none of the kills met it at work"
