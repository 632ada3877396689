"""Tables of real processes: what was acknowledged is read, whoever dies."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import braidlog
from braidlog.client import Client
from braidlog.testing.cluster import LocalCluster
from commands import said

pytestmark = [pytest.mark.process, pytest.mark.timeout(90)]

SETTINGS = {
    "limits": {"segment_bytes": 4 << 20, "wal_bytes_max": 256 << 20},
    "timing": {"table_repair_ms": 2000},
}
KEYS = [b"k%03d" % n for n in range(200)]
SETTLE_S = 45.0

Model = dict[bytes, bytes]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(4, directory=tmp_path, settings=SETTINGS, voters=3) as cluster:
        yield cluster


def change(client: Client, model: Model, random: Random, count: int) -> None:
    """Append, delete, and read what was just appended."""
    log, table = client.log("orders"), client.table("stock")
    for _ in range(count):
        key = random.choice(KEYS)
        if random.random() < 0.2:
            log.append(None, key=key)
            model.pop(key, None)
        else:
            model[key] = b'{"n":%d}' % random.randrange(10**9)
            log.append(model[key], key=key)
        found = table.get(key)
        assert (found and found.value) == model.get(key)


def check(client: Client, model: Model) -> None:
    """Compare all that can be read with the model."""
    table = client.table("stock")
    assert {r.key: r.value for r in table.scan()} == model
    found = table.get_many(KEYS)
    assert [r and r.value for r in found] == [*map(model.get, KEYS)]
    assert len(list(table.index("by_n").scan())) == len(model)


def test_a_killed_host_is_replaced_and_nothing_old_is_read(
    cluster: LocalCluster,
) -> None:
    random, model = Random(3), Model()
    with braidlog.connect(cluster.seeds) as client:
        client.create_log("orders", streams=2)
        client.create_table(
            "stock", log="orders", indexes={"by_n": "json:/n:int"}, replicas=2
        )
        change(client, model, random, 300)
        check(client, model)
        before = client.table("stock").describe().hosts
        killed = before[0].node
        cluster.kill(killed)
        change(client, model, random, 100)
        check(client, model)
        deadline = time.monotonic() + SETTLE_S
        while True:
            hosts = client.table("stock").describe().hosts
            if killed not in {h.node for h in hosts} and all(h.joined for h in hosts):
                break
            assert time.monotonic() < deadline, hosts
            time.sleep(0.1)
        assert len(hosts) == 2
        # The one that was there all the time goes too: the new one answers alone.
        [new] = {h.node for h in hosts} - {h.node for h in before}
        staying = next(h.node for h in hosts if h.node != new)
        cluster.restart(killed)
        cluster.kill(staying)
        change(client, model, random, 50)
        check(client, model)


def test_all_nodes_are_killed_and_the_table_is_what_it_was(
    cluster: LocalCluster,
) -> None:
    random, model = Random(4), Model()
    with braidlog.connect(cluster.seeds) as client:
        client.create_log("orders", streams=2)
        client.create_table("stock", log="orders", replicas=3)
        change(client, model, random, 200)
        with client.ddl() as ddl:
            ddl.create_index("stock", "by_n", "json:/n:int")
        for node in cluster.nodes:
            cluster.kill(node)
        for node in cluster.nodes:
            cluster.restart(node)
        assert client.table("stock").index("by_n").wait(timeout=SETTLE_S)
        check(client, model)
        change(client, model, random, 50)
        check(client, model)


def command(cluster: LocalCluster, *arguments: str) -> str:
    """Run a command of the command line; return what it prints."""
    return said(*arguments, "--cluster", cluster.seeds)


def shown(cluster: LocalCluster, *arguments: str) -> list[str]:
    """Return the values of the records that a command shows."""
    lines = command(cluster, "table", *arguments, "--json").splitlines()
    return [json.loads(line)["value"] for line in lines]


def test_the_command_line_reads_a_cluster(cluster: LocalCluster) -> None:
    with braidlog.connect(cluster.seeds) as client:
        log = client.create_log("orders", streams=2)
        command(
            cluster,
            *("table", "create", "stock", "--log", "orders", "--replicas", "2"),
            *("--index", "by_n=json:/n:int"),
        )
        values = [b'{"n":%d}' % n for n in range(20)]
        position = max(log.append_many(values, keys=KEYS[:20]))
    assert shown(cluster, "get", "stock", "k003") == ['{"n":3}']
    back = shown(cluster, "scan", "stock", "--limit", "2", "--reverse")
    assert back == ['{"n":19}', '{"n":18}']
    by = shown(cluster, "scan", "stock", "--index", "by_n", "--begin", "18")
    assert by == ['{"n":18}', '{"n":19}']
    command(cluster, "index", "create", "stock", "all", "value")
    described = json.loads(command(cluster, "table", "describe", "stock", "--json"))
    assert described["applied"] == position
    assert [index["state"] for index in described["indexes"]] == ["active"] * 2
    [row] = json.loads(command(cluster, "cluster", "status", "--json"))["tables"]
    assert (row["table"], row["log"], row["lag"]) == ("stock", "orders", 0)
    assert (len(row["hosts"]), row["missing"]) == (2, 0)
    assert "stock" in command(cluster, "cluster", "status")
    command(cluster, "table", "rename", "stock", "goods")
    assert shown(cluster, "get", "goods", "k003") == ['{"n":3}']
    [listed] = command(cluster, "table", "list", "--json").splitlines()
    assert json.loads(listed)["table"] == "goods"
    command(
        cluster, "table", "create", "later", "--log", "orders", "--begin", str(position)
    )
    [whole] = command(cluster, "table", "verify", "--json").splitlines()
    found = json.loads(whole)
    assert (found["tables"], found["records"], found["findings"]) == (2, 21, [])
    assert found["entries"] == 40
    rebuilt = json.loads(command(cluster, "table", "rebuild", "goods", "--json"))
    assert rebuilt["applied"] == position
    assert shown(cluster, "get", "goods", "k003") == ['{"n":3}']
    command(cluster, "table", "drop", "later", "--yes")
    command(cluster, "index", "drop", "goods", "all")
    command(cluster, "table", "drop", "goods", "--yes")
    assert command(cluster, "table", "list", "--json") == ""
