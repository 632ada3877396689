"""Backups of a cluster, and of a directory, restored as clusters and as directories."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog import Producer
from braidlog.backup import backups, restore, verify
from braidlog.client import connect_async
from braidlog.errors import BackupDamagedError, LogError
from braidlog.testing.cluster import LocalCluster
from commands import said

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

SETTINGS = {"limits": {"segment_bytes": 4 << 20, "wal_bytes_max": 256 << 20}}
PRODUCER = Producer(77)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    where = tmp_path_factory.mktemp("cluster")
    with LocalCluster(3, directory=where, settings=SETTINGS) as cluster:
        yield cluster


def restored(
    place: Path, where: Path, nodes: int, *options: str, name: str = "braidlog"
) -> LocalCluster:
    """Return a cluster whose first node has a backup, and the others nothing."""
    found = LocalCluster(nodes, voters=1, directory=where, settings=SETTINGS)
    said("restore", place, found.data(1), "--as-cluster", name, *options)
    return found


def wait_for_logs(client: Any, count: int) -> None:
    """Wait until the repository has heard what the first node has."""
    deadline = time.monotonic() + 60
    while len(client.logs()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def rows(log: Any) -> list[Any]:
    return [(r.position, r.timestamp, r.key, r.value, r.headers) for r in log.read()]


def cursors(log: Any) -> list[Any]:
    return sorted((c.name, c.position, c.pin, c.lease) for c in log.cursors())


def fill(log: Any, count: int, begin: int = 0) -> None:
    for number in range(begin, begin + count):
        log.append(b"%d" % number * 9, key=b"k%d" % (number % 17), headers={"h": b"x"})


def test_a_cluster_comes_back_with_other_nodes(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Positions, options, cursors and streams stay; replicas grow as nodes join."""
    place = tmp_path / "place"
    with braidlog.connect(cluster.seeds) as client:
        log = client.create_log("orders", streams=3, replication=3, retention_ms=10**12)
        fill(log, 300)
        log.trim(before=41)
        log.cursor("billing", pin=True, lease=500.0).commit(100)
        log.cursor("audit")
        one = client.create_log("one", compression="zstd")
        one.append_many([b"a", b"b", b"c"], producer=PRODUCER, sequence=1)
        client.create_log("empty", streams=2)
        made = client.backup(place)
        fill(log, 20, 300)
        expected = {name: rows(client.log(name)) for name in client.logs()}
        kept = {name: cursors(client.log(name)) for name in client.logs()}
    assert (made.records, made.source.kind) == (263, "cluster")
    expected["orders"] = expected["orders"][:-20]
    assert verify(place).findings == []

    with restored(place, tmp_path / "new", 2) as other:
        with braidlog.connect(other.seeds) as client:
            wait_for_logs(client, 3)
            assert client.logs() == ["empty", "one", "orders"]
            for name, wanted in expected.items():
                assert rows(client.log(name)) == wanted, name
                assert cursors(client.log(name)) == kept[name]
            log = client.log("orders")
            assert log.options.retention_ms == 10**12
            assert (log.first, log.end) == (41, 301)
            assert log.append(b"more", key=b"k1") == 301
            assert client.log("empty").append(b"first") == 1
            one = client.log("one")
            assert one.next_sequence(PRODUCER) == 4
            again = one.append_many([b"b", b"c"], producer=PRODUCER, sequence=2)
            assert again == range(2, 4)
            assert one.append(b"d", producer=PRODUCER, sequence=4) == 4
        asyncio.run(has_replicas(other.seeds, "orders", 2))
        other.kill(1)
        other.start(1)
        other.wait_ready()
        with braidlog.connect(other.seeds) as client:
            assert rows(client.log("orders"))[:-1] == expected["orders"]


async def has_replicas(seeds: str, log: str, count: int) -> None:
    async with asyncio.timeout(60), connect_async(seeds) as client:
        while True:
            streams = await client.streams(log)
            if all(len(each.in_sync or ()) == count for each in streams):
                return
            await asyncio.sleep(0.2)


def test_a_cluster_comes_back_as_a_directory(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    with braidlog.connect(cluster.seeds) as client:
        many = client.create_log("many", streams=4)
        fill(many, 200)
        many.append(None, key=b"k3", headers={"h": None})
        many.trim(before=11)
        many.cursor("c").commit(50)
        single = client.create_log("single")
        single.append_many([b"a", b"b", b"c"], producer=PRODUCER, sequence=1)
        client.backup(place)
        expected = {name: rows(client.log(name)) for name in client.logs()}
        kept = {name: cursors(client.log(name)) for name in client.logs()}
    restore(place, tmp_path / "data")
    with braidlog.open(tmp_path / "data") as store:
        assert store.logs() == sorted(expected)
        for name, wanted in expected.items():
            assert rows(store.log(name)) == wanted
            assert cursors(store.log(name)) == kept[name]
        found = store.log("single")
        assert found.next_sequence(PRODUCER) == 4
        assert found.append(b"b", producer=PRODUCER, sequence=2) == 2
        assert store.log("many")[201].value is None
        assert store.log("many").append(b"more") == 202


def test_a_directory_becomes_a_cluster_and_a_directory_again(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "data", segment_bytes=1 << 20) as store:
        log = store.create_log("orders", compression="lz4")
        log.append_many([b"%d" % n for n in range(500)], producer=PRODUCER, sequence=1)
        fill(log, 100)
        log.trim(before=101)
        log.cursor("c", pin=True).commit(120)
        forgotten = store.create_log("forgotten")
        forgotten.append(b"x", producer=PRODUCER, sequence=1)
        forgotten.trim(before=2)
        store.create_log("empty")
        store.backup(tmp_path / "place")
        expected = {name: rows(store.log(name)) for name in store.logs()}
        kept = cursors(log)
    with restored(tmp_path / "place", tmp_path / "new", 1, "--replication", "1") as new:
        with braidlog.connect(new.seeds) as client:
            wait_for_logs(client, 3)
            for name, wanted in expected.items():
                assert rows(client.log(name)) == wanted, name
            found = client.log("orders")
            assert cursors(found) == kept
            assert found.next_sequence(PRODUCER) == 501
            assert found.append(b"499", producer=PRODUCER, sequence=500) == 500
            assert found.append(b"new", producer=PRODUCER, sequence=501) == 601
            # Its records are trimmed, and it is known all the same.
            assert client.log("forgotten").next_sequence(PRODUCER) == 2
            assert client.log("forgotten").append(b"y") == 2
            made = client.backup(tmp_path / "back")
            now = {name: rows(client.log(name)) for name in client.logs()}
        assert made.records == 502
    restore(tmp_path / "back", tmp_path / "again")
    with braidlog.open(tmp_path / "again") as store:
        assert {name: rows(store.log(name)) for name in store.logs()} == now
        assert store.log("orders").next_sequence(PRODUCER) == 502


def test_appends_and_trims_go_on_while_a_cluster_is_backed_up(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    stop = threading.Event()
    with braidlog.connect(cluster.seeds) as client:
        log = client.create_log("busy", streams=2)
        acknowledged: list[int] = []

        def append() -> None:
            cursor = log.cursor("reader", pin=True)
            while not stop.is_set():
                found = log.append_many(
                    [b"%d" % n for n in range(20)], keys=[b"k"] * 20
                )
                acknowledged.append(found[-1] + 1)
                if len(acknowledged) % 10 == 0:
                    cursor.commit(acknowledged[-10])
                    log.trim(before=acknowledged[-10])

        thread = threading.Thread(target=append)
        thread.start()
        try:
            known = []
            for _ in range(4):
                known.append(acknowledged[-1] if acknowledged else 1)
                client.backup(place)
        finally:
            stop.set()
            thread.join()
    for number, each in enumerate(backups(place)):
        assert verify(place, each.id).findings == []
        restore(place, tmp_path / f"data{number}", each.id)
        with braidlog.open(tmp_path / f"data{number}") as store:
            found = store.log("busy")
            assert found.end >= known[number]
            assert [r.position for r in found.read()] == [
                *range(found.first, found.end)
            ]
            for cursor in found.cursors():
                assert found.first <= cursor.position <= found.end


def test_increments_copy_what_is_new(cluster: LocalCluster, tmp_path: Path) -> None:
    place = tmp_path / "place"
    with braidlog.connect(cluster.seeds) as client:
        log = client.create_log("large", streams=2)
        log.append_many([bytes(9000)] * 400, keys=[b"%d" % n for n in range(400)])
        first = client.backup(place)
        fill(log, 5)
        second = client.backup(place)
        assert second.base == first.id
        assert second.new_bytes < first.bytes // 2
        wanted = rows(log)
    target = tmp_path / "data"
    restore(place, target)
    with braidlog.open(target) as store:
        assert rows(store.log("large")) == wanted


def test_the_command_makes_one(cluster: LocalCluster, tmp_path: Path) -> None:
    place = tmp_path / "place"
    made = said("backup", "create", place, "--cluster", cluster.seeds)
    assert made.startswith("backup ")
    assert "cluster" in said("backup", "list", place, "--json")


# -- tables ----------------------------------------------------------------------------

FIELDS = {"by_city": "json:/city", "by_n": "json:/n:int"}
FLUSH_S = 45


def put(log: Any, begin: int, end: int) -> None:
    """Append values of a few keys, some of which are deleted."""
    for n in range(begin, end):
        key = b"k%d" % (n % 37)
        value = None if n % 11 == 10 else b'{"city":"c%d","n":%d}' % (n % 5, n % 7)
        log.append(value, key=key, headers={"h": b"%d" % n})


def seen(owner: Any, name: str = "stock") -> dict[str, list[Any]]:
    """Everything that can be read of a table of a cluster or a directory."""
    table = owner.table(name)
    described = table.describe()
    found = {"all": [record.as_tuple() for record in table.scan()]}
    assert found["all"]
    for index in described.indexes:
        reads = table.index(index.name)
        assert reads.wait(timeout=60)
        found[f"{index.name} of {index.field}"] = [r.as_tuple() for r in reads.scan()]
    found["options"] = [described.deletes, described.history, described.start]
    return found


def own(log: Any) -> list[Any]:
    """Return its cursors, but for the pins of tables."""
    return [row for row in cursors(log) if not row[0].startswith("table:")]


def trim_all(log: Any) -> None:
    """Trim everything that the hosts have in files."""
    deadline = time.monotonic() + FLUSH_S
    while log.first < log.end:
        assert time.monotonic() < deadline, (log.first, log.end)
        try:
            log.trim(before=log.end)
        except LogError:
            time.sleep(0.5)


def wait_for_hosts(client: Any, count: int, name: str = "stock") -> None:
    deadline = time.monotonic() + 60
    while True:
        hosts = client.table(name).describe().hosts
        if len(hosts) == count and all(host.joined for host in hosts):
            return
        assert time.monotonic() < deadline, hosts
        time.sleep(0.2)


@pytest.fixture(scope="module")
def tables(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, list[Any]]]:
    """Two backups of tables whose logs are trimmed, and what they had at the second."""
    place = tmp_path_factory.mktemp("tables") / "place"
    with braidlog.connect(cluster.seeds) as client:
        log = client.create_log("stock", streams=2)
        by_city = {"by_city": FIELDS["by_city"]}
        client.create_table(
            "stock", log="stock", indexes=by_city, replicas=2, history=100
        )
        put(log, 1, 400)
        with client.ddl() as ddl:
            ddl.create_index("stock", "by_n", FIELDS["by_n"])
        assert client.table("stock").index("by_n").wait(timeout=60)
        trim_all(log)
        first = client.backup(place)
        put(log, 400, 450)
        wanted = seen(client)
        second = client.backup(place)
        # What came later is not in it.
        put(log, 450, 460)
    assert second.base == first.id
    (table,) = [table for table in second.tables if table.name == "stock"]
    assert table.files
    assert {file.path for file in table.files} & {part.path for part in first.parts}
    assert [index.active for index in table.indexes] == [True, True]
    assert verify(place).findings == []
    return place, wanted


def test_tables_of_a_cluster_come_back_with_other_nodes(
    tables: tuple[Path, dict[str, list[Any]]], tmp_path: Path
) -> None:
    """The first node has them at once; others copy them, and it may go then."""
    place, wanted = tables
    with restored(place, tmp_path / "new", 3) as other:
        with braidlog.connect(other.seeds) as client:
            wait_for_logs(client, 1)
            assert seen(client) == wanted
            assert client.table("stock").describe().replicas == 2
            wait_for_hosts(client, 2)
            assert seen(client) == wanted
            put(client.log("stock"), 500, 560)
            after = seen(client)
            assert after != wanted
            made = client.backup(tmp_path / "again")
            first = client.table("stock").describe().hosts[0].node
        other.kill(first)
        other.start(first)
        other.wait_ready()
        with braidlog.connect(other.seeds) as client:
            assert seen(client) == after
    assert "stock" in {table.name for table in made.tables}
    restore(tmp_path / "again", tmp_path / "data")
    with braidlog.open(tmp_path / "data") as store:
        assert seen(store) == after


def test_tables_of_a_cluster_come_back_in_a_directory(
    tables: tuple[Path, dict[str, list[Any]]], tmp_path: Path
) -> None:
    place, wanted = tables
    restore(place, tmp_path / "data")
    with braidlog.open(tmp_path / "data") as store:
        assert seen(store) == wanted
        store.table("stock").verify()
        log = store.log("stock")
        put(log, log.end, log.end + 50)
        store.table("stock").flush()
        after = seen(store)
    with braidlog.open(tmp_path / "data") as store:
        assert seen(store) == after


def test_damage_of_a_table_is_found_in_a_backup_of_a_cluster(
    tables: tuple[Path, dict[str, list[Any]]], tmp_path: Path
) -> None:
    place = tmp_path / "place"
    shutil.copytree(tables[0], place)
    files = backups(place)[-1].tables[0].files
    for number, file in enumerate(files):
        path = place / file.path
        good = path.read_bytes()
        at = number * 31 % len(good)
        path.write_bytes(good[:at] + bytes([good[at] ^ 8]) + good[at + 1 :])
        (finding,) = verify(place).findings
        assert (finding.path, finding.table) == (str(path), "stock")
        with pytest.raises(BackupDamagedError, match="checksum"):
            restore(place, tmp_path / f"data{number}")
        path.write_bytes(good)


def test_tables_of_a_directory_come_back_in_a_cluster_and_again_in_a_directory(
    tmp_path: Path,
) -> None:
    with braidlog.open(tmp_path / "data", segment_bytes=1 << 20) as store:
        log = store.create_log("stock")
        store.create_table("stock", log="stock", indexes=FIELDS, deletes="null")
        log.append_many([b"{}"] * 9, keys=[b"a"] * 9, producer=PRODUCER, sequence=1)
        put(log, 10, 300)
        store.table("stock").flush()
        trim_all(log)
        log.cursor("c", pin=True).commit(log.end)
        put(log, log.end, log.end + 20)
        wanted, kept = seen(store), own(log)
        store.backup(tmp_path / "place")
    with restored(tmp_path / "place", tmp_path / "new", 1, "--replication", "1") as new:
        with braidlog.connect(new.seeds) as client:
            wait_for_logs(client, 1)
            assert seen(client) == wanted
            found = client.log("stock")
            assert own(found) == kept
            assert found.next_sequence(PRODUCER) == 10
            put(found, 320, 360)
            after = seen(client)
            client.backup(tmp_path / "back")
        new.kill(1)
        new.start(1)
        new.wait_ready()
        with braidlog.connect(new.seeds) as client:
            assert seen(client) == after
    restore(tmp_path / "back", tmp_path / "again")
    with braidlog.open(tmp_path / "again") as store:
        assert seen(store) == after
        assert own(store.log("stock")) == kept
        store.table("stock").verify()
