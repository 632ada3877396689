"""The recorded changes as a table of a cluster whose hosts are killed."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest
from examples.demo.events import Tree, decode, key_of
from examples.demo.files import read_lines, read_oracle
from examples.demo.options import LOG
from examples.demo.pasts import DELETES, TABLE, trees_of

import braidlog
from braidlog.client.tables.blocking import ClusterTable
from braidlog.testing.cluster import LocalCluster
from demo.test_real_data import fewer

SETTINGS = {"timing": {"table_repair_ms": 1000}}
BATCH = 1000
SETTLE_S = 60.0


class Model:
    """What is in the trees, from the changes alone."""

    def __init__(self) -> None:
        self.trees: dict[str, Tree] = {}

    def take(self, lines: list[bytes]) -> None:
        for event in map(decode, lines):
            tree = self.trees.setdefault(event.source, {})
            if event.entry is None:
                tree.pop(event.path, None)
            else:
                tree[event.path] = event.entry

    def copy(self) -> dict[str, Tree]:
        return {source: dict(tree) for source, tree in self.trees.items() if tree}


def wait_for_hosts(table: ClusterTable, without: int) -> list[int]:
    """Wait until two hosts have all of the table, none of them this one."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        hosts = table.describe().hosts
        nodes = [host.node for host in hosts]
        if len(hosts) == 2 and all(h.joined for h in hosts) and without not in nodes:
            return nodes
        assert time.monotonic() < deadline, hosts
        time.sleep(0.1)


def check(reads: Any, expected: dict[str, Tree]) -> None:
    """Compare all keys with the trees, and the index with the keys."""
    rows = list(reads.scan())
    assert trees_of(iter(rows)) == expected
    for source in [*expected, "none"]:
        found = [row.position for row in reads.index("by_source").get(source)]
        key = f"{source}/".encode()
        assert found == [r.position for r in rows if r.key.startswith(key)]


@pytest.mark.real_data
@pytest.mark.soak
@pytest.mark.process
@pytest.mark.timeout(600)
def test_changes_in_a_cluster_whose_hosts_are_killed(tmp_path: Path) -> None:
    """Two hosts are killed meanwhile; in the end each that is left has the oracle."""
    events, oracle, count = fewer(tmp_path)
    expected = read_oracle(oracle)
    place = tmp_path / "cluster"
    with (
        LocalCluster(4, directory=place, settings=SETTINGS, voters=3) as cluster,
        braidlog.connect(cluster.seeds) as client,
    ):
        log = client.create_log(LOG, streams=2)
        table = client.create_table(
            TABLE,
            log=LOG,
            indexes={"by_source": "json:/source:text"},
            replicas=2,
            history=count,
            memory_bytes=1 << 20,
            deletes=DELETES,
        )
        model, killed, middle = Model(), 0, (0, dict[str, Tree]())
        kills = [count // 4, count // 2]
        lines, done = read_lines(events), 0
        while batch := list(itertools.islice(lines, BATCH)):
            if kills and done >= kills[0]:
                kills.pop(0)
                if killed:
                    wait_for_hosts(table, killed)
                    cluster.restart(killed)
                    check(table, model.copy())
                killed = table.describe().hosts[0].node
                cluster.kill(killed)
            keys = [key_of(decode(line)) for line in batch]
            positions = log.append_many(batch, keys=keys)
            model.take(batch)
            done += len(batch)
            if not middle[0] and done > count // 3:
                middle = max(positions), model.copy()
        assert (done, kills) == (count, [])
        assert model.copy() == expected
        check(table, expected)
        with table.at(middle[0]) as snapshot:
            check(snapshot, middle[1])
        # Each of them by itself.
        one, other = wait_for_hosts(table, killed)
        cluster.restart(killed)
        for node in (one, other):
            cluster.kill(node)
            check(table, expected)
            cluster.restart(node)
            wait_for_hosts(table, 0)
