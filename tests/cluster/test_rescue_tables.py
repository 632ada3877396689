"""The metadata repository is lost for good: tables and their logs go on."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.client import Client
from braidlog.errors import LogError
from braidlog.testing.cluster import LocalCluster
from commands import said

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

SETTINGS = {
    "limits": {"segment_bytes": 4 << 20, "wal_bytes_max": 256 << 20},
    "timing": {"table_repair_ms": 2000},
}
Model = dict[bytes, bytes]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(3, directory=tmp_path, settings=SETTINGS) as cluster:
        yield cluster


def wait(what: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)


def put(client: Client, model: Model, begin: int, end: int) -> None:
    log = client.log("orders")
    for n in range(begin, end):
        key, value = b"k%d" % (n % 23), b'{"n":%d}' % n
        if n % 11 == 10:
            log.append(None, key=key)
            model.pop(key, None)
        else:
            log.append(value, key=key)
            model[key] = value


def check(client: Client, model: Model) -> None:
    table = client.table("stock")
    assert {r.key: r.value for r in table.scan()} == model
    by_n = [r.value for r in table.index("by_n").scan()]
    assert by_n == sorted(model.values(), key=lambda value: json.loads(value)["n"])


def trim(client: Client) -> None:
    """Trim everything; the hosts have it in files then."""
    log = client.log("orders")
    client.table("stock").flush()

    def trimmed() -> bool:
        try:
            log.trim(before=log.end)
        except LogError:
            return False
        return log.first == log.end

    wait(trimmed)


def joined(client: Client) -> Any:
    """Return the hosts, once there are two that have all of it."""
    hosts = client.table("stock").describe().hosts
    return len(hosts) == 2 and all(host.joined for host in hosts) and hosts


def nodes_of(hosts: Any) -> set[int]:
    return {host.node for host in hosts or ()}


def test_tables_of_a_rescued_cluster_are_what_they_were(cluster: LocalCluster) -> None:
    model = Model()
    with braidlog.connect(cluster.seeds) as client:
        client.create_log("orders", streams=2)
        client.create_table(
            "stock", log="orders", indexes={"by_n": "json:/n:int"}, replicas=2
        )
        put(client, model, 0, 150)
        wait(lambda: joined(client))
        trim(client)
        put(client, model, 150, 200)
        check(client, model)
        lost = client.table("stock").describe().hosts[0].node
        left = [node for node in cluster.nodes if node != lost]
        cluster.kill(lost)
        shutil.rmtree(cluster.data(lost))
        # Also what was acknowledged by those that are left.
        put(client, model, 200, 260)
        check(client, model)
    for node in left:
        cluster.kill(node)
    directories = [cluster.data(node) for node in left]
    said("rescue", "--write", "--yes", *directories)
    for node in left:
        cluster.start(node)
    cluster.wait_ready(*left)
    seeds = ",".join(cluster.address(node) for node in left)
    with braidlog.connect(seeds) as client:
        wait(lambda: client.tables() == ["stock"])
        check(client, model)
        put(client, model, 260, 300)
        check(client, model)
        # The other one copies it: the log does not reach back to where it began.
        # The lost one counts as a host until it has been replaced.
        wait(lambda: nodes_of(joined(client)) == {*left})
        client.table("stock").verify()
        check(client, model)
        client.backup(cluster.directory / "place")
    for node in left:
        cluster.kill(node)
    for node in left:
        cluster.start(node)
    cluster.wait_ready(*left)
    with braidlog.connect(seeds) as client:
        check(client, model)
    [listed] = said("table", "list", "--json", "--cluster", seeds).splitlines()
    assert json.loads(listed)["problem"] is None


def put_back(directory: Path, older: Path) -> None:
    """Put everything but the tables back as it was."""
    tables = directory.with_name("tables")
    (directory / "tables").rename(tables)
    shutil.rmtree(directory)
    shutil.copytree(older, directory, ignore=lambda *_: ["tables"])
    tables.rename(directory / "tables")


def test_tables_that_have_more_than_the_cluster_are_made_anew(tmp_path: Path) -> None:
    """An older disk of the logs beneath the newer one of the tables."""
    model, older = Model(), tmp_path / "older"
    where = tmp_path / "cluster"
    where.mkdir()
    with LocalCluster(1, directory=where, settings=SETTINGS) as cluster:
        with braidlog.connect(cluster.seeds) as client:
            client.create_log("orders", streams=2, replication=1)
            fields = {"by_n": "json:/n:int"}
            client.create_table("stock", log="orders", indexes=fields)
            put(client, model, 0, 60)
            client.table("stock").flush()
        cluster.kill(1)
        shutil.copytree(cluster.data(1), older)
        cluster.start(1)
        cluster.wait_ready()
        with braidlog.connect(cluster.seeds) as client:
            put(client, Model(), 60, 200)
            client.table("stock").flush()
        cluster.kill(1)
        put_back(cluster.data(1), older)
        cluster.start(1)
        cluster.wait_ready()
        with braidlog.connect(cluster.seeds) as client:
            check(client, model)
            put(client, model, 500, 800)
            check(client, model)
            client.table("stock").verify()
        assert "table_damaged" in cluster.output(1).read_text()
