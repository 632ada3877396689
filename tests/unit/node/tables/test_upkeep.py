"""What hosts do because somebody asked: flushing and checking their tables."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from braidlog.errors import (
    CorruptionError,
    InvalidArgumentError,
    NotReadyError,
    OlderNodesError,
    UnavailableError,
)
from braidlog.node.tables.checks import Checks
from braidlog.node.tables.native_engine import HostedNativeTable
from braidlog.wire.messages import Feature
from braidlog.wire.rows import FlushTable, TableCheck, VerifyTable
from unit.client.tables.test_cluster_tables import HASTY
from unit.node.tables.cluster import SETTINGS, Nodes, running, serving, until
from unit.node.tables.test_hosts import fill
from unit.node.tables.test_native_engine import KEYS, everything, made

# So that nothing is flushed unless it is asked for.
LAZY = replace(SETTINGS, flush_s=600.0, merge_pause_s=600.0)


async def pins(nodes: Nodes) -> list[int]:
    log = await nodes.client.log("log")
    return [each.position for each in await log.cursors()]


async def test_a_flush_lets_the_log_go_on_at_every_host(tmp_path: Path) -> None:
    async with running(tmp_path, 3, LAZY, native=True) as nodes:
        log, table, _ = await made(nodes, 2)
        last = await fill(log, 300)
        assert await pins(nodes) == [1, 1]
        assert await log.trim(last) == 1
        seen: list[int] = []
        await table.flush(progress=seen.append)
        assert seen == [last, last]
        assert await pins(nodes) == [last + 1, last + 1]
        assert await log.trim(last) == last
        await table.flush()


async def test_a_flush_waits_for_hosts_and_says_which_one_did_not(
    tmp_path: Path,
) -> None:
    # Longer than a host that is there takes on a busy machine.
    client = replace(HASTY, timeout_s=3.0)
    async with running(tmp_path, 3, LAZY, native=True, client=client) as nodes:
        log, table, of = await made(nodes, 3)
        last = await fill(log, 50)
        away = 3
        # A stream of the log may be on the node that goes.
        for host in (1, 2):
            await everything(nodes, table, host)
        await nodes.nodes[away].end()
        with pytest.raises(UnavailableError, match=f"host {away} of table 'stock'"):
            await table.flush()
        # The others have done it, and the log is held by the one that is away.
        assert sorted(await pins(nodes)) == [1, last + 1, last + 1]
        await nodes.nodes[away].start()
        await serving(nodes, of, away)
        await table.flush()
        assert await pins(nodes) == [last + 1] * 3


async def test_every_host_is_verified(tmp_path: Path) -> None:
    async with running(tmp_path, 3, LAZY, native=True) as nodes:
        indexes = {"by_value": "value", "by_n": "json:/n"}
        log, table, _ = await made(nodes, 3, indexes=indexes)
        assert await table.verify() == (0, 0)
        await fill(log, 300)
        read: list[int] = []
        assert await table.verify(read.append) == (50, 50)
        assert max(read) == 3 * 100
        await table.flush()
        assert await table.verify() == (50, 50)
        await log.append(None, key=KEYS[0])
        assert await table.verify() == (49, 49)


async def damage(nodes: Nodes, node: int, of: bytes, tree: bytes) -> None:
    """Change a byte of each run of a tree of a host, while that is away."""
    await nodes.nodes[node].end()
    for run in (nodes.nodes[node].directory / of.hex() / tree.hex()).glob("*.run"):
        content = bytearray(run.read_bytes())
        content[3] ^= 0xFF
        run.write_bytes(content)
    await nodes.nodes[node].start()


async def test_damage_is_found_named_and_copied_over(tmp_path: Path) -> None:
    async with running(tmp_path, 3, LAZY, native=True) as nodes:
        log, table, of = await made(nodes, 2)
        await fill(log, 300)
        await table.flush()
        hurt = table._hosts.info().hosts[0]
        await damage(nodes, hurt, of, table._hosts.known.tree)
        await serving(nodes, of, hurt)
        with pytest.raises(CorruptionError, match=f"node {hurt}: ") as caught:
            await table.verify()
        assert caught.value.path.endswith(".run")
        assert "copies the table from another one" in caught.value.hint
        assert table.damaged_index(caught.value) is None
        # It takes the table from the other host, and then all of it is whole.
        while True:
            await asyncio.sleep(0.02)
            info = table._hosts.info(await nodes.cluster.linearize())
            if {*info.joined} == {*info.hosts}:
                break
        await serving(nodes, of, hurt)
        assert await table.verify() == (50, 0)


async def test_damage_of_the_only_host_stays_and_is_said(tmp_path: Path) -> None:
    async with running(tmp_path, 1, LAZY, native=True) as nodes:
        log, table, of = await made(nodes, 1, indexes={"by_value": "value"})
        last = await fill(log, 300)
        await table.flush()
        assert await log.trim(last) == last
        await damage(nodes, 1, of, table._hosts.known.tree)
        await serving(nodes, of, 1)
        for _ in range(2):
            with pytest.raises(CorruptionError, match="node 1: ") as caught:
                await table.verify()
            assert table.damaged_index(caught.value) is None
        index = table._hosts.known.indexes[0].tree.hex()
        of_index = CorruptionError("a page", path=f"/data/tables/{index}/1.run")
        assert table.damaged_index(of_index) == "by_value"


async def test_a_check_goes_on_while_somebody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes, stopped = threading.Event(), threading.Event()
    real = HostedNativeTable.verify

    def slow(self: HostedNativeTable, goes_on: object) -> tuple[int, int] | None:
        while not goes.wait(0.01):
            if not goes_on(7):  # type: ignore[operator]
                stopped.set()
                return None
        return real(self, lambda _: True)

    monkeypatch.setattr(HostedNativeTable, "verify", slow)
    brief = replace(LAZY, check_s=0.3, checks_max=2)
    async with running(tmp_path, 1, brief, native=True) as nodes:
        log, _, of = await made(nodes, 1)
        await fill(log, 50)

        async def ask(check: bytes, wait_ms: int = 50) -> TableCheck:
            message = VerifyTable(of, check * 16, 0, wait_ms)
            answer, _ = await nodes.cluster.ask_node(1, message, within=8)
            assert isinstance(answer, TableCheck)
            return answer

        assert await ask(b"a") == TableCheck(7, done=False)
        assert await ask(b"b") == TableCheck(0, done=False)
        with pytest.raises(NotReadyError, match="checks 2 tables already"):
            await ask(b"c")
        with pytest.raises(InvalidArgumentError, match="16 bytes, got 0"):
            await ask(b"")
        checks = nodes.nodes[1].tables._checks
        # Nobody asks for the first any more, so the second has its turn.
        await until(stopped.is_set)
        await until(lambda: not len(checks))
        goes.set()
        assert await ask(b"a", 5000) == TableCheck(50, True, 50, 0)
        assert await ask(b"a", 5000) == TableCheck(50, True, 50, 0)


async def test_a_node_that_stops_ends_its_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(_: HostedNativeTable, goes_on: object) -> tuple[int, int] | None:
        while goes_on(1):  # type: ignore[operator]
            threading.Event().wait(0.01)
        return None

    monkeypatch.setattr(HostedNativeTable, "verify", endless)
    async with running(tmp_path, 1, LAZY, native=True, client=HASTY) as nodes:
        _, table, _ = await made(nodes, 1)
        asked = asyncio.create_task(table.verify())
        await until(lambda: len(nodes.nodes[1].tables._checks))
        await nodes.nodes[1].end()
        with pytest.raises(UnavailableError):
            await asked


async def test_hosts_of_earlier_versions_are_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("braidlog.node.node.FEATURES_OF_TABLES", Feature.TABLES)
    took: list[object] = []
    monkeypatch.setattr(Checks, "begin", lambda *given: took.append(given))
    async with running(tmp_path, 1, LAZY, native=True) as nodes:
        log, table, _ = await made(nodes, 1)
        await fill(log, 5)
        for call in (table.flush, table.verify):
            with pytest.raises(OlderNodesError, match="cannot be asked for this: 1"):
                await call()
        with pytest.raises(OlderNodesError, match="begin behind the first record"):
            await nodes.client.create_table("later", log="log", begin=3)
        await nodes.client.create_table("all", log="log", begin=1)
    assert not took


async def test_a_flush_that_finds_a_full_disk_is_tried_again(tmp_path: Path) -> None:
    async with running(tmp_path, 1, LAZY, client=HASTY) as nodes:
        log = await nodes.client.create_log("log")
        of = await nodes.create(log, "stock", 1)
        await serving(nodes, of, 1)
        last = await fill(log, 20)
        nodes.nodes[1].disk.full = True
        table = await nodes.client.table("stock")
        with pytest.raises(UnavailableError, match="the disk is full"):
            await table.flush()
        assert await pins(nodes) == [1]
        nodes.nodes[1].disk.full = False
        message = FlushTable(of, last, 1000)
        await nodes.cluster.ask_node(1, message, within=8)
        assert await pins(nodes) == [last + 1]
