"""Nodes keep tables with the native engine: copies, restarts, damage, indexes."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path

import pytest

from braidlog.client import AsyncClusterLog
from braidlog.client.tables.table import AsyncClusterTable
from braidlog.errors import LogError, NotReadyError
from braidlog.node.tables.engine import LogPiece, ScanBounds
from braidlog.node.tables.native_engine import NativeEngine
from braidlog.wire.tables import CreateIndex, IndexStatus, TableInfo
from unit.node.tables.cluster import Nodes, identity, running, serving, until
from unit.node.tables.test_hosts import fill

Model = dict[bytes, bytes]


async def made(
    nodes: Nodes, replicas: int, **options: object
) -> tuple[AsyncClusterLog, AsyncClusterTable, bytes]:
    log = await nodes.client.create_log("log", streams=2)
    table = await nodes.client.create_table(
        "stock",
        log="log",
        replicas=replicas,
        **options,  # type: ignore[arg-type]
    )
    info = table._hosts.known
    await serving(nodes, info.table, *info.hosts)
    return log, table, info.table


async def everything(nodes: Nodes, table: AsyncClusterTable, node: int) -> Model:
    """Return what one host has, up to what is in the log now."""
    after = await table._hosts.position(None)
    while True:
        try:
            found = await nodes.get(node, table._hosts.info().table, *KEYS, after=after)
        except NotReadyError:
            await asyncio.sleep(0.02)
        else:
            return found


KEYS = tuple(b"k%03d" % n for n in range(50))


async def trim(log: AsyncClusterLog, before: int) -> None:
    """Trim, as soon as the hosts need it no more."""
    while True:
        try:
            await log.trim(before)
        except LogError:
            await asyncio.sleep(0.05)
            continue
        if (await log.refresh()).start >= before:
            return
        await asyncio.sleep(0.05)


async def test_a_new_host_copies_what_the_log_has_no_more(tmp_path: Path) -> None:
    async with running(tmp_path, 4, native=True) as nodes:
        log, table, _ = await made(nodes, 2, indexes={"by_value": "value"})
        last = await fill(log, 600)
        await trim(log, last)
        leaving = table._hosts.info().hosts[0]
        await nodes.client.drain_node(leaving)
        while True:
            info = table._hosts.info(await nodes.cluster.linearize())
            if leaving not in info.hosts and len(info.joined) == 2:
                break
            await asyncio.sleep(0.02)
        await fill(log, 30, b"w")
        expected = {k: (b"w" if n < 30 else b"v") for n, k in enumerate(KEYS)}
        for node in info.hosts:
            found = await everything(nodes, table, node)
            assert {k: v[:1] for k, v in found.items()} == expected
        index = await table.index("by_value")
        assert len([r async for r in index.scan(b"w", b"x")]) == 30
        gone = nodes.nodes[leaving].directory / info.table.hex()
        await until(lambda: not gone.exists())


async def test_a_node_that_restarts_goes_on_where_its_files_end(tmp_path: Path) -> None:
    async with running(tmp_path, 1, native=True) as nodes:
        log, table, identity = await made(nodes, 1, indexes={"by_value": "value"})
        last = await fill(log, 300)
        await trim(log, last)
        await nodes.nodes[1].end()
        await nodes.nodes[1].start()
        await serving(nodes, identity, 1)
        found = await everything(nodes, table, 1)
        assert found == {k: b"v%d" % (250 + n) for n, k in enumerate(KEYS)}
        index = await table.index("by_value")
        assert len([r async for r in index.scan()]) == 50
        assert (await table.stats()).left_out == 0


async def test_damage_is_answered_by_another_host_and_copied_over(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 3, native=True) as nodes:
        log, table, identity = await made(nodes, 2)
        last = await fill(log, 300)
        await trim(log, last)
        hurt = table._hosts.info().hosts[0]
        node = nodes.nodes[hurt]
        # While it is away: pages that it has read already stay in its memory.
        await node.end()
        runs = [*(node.directory / identity.hex()).rglob("*.run")]
        assert runs
        for run in runs:
            content = bytearray(run.read_bytes())
            content[3] ^= 0xFF
            run.write_bytes(content)
        await node.start()
        await fill(log, 5, b"w")
        expected = {k: b"w" if n < 5 else b"v" for n, k in enumerate(KEYS)}
        for _ in range(20):
            seen = {r.key: (r.value or b"")[:1] async for r in table.scan()}
            assert seen == expected
        found = await everything(nodes, table, hurt)
        assert {k: v[:1] for k, v in found.items()} == expected
        info = table._hosts.info(await nodes.cluster.linearize())
        assert {*info.joined} == {*info.hosts}


async def test_an_index_over_nothing_that_makes_sense_is_aborted(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 1, native=True) as nodes:
        log, table, of = await made(nodes, 1)
        last = await fill(log, 10)
        # A client would have refused it.
        await nodes.change(CreateIndex(of, identity(), "odd", b"no such field"))
        while True:
            info = table._hosts.info(await nodes.cluster.linearize())
            if info.indexes[0].status is not IndexStatus.BUILDING:
                break
            await asyncio.sleep(0.02)
        assert info.indexes[0].status is IndexStatus.ABORTED
        assert "no such field" in info.indexes[0].reason
        assert await nodes.get(1, of, b"k001", after=last) == {b"k001": b"v1"}


def info_of(**changes: object) -> TableInfo:
    plain: dict[str, object] = {
        "table": b"t" * 16,
        "name": "stock",
        "log": b"l" * 16,
        "tree": b"p" * 16,
        "begin": 1,
        "created": 0,
        "replicas": 1,
    }
    return TableInfo(**(plain | changes))  # type: ignore[arg-type]


def test_answers_are_bounded_and_go_on(tmp_path: Path) -> None:
    from braidlog import _native

    engine = NativeEngine(tmp_path / "tables")
    table = engine.open(info_of(), 1)
    batch = _native.encode_batch([b"%d" % n for n in range(9)], keys=list(KEYS[:9]))
    table.apply([LogPiece(batch, 1, 0, 4), LogPiece(batch, 5, 4, 5)])
    assert (table.applied, table.flushed, table.floor) == (9, 0, 0)
    found = table.get_rows([b"none", *KEYS[:3]], 0, 1)
    assert (found.position, found.positions, found.found) == (9, (1,), (1,))
    assert found.looked == 2
    bounds = ScanBounds(b"", b"", None, False, 2, 1 << 20)
    page = table.scan_rows(bounds, 0)
    assert (page.positions, page.next) == ((1, 2), KEYS[2])
    assert [r.key for r in _native.rows_records(page.batch, page.positions)] == [
        KEYS[0],
        KEYS[1],
    ]
    pinned = table.pin()
    assert pinned.flushed == 0
    assert table.flush()
    assert not table.flush()
    again = table.pin()
    assert [file.path for file in again.files if file.path.endswith(".run")]
    assert again.files == table.pin().files
    pinned.release()
    with pytest.raises(LogError):
        pinned.read("COUNTERS", 0, 1)
    table.close()
    assert engine.open(info_of(), 10).applied == 9


def put_back(directory: Path, older: Path, tables: Path) -> None:
    """Put a node back as it was, beneath newer tables."""
    shutil.rmtree(directory)
    shutil.copytree(older, directory, ignore=lambda *_: ["tables"])
    shutil.copytree(tables, directory / "tables")


@pytest.mark.parametrize("grown", [False, True], ids=["shorter", "grown again"])
async def test_a_table_that_has_more_than_the_cluster_is_made_anew(
    tmp_path: Path, grown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "braidlog")
    async with running(tmp_path, 1, native=True) as nodes:
        node, data = nodes.nodes[1], tmp_path / "1"
        log, table, identity = await made(nodes, 1, indexes={"by_value": "value"})
        await fill(log, 100)
        await table.flush()
        await node.end()
        shutil.copytree(data, tmp_path / "older")
        await node.start()
        await serving(nodes, identity, 1)
        await fill(log, 200, b"lost")
        await table.flush()
        await node.end()
        shutil.copytree(data / "tables", tmp_path / "newer")
        put_back(data, tmp_path / "older", tmp_path / "older" / "tables")
        await node.start()
        last = 100
        if grown:
            # Without its newer table: nobody knows of it yet.
            await serving(nodes, identity, 1)
            last = await fill(log, 300, b"w")
            await table.flush()
        await node.end()
        tables = tmp_path / "grown"
        shutil.copytree(data, tables)
        put_back(data, tables, tmp_path / "newer")
        await node.start()
        await serving(nodes, identity, 1)
        if not grown:
            last = await fill(log, 300, b"w")
        found = await nodes.get(1, identity, *KEYS, after=last)
        assert found == {k: b"w%d" % (250 + n) for n, k in enumerate(KEYS)}
        assert node.tables.counters.table_damages == 1
        words = "another record at position" if grown else "has committed 100"
        assert words in caplog.text
        index = await table.index("by_value")
        assert len([r async for r in index.scan()]) == 50
