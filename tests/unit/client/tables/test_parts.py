"""Parts of a table of a cluster, and positions that hosts keep for their readers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.client.tables.reads import Wanted, _checked_parts
from braidlog.errors import OlderNodesError, RemoteProtocolError, TrimmedError
from braidlog.store.tables.entry import TablePart
from braidlog.wire.messages import Feature
from braidlog.wire.rows import ScanRows, TableParts
from unit.client.tables.test_cluster_tables import KEYS, filled
from unit.node.tables.cluster import running, until


async def test_parts_are_the_whole_at_one_position(tmp_path: Path) -> None:
    async with running(tmp_path, 2, native=True) as nodes:
        log = await nodes.client.create_log("log", streams=2)
        indexes = {"by_n": "json:/n:int"}
        table = await nodes.client.create_table("stock", log="log", indexes=indexes)
        values = [b'{"n":%d,"x":"%s"}' % (n, b"x" * 300) for n in range(2000)]
        keys = [b"k%05d" % (n * 7 % 2000) for n in range(2000)]
        for begin in range(0, 2000, 500):
            end = begin + 500
            await log.append_many(values[begin:end], keys=keys[begin:end])
        await flushed(table, 2000)
        async with table.at() as snapshot:
            await log.append(b"late", key=b"k00000")
            parts = await snapshot.divide(2000, b"k00100", b"k01900")
            assert len(parts) > 3
            assert (parts[0].begin, parts[-1].end) == (b"k00100", b"k01900")
            found = [r.key for p in parts async for r in snapshot.scan(p.begin, p.end)]
            assert found == sorted(k for k in keys if b"k00100" <= k < b"k01900")
            [whole] = await snapshot.divide(1 << 63)
            assert whole.end is None
            # A page may count on both sides of a border.
            assert 0 < whole.bytes <= sum(part.bytes for part in parts)
            index = snapshot.index("by_n")
            parts = await index.divide(500, 10, 1500)
            assert len(parts) > 3
            rows = [
                row["position"]
                for part in parts
                async for batch in index.part_batches(part, columns=["position"])
                for row in batch.to_pylist()
            ]
            assert rows == [r.position async for r in index.scan(10, 1500)]
            assert len(rows) == 1490
            assert 0.6 < await index.part(10, 1500) < 0.95
            assert await index.part(5, 5) == 0.0


async def flushed(table: Any, position: int = 0) -> None:
    async with asyncio.timeout(20):
        while True:
            stats = await table.stats()
            if position <= stats.flushed == stats.applied:
                return
            await asyncio.sleep(0.05)


async def test_what_one_host_has_merged_another_may_have(tmp_path: Path) -> None:
    async with running(tmp_path, 2, native=True) as nodes:
        log, table, model = await filled(nodes, replicas=2)
        assert await table.wait(200, timeout=5)
        one, other = table._hosts.info().joined
        # One of them keeps the position, the other one merges it.
        held = await table._hosts.hold(200, 200, one)
        assert held.node == one
        for _ in range(3):
            last = max(await log.append_many([b"late"] * 40, keys=KEYS))
            await asyncio.sleep(0.3)
        assert await table.wait(last, timeout=5)
        ask = ScanRows(table._hosts.info().table, b"", b"", None, False, 1, 1, 200)
        with pytest.raises(TrimmedError):  # The other one has not.
            await table._hosts.cluster.ask_node(other, ask, within=2.0)
        for _ in range(10):
            async with table.at(200) as snapshot:
                assert {r.key: r.value async for r in snapshot.scan()} == model
        await held.close()


async def test_a_shared_position_stays_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("braidlog.client.tables.hosts._SHARED_S", 2.0)
    async with running(tmp_path, 2, native=True) as nodes:
        log, table, model = await filled(nodes, replicas=2)
        assert await table.wait(200, timeout=5)
        addresses = [n.config.node.listen for n in nodes.nodes.values()]
        async with (
            braidlog.connect_async(addresses) as planner,
            (await planner.table("stock")).at(200) as snapshot,
        ):
            await snapshot.share()
            await snapshot.share()
            begun = asyncio.get_running_loop().time()
        leases = [node.tables._leases for node in nodes.nodes.values()]
        assert [len(each) for each in leases] == [1, 1]
        await log.append_many([b"late"] * 40, keys=KEYS)
        await table.flush()
        # Each of the hosts has it, though the planner is gone.
        async with table.at(200) as snapshot:
            await snapshot.share()
            for node in nodes.nodes:
                info = table._hosts.info()
                assert await nodes.get(node, info.table, *KEYS, at=200) == model
            # It is asked for again as long as this is open.
            await asyncio.sleep(begun + 2.5 - asyncio.get_running_loop().time())
            assert [len(each) for each in leases] == [1, 1]
            assert {r.key: r.value async for r in snapshot.scan()} == model
        await until(lambda: not any(map(len, leases)))
        await log.append_many([b"later"] * 40, keys=KEYS)
        await table.flush()
        with pytest.raises(TrimmedError):
            async with table.at(200):
                pass


async def test_an_empty_table_has_no_parts(tmp_path: Path) -> None:
    async with running(tmp_path, 1, native=True) as nodes:
        log = await nodes.client.create_log("log")
        table = await nodes.client.create_table("stock", log="log")
        async with table.at() as snapshot:
            await snapshot.share()
            assert await snapshot.divide(1) == []
            await log.append(b"later", key=b"k")
            assert await table.get(b"k") is not None
            assert [row async for row in snapshot.scan()] == []
            assert await snapshot.get(b"k") is None
            assert await snapshot.divide(1) == []


async def test_hosts_of_an_older_version_are_asked_for_no_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = Feature.TABLES | Feature.RELEASES
    monkeypatch.setattr("braidlog.node.node.FEATURES_OF_TABLES", older)
    async with running(tmp_path, 1, native=True) as nodes:
        _, table, _ = await filled(nodes)
        async with table.at() as snapshot:
            with pytest.raises(OlderNodesError, match="cannot be asked") as refused:
                await snapshot.divide(1)
            assert refused.value.nodes == (1,)
            with pytest.raises(OlderNodesError):
                await snapshot.share()


def test_parts_have_to_be_all_of_what_is_wanted() -> None:
    wanted = Wanted(b"b", b"x")
    good = TableParts(5, (b"b", b"m"), (10, 20), 40)
    parts = [TablePart(b"b", b"m", 10), TablePart(b"m", b"x", 20)]
    assert _checked_parts(wanted, good, 5) == parts
    for wrong in (
        TableParts(4, (b"b", b"m"), (10, 20), 40),
        TableParts(6, (b"b", b"m"), (10, 20), 40),
        TableParts(5, (b"b", b"m"), (10,), 40),
        TableParts(5, (b"c", b"m"), (10, 20), 40),
        TableParts(5, (b"b", b"m", b"c"), (10, 20, 1), 40),
        TableParts(5, (b"b", b"b"), (10, 20), 40),
        TableParts(5, (b"b", b"x"), (10, 20), 40),
        TableParts(5, (), (), 40),
        TableParts(5, (b"b", *(b"c%d" % n for n in range(1024))), (0,) * 1025, 0),
    ):
        with pytest.raises(RemoteProtocolError):
            _checked_parts(wanted, wrong, 5)
    nothing = TableParts(5, (), (), 40)
    assert _checked_parts(Wanted(b"x", b"b"), nothing, 5) == []
    with pytest.raises(RemoteProtocolError, match="no keys"):
        _checked_parts(Wanted(b"x", b"b"), good, 5)
