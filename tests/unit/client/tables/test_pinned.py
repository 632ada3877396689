"""Tables of a cluster in its backups: what comes back is what was there.

The hosts are nodes of this process with tables of the native core. What a backup has is
seen in the directory that is restored from it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.backup import Backup, backups, delete, restore, verify
from braidlog.client import AsyncClusterLog
from braidlog.client.tables.pinned import ClusterTables
from braidlog.client.tables.table import AsyncClusterTable
from braidlog.errors import CorruptionError, DeadlineError, LogError
from braidlog.wire.tables import CreateIndex, IndexStatus
from unit.backup.made import left_in
from unit.node.tables.cluster import Nodes, identity, running, serving, until
from unit.node.tables.test_hosts import fill

INDEXES = {"by_value": "value"}
Seen = dict[str, list[Any]]


async def made(
    nodes: Nodes, replicas: int, **options: Any
) -> tuple[AsyncClusterLog, AsyncClusterTable]:
    log = await nodes.client.create_log("log", streams=2, replication=replicas)
    table = await nodes.client.create_table(
        "stock", log="log", replicas=replicas, indexes=INDEXES, **options
    )
    info = table._hosts.known
    await serving(nodes, info.table, *info.hosts)
    return log, table


async def trim(log: AsyncClusterLog, before: int) -> None:
    """Trim, as soon as the hosts need it no more."""
    while (await log.refresh()).start < before:
        try:
            await log.trim(before)
        except LogError:
            await asyncio.sleep(0.05)


async def seen(table: AsyncClusterTable) -> Seen:
    """Everything that can be read of a table."""
    found = {"all": [record.as_tuple() async for record in table.scan()]}
    for index in (await table.describe()).indexes:
        if index.state == "active":
            reads = await table.index(index.name)
            found[index.name] = [record.as_tuple() async for record in reads.scan()]
    return found


def seen_in(path: Path, name: str = "stock") -> Seen:
    """Everything that can be read of a restored one, whose indexes are built."""
    with braidlog.open(path) as store:
        table = store.table(name)
        found = {"all": [record.as_tuple() for record in table.scan()]}
        for index in table.describe().indexes:
            reads = table.index(index.name)
            assert reads.wait(timeout=30)
            found[index.name] = [record.as_tuple() for record in reads.scan()]
        table.verify()
        return found


async def restored(place: Path, name: str | None = None) -> Path:
    """Restore a backup, of which every byte is right."""
    target = place.with_name(f"restored-{name}")
    assert (await asyncio.to_thread(verify, place, name)).findings == []
    await asyncio.to_thread(restore, place, target, name)
    return target


async def check(place: Path, wanted: Seen, backup: Backup) -> None:
    target = await restored(place, backup.id)
    assert await asyncio.to_thread(seen_in, target) == wanted


def no_pins(nodes: Nodes) -> bool:
    return not any(len(node.tables._pins) for node in nodes.nodes.values())


async def test_a_table_comes_back_although_its_log_was_trimmed(tmp_path: Path) -> None:
    place = tmp_path / "place"
    async with running(tmp_path, 3, native=True) as nodes:
        log, table = await made(nodes, 2, deletes="empty")
        last = await fill(log, 300)
        await trim(log, last)
        async with table.ddl() as ddl:
            ddl.create_index("stock", "later", "value:bytes")
        await (await table.index("later")).wait(timeout=10)
        await log.append(b"", key=b"k007")
        await fill(log, 20, b"w")
        wanted = await seen(table)
        assert (len(wanted["all"]), len(wanted["later"])) == (50, 50)
        backup = await nodes.client.backup(place)
        assert no_pins(nodes)
    (found,) = backup.tables
    assert (found.name, found.replicas, found.start) == ("stock", 2, 1)
    assert [index.name for index in found.indexes] == ["by_value", "later"]
    assert len(found.files) >= 2
    assert backup.records < 60
    await check(place, wanted, backup)


async def test_increments_name_what_is_there(tmp_path: Path) -> None:
    place = tmp_path / "place"
    async with running(tmp_path, 3, native=True) as nodes:
        log, table = await made(nodes, 2)
        last = await fill(log, 300)
        await trim(log, last)
        first = await nodes.client.backup(place)
        assert first.tables[0].files
        before, again = first, await nodes.client.backup(place)
        assert again.base == first.id
        while again.new_bytes:  # Something was merged.
            before, again = again, await nodes.client.backup(place)
        assert again.tables[0].files == before.tables[0].files
        last = await fill(log, 10, b"w")
        await trim(log, last)
        more = await nodes.client.backup(place)
        wanted = await seen(table)
    assert more.base == again.id
    assert 0 < more.new_bytes < more.bytes
    known = {file.path for file in again.tables[0].files}
    assert known & {file.path for file in more.tables[0].files}
    for each in backups(place)[:-1]:
        await asyncio.to_thread(delete, place, each.id)
    await check(place, wanted, more)
    await asyncio.to_thread(delete, place, more.id)
    assert left_in(place) == []


def beside(
    monkeypatch: pytest.MonkeyPatch, name: str, work: Callable[[], Awaitable[object]]
) -> list[int]:
    """Do something once, after a step of a backup."""
    step = getattr(ClusterTables, name)
    done: list[int] = []

    async def stepped(self: ClusterTables, *arguments: Any) -> Any:
        result = await step(self, *arguments)
        if not done:
            done.append(1)
            await work()
        return result

    monkeypatch.setattr(ClusterTables, name, stepped)
    return done


@pytest.mark.parametrize(
    "change", ["trim", "drop", "create", "index", "truncate", "rename"]
)
@pytest.mark.parametrize("step", ["_file", "take"])
async def test_changes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, step: str
) -> None:
    place = tmp_path / "place"
    async with running(tmp_path, 2, native=True) as nodes:
        log, table = await made(nodes, 1)
        last = await fill(log, 200)
        await trim(log, last)

        async def work() -> None:
            match change:
                case "trim":
                    await trim(log, await fill(log, 30, b"w"))
                case "drop":
                    async with table.ddl() as ddl:
                        ddl.drop("stock")
                case "create":
                    await nodes.client.create_table("more", log="log")
                case "index":
                    async with table.ddl() as ddl:
                        ddl.drop_index("stock", "by_value")
                        ddl.create_index("stock", "by_value", "value")
                    await (await table.index("by_value")).wait(timeout=10)
                case "truncate":
                    async with table.ddl() as ddl:
                        ddl.truncate("stock")
                    await fill(log, 40, b"w")
                case "rename":
                    async with table.ddl() as ddl:
                        ddl.rename("stock", "goods")

        done = beside(monkeypatch, step, work)
        backup = await nodes.client.backup(place)
        assert done
        wanted = {}
        for name in await nodes.client.tables():
            wanted[name] = await seen(await nodes.client.table(name))
        await until(lambda: no_pins(nodes))
    assert {table.name for table in backup.tables} == wanted.keys()
    target = await restored(place)
    for name, expected in wanted.items():
        assert await asyncio.to_thread(seen_in, target, name) == expected
    # What was copied in vain is not left.
    assert {*left_in(place)} == {part.path for part in backup.parts}


async def test_a_table_that_always_changes_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, 1, native=True) as nodes:
        log, _ = await made(nodes, 1)
        await trim(log, await fill(log, 30))
        take = ClusterTables.take

        async def overtaken(self: ClusterTables) -> Any:
            taken = await take(self)
            await trim(log, await fill(log, 3))
            return taken

        monkeypatch.setattr(ClusterTables, "take", overtaken)
        with pytest.raises(DeadlineError, match="table 'stock' was changed"):
            await nodes.client.backup(tmp_path / "place")
    assert left_in(tmp_path / "place") == []


async def test_another_host_gives_what_one_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one dies when it has given a file."""
    place = tmp_path / "place"
    async with running(tmp_path, 4, native=True) as nodes:
        log, table = await made(nodes, 2)
        await trim(log, await fill(log, 300))
        wanted = await seen(table)
        first = table._hosts.known.joined[0]
        done = beside(monkeypatch, "_file", nodes.nodes[first].end)
        backup = await nodes.client.backup(place)
        assert done
    await check(place, wanted, backup)
    assert {*left_in(place)} == {part.path for part in backup.parts}


def flushed(nodes: Nodes, node: int) -> int:
    [status] = nodes.nodes[node].tables.status()
    return status.flushed


async def test_the_host_is_asked_first_whose_files_are_there(tmp_path: Path) -> None:
    """Another one has the same records in other files, which would all be copied."""
    place = tmp_path / "place"
    async with running(tmp_path, 3, native=True) as nodes:
        log, table = await made(nodes, 2)
        info = table._hosts.known
        first, other = info.joined
        await fill(log, 100)
        await table.flush()
        await nodes.nodes[first].end()
        for n in range(3):
            last = await fill(log, 50 + n)
            await until(lambda: flushed(nodes, other) >= last)  # noqa: B023
        before = await nodes.client.backup(place)
        assert before.hosts == {before.tables[0].id: other}
        await nodes.nodes[first].start()
        await serving(nodes, info.table, first, other)
        again = await nodes.client.backup(place)
        while again.new_bytes:  # Something was merged.
            assert again.hosts == before.hosts
            again = await nodes.client.backup(place)
        # If it cannot, the other one gives all of it, and is asked from then on.
        await nodes.nodes[other].end()
        wanted = await seen(table)
        moved = await nodes.client.backup(place)
        assert moved.hosts == {moved.tables[0].id: first}
        assert moved.base == again.id
        await nodes.nodes[other].start()
        await serving(nodes, info.table, first, other)
        assert (await nodes.client.backup(place)).hosts == moved.hosts
    await check(place, wanted, moved)


async def hurt(nodes: Nodes, node: int, table: bytes) -> None:
    """Damage the files of a host, whose pages are in memory."""
    found = [*(nodes.nodes[node].directory / table.hex()).rglob("*.run")]
    assert found
    for run in found:
        content = bytearray(run.read_bytes())
        content[3] ^= 0xFF
        run.write_bytes(content)


async def test_damage_of_a_host_is_not_copied(tmp_path: Path) -> None:
    """Another host has it, and the damaged one copies it anew."""
    place = tmp_path / "place"
    async with running(tmp_path, 3, native=True) as nodes:
        log, table = await made(nodes, 2)
        await trim(log, await fill(log, 300))
        wanted = await seen(table)
        info = table._hosts.known
        first = info.joined[0]
        await hurt(nodes, first, info.table)
        backup = await nodes.client.backup(place)
        counters = nodes.nodes[first].tables.counters
        await until(lambda: counters.table_copies)
        await serving(nodes, info.table, first)
    await check(place, wanted, backup)


async def test_damage_of_the_only_host_is_said(tmp_path: Path) -> None:
    async with running(tmp_path, 1, native=True) as nodes:
        log, table = await made(nodes, 1)
        await trim(log, await fill(log, 300))
        await hurt(nodes, 1, table._hosts.known.table)
        with pytest.raises(CorruptionError, match="checksum"):
            await nodes.client.backup(tmp_path / "place")
        assert left_in(tmp_path / "place") == []
        assert no_pins(nodes)


async def test_bytes_that_change_on_their_way_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    async with running(tmp_path, 2, native=True) as nodes:
        log, table = await made(nodes, 2)
        await trim(log, await fill(log, 300))
        wanted = await seen(table)
        fetch = ClusterTables._part
        changed: list[str] = []

        async def part(self: Any, pinned: Any, file: Any, at: int) -> bytes:
            data = await fetch(self, pinned, file, at)
            if len(changed) < 2 and file.path not in changed:
                changed.append(file.path)
                return bytes([data[0] ^ 1]) + data[1:]
            return data

        monkeypatch.setattr(ClusterTables, "_part", part)
        with pytest.raises(CorruptionError, match="is not what node"):
            await nodes.client.backup(place)
        assert len(changed) == 2
        backup = await nodes.client.backup(place)
    await check(place, wanted, backup)


async def test_indexes_come_back_as_they_are(tmp_path: Path) -> None:
    """One that is being built is built anew, one that was aborted stays so."""
    place = tmp_path / "place"
    async with running(tmp_path, 1, native=True) as nodes:
        log, table = await made(nodes, 1)
        await fill(log, 100)
        of = table._hosts.known.table
        await nodes.change(CreateIndex(of, identity(), "odd", b"no such field"))
        while True:
            info = await nodes.info(of)
            assert info is not None
            if info.indexes[1].status is IndexStatus.ABORTED:
                break
            await asyncio.sleep(0.02)
        hosts = nodes.nodes[1].tables._hosts._parts
        async with hosts.building:
            async with table.ddl() as ddl:
                ddl.create_index("stock", "later", "value:bytes")
            backup = await nodes.client.backup(place)
        await (await table.index("later")).wait(timeout=10)
        wanted = await seen(table)
    (found,) = backup.tables
    kinds = [(each.name, each.active, bool(each.reason)) for each in found.indexes]
    assert kinds == [
        ("by_value", True, False),
        ("odd", False, True),
        ("later", False, False),
    ]
    # A directory has no aborted indexes.
    await check(place, wanted, backup)


async def test_an_index_that_was_dropped_is_left_out_although_its_host_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host comes to it when the index is built that it is at."""
    place, go_on = tmp_path / "place", threading.Event()
    async with running(tmp_path, 1, native=True) as nodes:
        log, table = await made(nodes, 1)
        await fill(log, 100)
        host = nodes.nodes[1].tables._hosts.host(table._hosts.known.table)
        engine, first = host.table, {each.tree for each in host.info.indexes}

        def build(tree: bytes, goes_on: Callable[[], bool]) -> bool:
            # The first one may be looked at once more.
            assert tree in first or go_on.wait(30)
            return built(tree, goes_on)

        built = engine.build
        monkeypatch.setattr(engine, "build", build)
        async with table.ddl() as ddl:
            ddl.create_index("stock", "later", "value:bytes")
        await until(lambda: table_has(engine, "later"))
        async with table.ddl() as ddl:
            ddl.drop_index("stock", "by_value")
        backup = await nodes.client.backup(place)
        go_on.set()
    (found,) = backup.tables
    assert [(each.name, each.active) for each in found.indexes] == [("later", False)]
    assert [tree.id for tree in found.trees] == [found.primary]
    target = await restored(place)
    assert (await asyncio.to_thread(seen_in, target)).keys() == {"all", "later"}


def table_has(table: Any, index: str) -> bool:
    return f"built:{index}" in table.stats()


async def test_two_backups_at_once(tmp_path: Path) -> None:
    place = tmp_path / "place"
    async with running(tmp_path, 2, native=True) as nodes:
        log, table = await made(nodes, 2)
        await trim(log, await fill(log, 300))
        wanted = await seen(table)
        both = await asyncio.gather(*(nodes.client.backup(place) for _ in range(2)))
        assert no_pins(nodes)
    assert {each.id for each in backups(place)} == {each.id for each in both}
    for each in both:
        await check(place, wanted, each)
