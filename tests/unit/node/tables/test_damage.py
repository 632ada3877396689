"""Damaged hosts of tables: who answers meanwhile, and how they are whole again."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from braidlog.client import AsyncClusterLog
from braidlog.errors import CorruptionError, LogError, NotReadyError
from braidlog.node.tables.host import HostState, TableHost
from braidlog.node.tables.questions import Questions
from braidlog.node.tables.tables import Tables
from braidlog.node.tables.view import CatalogView
from braidlog.wire.commands import Command, SetCursor
from braidlog.wire.messages import Metadata
from braidlog.wire.tables import TableInfo
from unit.node.tables.cluster import SETTINGS, Node, Nodes, running, serving, until
from unit.node.tables.test_hosts import fill, make


async def trim(log: AsyncClusterLog, last: int) -> int:
    """Trim the log of a table, and return its last position."""
    while True:
        # What the hosts have in files is not needed from the log.
        with contextlib.suppress(LogError):
            await log.trim(last + 1)
            if (await log.refresh()).start > 2:
                return last
        last = await fill(log, 10)


async def two_hosts(nodes: Nodes) -> tuple[TableInfo, int]:
    """Make a table on two nodes of which the log has only the end, its position."""
    log, table = await make(nodes, 2)
    last = await fill(log, 300)
    while True:
        info = await nodes.info(table)
        assert info is not None
        if len(info.joined) == 2:
            break
        await asyncio.sleep(0.02)
    await serving(nodes, table, *info.joined)
    return info, await trim(log, last)


async def test_damage_moves_readers_to_another_host_and_is_repaired(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 3) as nodes:
        info, last = await two_hosts(nodes)
        table = info.table
        hurt, whole = info.hosts
        disk = nodes.nodes[hurt].disk
        installed = disk.installed
        disk.rotten.add(table)
        with pytest.raises(NotReadyError, match="does not serve"):
            await nodes.get(hurt, table, b"k000")
        expected = await nodes.get(whole, table, b"k000", after=last)
        assert [*expected] == [b"k000"]
        await until(lambda: disk.installed > installed)
        await serving(nodes, table, hurt)
        assert await nodes.get(hurt, table, b"k000", after=last) == expected
        now = await nodes.info(table)
        assert now is not None
        assert {*now.joined} == {hurt, whole}


async def test_a_damaged_host_without_news_sends_readers_to_the_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has joined, readers know that, and it has not heard of it yet itself."""
    async with running(tmp_path, 3) as nodes:
        info, last = await two_hosts(nodes)
        table = info.table
        hurt, whole = info.hosts
        take = CatalogView.take

        def late(self: CatalogView, metadata: Metadata) -> None:
            if self._route.node == hurt:
                older = msgspec.structs.replace(info, joined=(whole,))
                metadata = msgspec.structs.replace(metadata, tables=(older,))
            take(self, metadata)

        monkeypatch.setattr(CatalogView, "take", late)
        await nodes.client.create_log("news")
        host = nodes.nodes[hurt].tables._hosts.host(table)
        await until(lambda: not host.joined)
        disk = nodes.nodes[hurt].disk
        installed = disk.installed
        disk.rotten.add(table)
        with pytest.raises(NotReadyError, match="does not serve"):
            await nodes.get(hurt, table, b"k000")
        assert b"k000" in await nodes.get(whole, table, b"k000", after=last)
        await until(lambda: disk.installed > installed)
        await serving(nodes, table, hurt)
        assert b"k000" in await nodes.get(hurt, table, b"k000", after=last)


async def test_the_last_host_is_made_anew_of_a_log_that_reaches_back(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 1) as nodes:
        log, table = await make(nodes, 1)
        last = await fill(log, 300)
        disk = nodes.nodes[1].disk
        await until(lambda: len(disk.tables[table]) > 1)
        disk.rotten.add(table)
        with pytest.raises(NotReadyError, match="does not serve"):
            await nodes.get(1, table, b"k000")
        await until(lambda: disk.trashed == [table])
        await serving(nodes, table, 1)
        assert await nodes.get(1, table, b"k000", after=last) == {b"k000": b"v250"}


@dataclass
class Refusals:
    """Hosts that give nobody a copy: each is asked so often, and says so."""

    most: int
    said: int = 0

    def begin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pin = Tables._pin

        async def refusing(self_: Tables, *given: Any) -> Any:
            if self.said < self.most:
                self.said += 1
                raise NotReadyError("it is catching up")
            return await pin(self_, *given)

        monkeypatch.setattr(Tables, "_pin", refusing)


async def hurt(nodes: Nodes, table: bytes) -> Node:
    """Damage the first host of a table, and find it."""
    info = await nodes.info(table)
    assert info is not None
    assert {*info.joined} == {*info.hosts}
    node = nodes.nodes[info.hosts[0]]
    node.disk.rotten.add(table)
    with pytest.raises(NotReadyError, match="does not serve"):
        await nodes.get(info.hosts[0], table, b"k000")
    return node


async def test_a_copy_that_is_refused_at_first_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log reaches back, but applying all of it again takes longer."""
    async with running(tmp_path, 3) as nodes:
        log, table = await make(nodes, 2)
        last = await fill(log, 300)
        refusals = Refusals(3)
        refusals.begin(monkeypatch)
        node = await hurt(nodes, table)
        installed = node.disk.installed
        await until(lambda: node.disk.trashed or node.disk.installed > installed)
        assert (node.disk.trashed, refusals.said) == ([], 3)
        number = node.config.node.id
        await serving(nodes, table, number)
        found = await nodes.get(number, table, b"k000", after=last)
        assert found == {b"k000": b"v250"}


async def test_a_host_that_gets_no_copy_makes_the_table_anew_of_the_log_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty = replace(SETTINGS, repair_s=2.0)
    async with running(tmp_path, 3, settings=hasty) as nodes:
        log, table = await make(nodes, 2)
        last = await fill(log, 300)
        refusals = Refusals(1_000_000)
        refusals.begin(monkeypatch)
        both = [each.tables._hosts for each in nodes.nodes.values()]
        hosts = [each._hosts[table] for each in both if table in each._hosts]
        await until(lambda: all(each._pinned_at > 200 for each in hosts))
        begun = asyncio.get_running_loop().time()
        node = await hurt(nodes, table)
        await until(lambda: node.disk.trashed or refusals.said > 1)
        # A trim must not take the log away meanwhile.
        assert (await log.trim(200), node.disk.trashed) == (1, [])
        await until(lambda: node.disk.trashed)
        assert asyncio.get_running_loop().time() - begun >= hasty.repair_s
        assert refusals.said > 2
        number = node.config.node.id
        await serving(nodes, table, number)
        found = await nodes.get(number, table, b"k000", after=last)
        assert found == {b"k000": b"v250"}
        assert node.disk.installed == 0


async def flushed(nodes: Nodes) -> tuple[AsyncClusterLog, bytes, int]:
    """Make a table on the only node whose pin lets go of most of the log."""
    log, table = await make(nodes, 1)
    last = await fill(log, 300)
    host = nodes.nodes[1].tables._hosts.host(table)
    await until(lambda: host._pinned_at > 200)
    return log, table, last


def is_pin(asked: Command) -> bool:
    """Tell whether a host pins the log from its first record on."""
    return isinstance(asked, SetCursor) and asked.position == 1


async def test_the_log_is_kept_while_a_table_is_made_anew_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, 1) as nodes:
        log, table, last = await flushed(nodes)
        disk = nodes.nodes[1].disk
        copy, starts = TableHost._copy, list[int]()

        async def copying(self: TableHost) -> None:
            await copy(self)
            assert disk.trashed == [table]
            starts.append(await log.trim(200))

        monkeypatch.setattr(TableHost, "_copy", copying)
        disk.rotten.add(table)
        with pytest.raises(NotReadyError, match="does not serve"):
            await nodes.get(1, table, b"k000")
        await until(lambda: starts)
        assert starts == [1]
        await serving(nodes, table, 1)
        assert await nodes.get(1, table, b"k000", after=last) == {b"k000": b"v250"}
        # Once it is in files again the log goes on.
        await trim(log, last)


async def test_the_log_is_kept_while_a_lost_table_is_made_anew_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, 1) as nodes:
        log, table, last = await flushed(nodes)
        node = nodes.nodes[1]
        await node.end()
        del node.disk.tables[table]
        check, starts = TableHost._check_behind, list[int]()

        async def checking(self: TableHost) -> None:
            starts.append(await log.trim(200))
            await check(self)

        monkeypatch.setattr(TableHost, "_check_behind", checking)
        await node.start()
        await until(lambda: starts)
        assert starts == [1]
        await serving(nodes, table, 1)
        assert await nodes.get(1, table, b"k000", after=last) == {b"k000": b"v250"}


async def test_a_table_stays_if_its_log_was_trimmed_before_it_could_be_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, 1) as nodes:
        log, table, last = await flushed(nodes)
        disk = nodes.nodes[1].disk
        command, starts = Questions.command, list[int]()

        async def late(self: Questions, asked: Command) -> None:
            if is_pin(asked):
                starts.append(await log.trim(200))
            await command(self, asked)

        monkeypatch.setattr(Questions, "command", late)
        disk.rotten.add(table)
        with pytest.raises(NotReadyError, match="does not serve"):
            await nodes.get(1, table, b"k000")
        await until(lambda: starts or disk.trashed)
        await serving(nodes, table, 1)
        assert (starts, disk.trashed) == ([200], [])
        assert "cannot be made anew: position 1 of its log was trimmed" in caplog.text
        with pytest.raises(CorruptionError, match="a page cannot be read"):
            await nodes.get(1, table, b"k000")
        disk.rotten.clear()
        assert await nodes.get(1, table, b"k000", after=last) == {b"k000": b"v250"}
        assert disk.trashed == []


async def test_a_table_stays_while_nobody_confirms_that_its_log_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, 1) as nodes:
        _, table, last = await flushed(nodes)
        disk = nodes.nodes[1].disk
        command, refused = Questions.command, list[Command]()

        async def leaderless(self: Questions, asked: Command) -> None:
            if is_pin(asked) and len(refused) < 3:
                refused.append(asked)
                raise NotReadyError("it knows no leader now")
            await command(self, asked)

        host = nodes.nodes[1].tables._hosts.host(table)
        monkeypatch.setattr(Questions, "command", leaderless)
        disk.rotten.add(table)
        with pytest.raises(NotReadyError, match="does not serve"):
            await nodes.get(1, table, b"k000")
        await until(lambda: "knows no leader" in host.why or disk.trashed)
        assert disk.trashed == []
        await until(lambda: disk.trashed == [table])
        await serving(nodes, table, 1)
        assert len(refused) == 3
        assert await nodes.get(1, table, b"k000", after=last) == {b"k000": b"v250"}


async def test_of_hosts_damaged_at_once_the_last_answers_what_it_can(
    tmp_path: Path,
) -> None:
    """Each takes the other one for whole, until one hears that it is the last."""
    async with running(tmp_path, 3) as nodes:
        info, last = await two_hosts(nodes)
        table = info.table
        both = [nodes.nodes[n] for n in info.hosts]
        for each in both:
            each.disk.trashed.clear()
            each.disk.rotten.add(table)
            host = each.tables._hosts.host(table)
            host.breaks(CorruptionError("a page cannot be read"))
        await until(lambda: all(each.tables.counters.table_damages for each in both))
        state = HostState.SERVING.value
        await until(lambda: any(each.state(table) == state for each in both))
        [last_one] = [each for each in both if each.state(table) == state]
        node = last_one.config.node.id
        with pytest.raises(CorruptionError, match="a page cannot be read"):
            await nodes.get(node, table, b"k000")
        last_one.disk.rotten.clear()
        assert b"k000" in await nodes.get(node, table, b"k000", after=last)
        # The other one copies what can be read again.
        await serving(nodes, table, *info.hosts)
        assert all(each.disk.trashed == [] for each in both)


async def test_the_last_host_answers_what_it_can(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as nodes:
        log, table = await make(nodes, 1, replication=1)
        last = await fill(log, 300)
        disk = nodes.nodes[1].disk
        await until(lambda: len(disk.tables[table]) > 1)
        await trim(log, last)
        disk.rotten.add(table)
        with pytest.raises(CorruptionError, match="a page cannot be read"):
            await nodes.get(1, table, b"k000")
        await asyncio.sleep(0.2)
        disk.rotten.clear()
        assert b"k000" in await nodes.get(1, table, b"k000")
        assert disk.trashed == []
