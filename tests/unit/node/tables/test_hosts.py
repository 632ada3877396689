"""Nodes keep tables: they follow, join, repair, build indexes, and answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sim.tables.engine import REFUSED, TableDisk

from braidlog.client import AsyncClusterLog
from braidlog.errors import (
    InvalidArgumentError,
    LogError,
    NotReadyError,
    OlderNodesError,
    TooLargeError,
    TrimmedError,
)
from braidlog.node.server import NodeServer, open_store
from braidlog.node.tables.host import HostState
from braidlog.node.tables.view import CatalogView
from braidlog.wire.messages import Metadata
from braidlog.wire.rows import (
    DivideTable,
    FetchRun,
    GetRows,
    GetTable,
    PinnedRuns,
    PinRuns,
    ReleaseRows,
    ScanRows,
    TableStatus,
)
from braidlog.wire.tables import CreateIndex, DropIndex, DropTable, IndexStatus
from unit.node.tables.cluster import SETTINGS, Nodes, identity, running, serving, until


async def fill(log: AsyncClusterLog, count: int, text: bytes = b"v") -> int:
    keys = [b"k%03d" % (n % 50) for n in range(count)]
    values = [text + b"%d" % n for n in range(count)]
    positions = await log.append_many(values, keys=keys)
    return int(max(positions))


async def make(
    nodes: Nodes, replicas: int, *, replication: int | None = None
) -> tuple[AsyncClusterLog, bytes]:
    log = await nodes.client.create_log("log", streams=2, replication=replication)
    table = await nodes.create(log, "stock", replicas)
    info = await nodes.info(table)
    assert info is not None
    await serving(nodes, table, *info.hosts)
    return log, table


async def test_hosts_follow_the_log_and_answer_after_a_position(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as nodes:
        log, table = await make(nodes, 2)
        info = await nodes.info(table)
        assert info is not None
        assert len(info.hosts) == 2
        assert info.joined == info.hosts
        last = await fill(log, 300)
        for node in info.hosts:
            found = await nodes.get(node, table, b"k000", b"none", b"k049", after=last)
            assert found == {b"k000": b"v250", b"k049": b"v299"}
        other = ({1, 2, 3} - {*info.hosts}).pop()
        with pytest.raises(NotReadyError, match="keeps no table"):
            await nodes.get(other, table, b"k000")


async def test_what_is_not_applied_yet_is_waited_for_and_refused(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 1) as nodes:
        log, table = await make(nodes, 1)
        last = await fill(log, 1)
        waiting = asyncio.create_task(nodes.get(1, table, b"k000", after=last + 3))
        await until(lambda: nodes.nodes[1].tables.waiting == 1)
        await fill(log, 3)
        assert await waiting == {b"k000": b"v0"}
        ask = GetRows(table, (b"k000",), 0, last + 9, 50)
        with pytest.raises(NotReadyError, match="not yet"):
            await nodes.cluster.ask_node(1, ask, within=8)
        assert nodes.nodes[1].tables.waiting == 0
        with pytest.raises(NotReadyError, match="not yet"):
            await nodes.cluster.ask_node(1, replace_wait(ask), within=8)
        keys = (b"k",) * (SETTINGS.keys_max + 1)
        with pytest.raises(TooLargeError):
            await nodes.get(1, table, *keys)


def replace_wait(ask: GetRows) -> GetRows:
    return GetRows(ask.table, ask.keys, ask.at, ask.after, 0)


async def test_scans_go_on_where_they_stopped_at_one_position(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as nodes:
        log, table = await make(nodes, 1)
        last = await fill(log, 100)
        for reverse in (False, True):
            seen: list[bytes] = []
            begin, end, at = b"", None, 0
            while True:
                ask = ScanRows(
                    table, b"", begin, end, reverse, 7, 1 << 20, at, last, 5000, 60_000
                )
                rows, found = await nodes.scan(1, ask)
                seen += found
                at = rows.position
                assert at == last
                if rows.next is None:
                    break
                if reverse:
                    end = rows.next
                else:
                    begin = rows.next
                # What comes later is not seen, and what it replaces is not lost.
                await log.append(b"later", key=b"k010")
            assert seen == sorted((b"k%03d" % n for n in range(50)), reverse=reverse)
            last = await fill(log, 100)
        with pytest.raises(NotReadyError):
            await nodes.get(1, table, b"k", at=last + 1000)


async def test_a_lease_keeps_a_position_and_ends(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as nodes:
        log, table = await make(nodes, 1)
        first = await fill(log, 50)
        ask = ScanRows(table, b"", b"", None, False, 1, 1, first, first, 5000, 1500)
        await nodes.scan(1, ask)
        for _ in range(3):
            await fill(log, 300, b"new")
        [open_table] = nodes.nodes[1].engine.open_tables.values()  # type: ignore[union-attr]
        await until(lambda: open_table.floor == first)
        assert await nodes.get(1, table, b"k000", at=first) == {b"k000": b"v0"}

        async def ended() -> None:
            while True:
                await fill(log, 300, b"new")
                await asyncio.sleep(0.05)
                await nodes.get(1, table, b"k000", at=first)

        with pytest.raises(TrimmedError):
            await ended()


async def test_a_new_host_copies_and_the_drained_one_leaves(tmp_path: Path) -> None:
    async with running(tmp_path, 4) as nodes:
        log, table = await make(nodes, 2, replication=3)
        last = await fill(log, 600)
        info = await nodes.info(table)
        assert info is not None
        leaving, staying = info.hosts
        nodes_of = nodes.nodes

        async def trimmed() -> bool:
            # What the hosts have in files is not needed from the log.
            await log.trim(last + 1)
            return (await log.refresh()).start > 500

        while not await _tried(trimmed):
            await fill(log, 10)
        await nodes.client.drain_node(leaving)
        while True:
            info = await nodes.info(table)
            assert info is not None
            if leaving not in info.hosts and len(info.joined) == 2:
                break
            await asyncio.sleep(0.02)
        new = next(each for each in info.hosts if each != staying)
        assert nodes_of[new].disk.installed == 1
        last = await fill(log, 5, b"w")
        for node in info.hosts:
            found = await nodes.get(node, table, b"k000", b"k049", after=last)
            assert found == {b"k000": b"w0", b"k049": b"v599"}
        await until(lambda: table not in nodes_of[leaving].disk.tables)


def trashed(disk: TableDisk, table: bytes) -> bool:
    return table in disk.trashed


async def _tried(what: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await what()
    except LogError:
        return False


async def test_a_node_that_restarts_goes_on_where_its_files_end(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as nodes:
        log, table = await make(nodes, 1)
        node = nodes.nodes[1]
        await fill(log, 300)
        await until(lambda: len(node.disk.tables[table]) > 1)
        await node.end()
        await node.start()
        await serving(nodes, table, 1)
        assert await nodes.get(1, table, b"k000") == {b"k000": b"v250"}
        assert node.engine is not None
        assert node.engine.open_tables[table].applied_twice == 0


async def test_a_dropped_table_is_taken_away_also_by_who_was_away(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 3) as nodes:
        _, table = await make(nodes, 3)
        away = nodes.nodes[3]
        await away.end()
        await nodes.change(DropTable(table))
        for number in (1, 2):
            disk = nodes.nodes[number].disk
            await until(partial(trashed, disk, table))
        assert table in away.disk.tables
        await away.start()
        await until(lambda: table in away.disk.trashed)
        assert away.tables.status() == ()


async def test_indexes_are_built_or_aborted(tmp_path: Path) -> None:
    async with running(tmp_path, 3) as nodes:
        log, table = await make(nodes, 3)
        last = await fill(log, 50)
        good, bad = identity(), identity()
        await nodes.change(
            CreateIndex(table, good, "by_value", b"value"),
            CreateIndex(table, bad, "by_city", REFUSED),
        )
        while True:
            info = await nodes.info(table)
            assert info is not None
            status = {each.name: each.status for each in info.indexes}
            if IndexStatus.BUILDING not in status.values():
                break
            await asyncio.sleep(0.02)
        assert status == {
            "by_value": IndexStatus.ACTIVE,
            "by_city": IndexStatus.ABORTED,
        }
        [reason] = [each.reason for each in info.indexes if each.reason]
        assert "position 1" in reason
        ask = ScanRows(table, good, b"v4", b"v5", False, 100, 1 << 20, 0, last, 5000)
        for node in info.hosts:
            # The index is built by each host for itself.
            while True:
                try:
                    rows, found = await nodes.scan(node, ask)
                    break
                except NotReadyError:
                    await asyncio.sleep(0.02)
            assert [*found.values()] == [b"v4", *(b"v4%d" % n for n in range(10))]
            assert rows.next is None
        await nodes.change(DropIndex(table, good))
        [engine] = {nodes.nodes[1].engine}
        assert engine is not None
        await until(lambda: good not in engine.open_tables[table]._known)


async def test_the_state_of_a_table_is_told(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as nodes:
        log, table = await make(nodes, 1)
        last = await fill(log, 5)
        ask = GetTable(table, last, 5000)
        status, _ = await nodes.cluster.ask_node(1, ask, within=8)
        assert isinstance(status, TableStatus)
        assert (status.applied, status.joined) == (last, True)
        assert status.figures["keys"] == 5


async def test_a_full_disk_stops_flushes_and_loses_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as nodes:
        log, table = await make(nodes, 1)
        disk = nodes.nodes[1].disk
        disk.full = True
        last = await fill(log, 700)
        ask = GetRows(table, (b"k000",), 0, last + 1000, 300)
        with pytest.raises(NotReadyError):
            await nodes.cluster.ask_node(1, ask, within=8)
        disk.full = False
        assert await nodes.get(1, table, b"k000", after=last) == {b"k000": b"v650"}


async def test_without_the_feature_on_all_nodes_there_is_no_table(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 1) as nodes:
        node = nodes.nodes[1]
        await node.end()
        # With a store of its own a node keeps no tables unless it is told how.
        store = open_store(node.config)
        async with NodeServer(node.config, store=store) as server:
            stop = asyncio.Event()
            task = asyncio.create_task(server.serve(stop))
            log = await nodes.client.create_log("log")
            with pytest.raises(OlderNodesError, match="does not know tables"):
                await nodes.create(log, "stock", 1)
            stop.set()
            await task


async def test_reads_of_one_connection_leave_places_to_others(tmp_path: Path) -> None:
    few = replace(SETTINGS, working_max=64, working_of_one_max=2)
    async with running(tmp_path, 1, settings=few) as nodes:
        _, table = await make(nodes, 1)
        asked = [nodes.get(1, table, b"k") for _ in range(30)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        refused = [each for each in found if isinstance(each, NotReadyError)]
        assert refused
        assert all("of this connection" in str(each) for each in refused)
        assert len(refused) < len(found)
        # What has ended takes no place.
        assert await nodes.get(1, table, b"k") == {}
        assert not nodes.nodes[1].tables._working


@pytest.mark.parametrize("known_before", [False, True])
async def test_nothing_is_taken_away_before_a_rescued_cluster_knows_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known_before: bool
) -> None:
    """The node may know the cluster of before, which had no table either."""
    async with running(tmp_path, 1) as nodes:
        log, table = await make(nodes, 1)
        last = await fill(log, 20)
        node = nodes.nodes[1]
        await node.end()
        take, confirm = CatalogView.take, CatalogView.confirm
        rescued, looks, asked = [True], list[int](), list[int]()

        def taking(self: CatalogView, metadata: Metadata) -> None:
            if rescued:
                looks.append(1)
                settled = known_before and not asked
                metadata = msgspec.structs.replace(metadata, tables=(), settled=settled)
            take(self, metadata)

        async def confirming(self: CatalogView) -> Any:
            asked.append(1)
            return await confirm(self)

        monkeypatch.setattr(CatalogView, "take", taking)
        monkeypatch.setattr(CatalogView, "confirm", confirming)
        await node.start()
        # How often it looks before it serves is up to what the leader sends at once.
        await until(lambda: asked if known_before else looks)
        await asyncio.sleep(0.3)
        assert node.disk.trashed == []
        rescued.clear()
        await nodes.client.create_log("news")
        await serving(nodes, table, 1)
        found = await nodes.get(1, table, b"k001", b"k002", after=last)
        assert found == {b"k001": b"v1", b"k002": b"v2"}
        assert node.disk.trashed == []


async def test_a_host_goes_on_while_a_rescued_cluster_does_not_know_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, 1) as nodes:
        _, table = await make(nodes, 1)
        take, looks = CatalogView.take, list[int]()

        def taking(self: CatalogView, metadata: Metadata) -> None:
            take(self, msgspec.structs.replace(metadata, tables=(), settled=False))
            looks.append(1)

        monkeypatch.setattr(CatalogView, "take", taking)
        await nodes.client.create_log("news")
        await until(lambda: looks)
        await asyncio.sleep(0.2)
        assert nodes.nodes[1].state(table) == HostState.SERVING.value
        assert nodes.nodes[1].disk.trashed == []


async def test_identities_of_another_length_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as nodes:
        log = await nodes.client.create_log("log")
        table = await nodes.create(log, "stock", 1)
        await serving(nodes, table, 1)
        long, short = b"x" * 100_000, b"x"
        for message in (
            GetRows(long, (b"k",)),
            GetRows(b"", (b"k",)),
            ScanRows(short, b"", b"", None, False, 1, 1),
            ScanRows(table, long, b"", None, False, 1, 1),
            ScanRows(table, short, b"", None, False, 1, 1),
            DivideTable(table, long, b"", None, 1, 1),
            PinRuns(long, 1000),
            ReleaseRows(long, 1, 1),
        ):
            with pytest.raises(InvalidArgumentError, match="has 16 bytes") as refused:
                await nodes.cluster.ask_node(1, message, within=8)
            assert len(str(refused.value)) < 200
        pinned, _ = await nodes.cluster.ask_node(1, PinRuns(table, 1000), within=8)
        assert isinstance(pinned, PinnedRuns)
        ask = FetchRun(pinned.pin, "x" * 100_000, 0, 1)
        with pytest.raises(InvalidArgumentError, match="is no file") as refused:
            await nodes.cluster.ask_node(1, ask, within=8)
        assert len(str(refused.value)) < 400
