"""Tables of a cluster as clients read them: the same as a dict of what was appended."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import braidlog
from braidlog.client import AsyncClient, ClientSettings
from braidlog.client.tables.hosts import Answered, TableHosts
from braidlog.client.tables.reads import Found, Wanted, _add, _cut
from braidlog.errors import (
    AlreadyExistsError,
    BeyondEndError,
    ClosedError,
    InvalidArgumentError,
    NotFoundError,
    RemoteProtocolError,
    TrimmedError,
    UnavailableError,
)
from braidlog.wire.messages import Feature
from braidlog.wire.rows import Rows
from unit.node.tables.cluster import Nodes, running, until

HASTY = ClientSettings(timeout_s=1.0, attempt_timeout_s=0.5)
KEYS = [b"k%02d" % n for n in range(40)]


async def filled(
    nodes: Nodes, count: int = 200, **options: Any
) -> tuple[Any, Any, dict[bytes, bytes]]:
    log = await nodes.client.create_log("log", streams=2)
    table = await nodes.client.create_table("stock", log="log", **options)
    keys = [KEYS[n % 40] for n in range(count)]
    values = [b'{"n":%d}' % n for n in range(count)]
    await log.append_many(values, keys=keys)
    wanted = options.get("replicas", 1)
    await until(lambda: len(table._hosts.info().joined) >= wanted)
    return log, table, dict(zip(keys, values, strict=True))


async def test_reads_equal_a_dict_while_it_changes(tmp_path: Path) -> None:
    random = Random(7)
    async with running(tmp_path, 2, native=True) as nodes:
        log, table, model = await filled(nodes, indexes={"by_n": "json:/n:int"})
        index = await table.index("by_n")
        for step in range(60):
            key = random.choice(KEYS)
            if random.random() < 0.3:
                await log.append(None, key=key)
                model.pop(key, None)
            else:
                model[key] = b'{"n":%d}' % (1000 + step)
                await log.append(model[key], key=key)
            record = await table.get(key)
            assert (record and record.value) == model.get(key)
            match step % 6:
                case 0:
                    found = {r.key: r.value async for r in table.scan()}
                    assert found == model
                case 1:
                    asked = random.sample(KEYS, 7)
                    found = await table.get_many(asked)
                    assert [r and r.value for r in found] == [*map(model.get, asked)]
                case 2:
                    low, high = sorted(random.sample(KEYS, 2))
                    keys = [r.key async for r in table.scan(low, high, reverse=True)]
                    assert keys == sorted(
                        (k for k in model if low <= k < high), reverse=True
                    )
                case 3:
                    keys = [r.key async for r in table.scan(prefix=b"k1", limit=4)]
                    assert keys == sorted(k for k in model if k[:2] == b"k1")[:4]
                case 4:
                    got = [r.value async for r in index.scan(1000)]
                    assert got == sorted(
                        v for v in model.values() if int(v[5:-1]) >= 1000
                    )
                case _:
                    rows = (await table.to_arrow(columns=["key", "value"])).to_pylist()
                    assert {r["key"]: r["value"] for r in rows} == model


async def test_pages_are_of_one_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("braidlog.client.tables.reads._ROWS_MAX", 7)
    monkeypatch.setattr("braidlog.client.tables.reads.KEYS_MAX", 6)
    async with running(tmp_path, 1, native=True) as nodes:
        log, table, model = await filled(nodes, indexes={"by_n": "json:/n:int"})
        seen: list[Any] = []
        async for record in table.scan():
            if not seen:
                await log.append_many([b"late"] * 40, keys=KEYS)
                await asyncio.sleep(0.3)  # So that it is flushed and merged.
            seen.append((record.key, record.value))
        assert seen == sorted(model.items())
        found = await table.get_many([*KEYS, b"none"])
        assert [r and r.value for r in found] == [b"late"] * 40 + [None]
        array = pa.array([b"none", *KEYS, b"other"])
        batch = await table.get_many(array)
        assert batch.column("value").to_pylist() == [None, *[b"late"] * 40, None]
        assert batch.column("key").to_pylist() == [b"none", *KEYS, b"other"]
        assert (await table.get_many(pa.array([], pa.binary()))).num_rows == 0
        assert await table.get_many([]) == []
        index = await table.index("by_n")
        assert [r async for r in index.scan()] == []
        assert (await index.describe()).missing == 40


async def test_a_snapshot_stays_and_ends(tmp_path: Path) -> None:
    async with running(tmp_path, 2, native=True) as nodes:
        log, table, model = await filled(nodes, indexes={"by_n": "json:/n:int"})
        async with table.at() as snapshot:
            for _ in range(3):
                last = max(await log.append_many([b"late"] * 40, keys=KEYS))
                await asyncio.sleep(0.3)
            assert {r.key: r.value async for r in snapshot.scan()} == model
            assert (await snapshot.get(KEYS[0])).value == model[KEYS[0]]
            by = snapshot.index("by_n")
            assert len([r async for r in by.scan()]) == 40
            with pytest.raises(BeyondEndError, match="snapshot is of position"):
                await snapshot.get(KEYS[0], after=last)
            position = snapshot.position
        with pytest.raises(ClosedError):
            await snapshot.get(KEYS[0])
        with pytest.raises(BeyondEndError):
            async with table.at(last + 1):
                pass
        with pytest.raises(TrimmedError, match="can be read from position"):
            async with table.at(1):
                pass
        assert position < last


async def test_a_long_scan_never_goes_on_in_another_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("braidlog.client.tables.reads._ROWS_MAX", 7)
    async with running(tmp_path, 1, native=True) as nodes:
        _, table, _ = await filled(nodes, indexes={"by": "json:/n:int"})
        scan = aiter((await table.index("by")).scan())
        await anext(scan)
        async with nodes.client.ddl() as change:
            change.drop_index("stock", "by")
            change.create_index("stock", "by", "value")
        assert await (await table.index("by")).wait(timeout=60)
        with pytest.raises(NotFoundError, match="index 'by' of table 'stock' was drop"):
            _ = [record async for record in scan]


async def test_hosts_let_go_of_what_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("braidlog.client.tables.reads._ROWS_MAX", 7)
    async with running(tmp_path, 1, native=True) as nodes:
        log, table, model = await filled(nodes)
        leases = nodes.nodes[1].tables._leases
        async with table.at() as first:
            async with table.at() as second:
                assert first.position == second.position
                assert len(leases) == 1
            assert await second.close() is None
            # The other one is of the same position, and goes on.
            await log.append_many([b"late"] * 40, keys=KEYS)
            await asyncio.sleep(0.3)
            assert len(leases) == 1
            assert {r.key: r.value async for r in first.scan()} == model
        await until(lambda: not len(leases))
        async for _ in table.scan():
            assert len(leases) == 1
        await until(lambda: not len(leases))
        scan = aiter(table.scan())
        await anext(scan)
        assert len(leases) == 1
        await scan.aclose()
        await until(lambda: not len(leases))


async def test_a_host_that_knows_no_releases_is_told_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("braidlog.node.node.FEATURES_OF_TABLES", Feature.TABLES)
    async with running(tmp_path, 1, native=True) as nodes:
        _, table, _ = await filled(nodes)
        async with table.at():
            pass
        assert not nodes.client._tables._telling
        assert len(nodes.nodes[1].tables._leases) == 1


async def test_a_read_sees_what_others_were_told_is_stored(tmp_path: Path) -> None:
    async with running(tmp_path, 3, native=True) as nodes:
        log, _, _ = await filled(nodes)
        addresses = [n.config.node.listen for n in nodes.nodes.values()]
        async with braidlog.connect_async(addresses) as other:
            same = await other.table("stock")
            for n in range(30):
                await log.append(b"%d" % n, key=b"k")
                assert value(await same.get(b"k")) == b"%d" % n
            position = await log.append(b"end", key=b"k")
            assert value(await same.get(b"k", after=position)) == b"end"
            assert await same.get(b"k", stale_ok=True) is not None
            with pytest.raises(BeyondEndError):
                await same.get(b"k", after=position + 1)
            assert await same.wait(position, timeout=5)
            assert not await same.wait(position + 1, timeout=0.1)
            assert await same.applied() >= position


async def test_where_nobody_has_it_there_is_no_answer(tmp_path: Path) -> None:
    async with running(tmp_path, 3, native=True, client=HASTY) as nodes:
        _, table, model = await filled(nodes, replicas=1)
        [host] = table._hosts.info().hosts
        await table.get(KEYS[0])
        node = nodes.nodes[host]
        await node.end()
        with pytest.raises(UnavailableError, match="no host of table 'stock' answers"):
            await table.get(KEYS[0], stale_ok=True)
        described = await table.describe()
        assert described.hosts[0].failure
        await node.start()
        async with asyncio.timeout(20):
            while True:
                try:
                    found = await table.get(KEYS[0])
                    break
                except UnavailableError:
                    continue
        assert found.value == model[KEYS[0]]


async def given_up(client: AsyncClient) -> None:
    async with client.ddl() as change:
        change.drop("stock")
        raise RuntimeError


def value(record: Any) -> Any:
    return record.value


async def test_changes_are_made_together_or_not_at_all(tmp_path: Path) -> None:
    async with running(tmp_path, 1, native=True) as nodes:
        client: AsyncClient = nodes.client
        _, table, model = await filled(nodes)
        with pytest.raises(AlreadyExistsError):
            await client.create_table("stock", log="log")
        assert (await client.create_table("stock", log="log", exist_ok=True)).log
        with pytest.raises(NotFoundError):
            await client.create_table("other", log="none")
        with pytest.raises(InvalidArgumentError):
            await client.create_table("other", log="log", indexes={"i": "nonsense"})
        with pytest.raises(InvalidArgumentError):
            await client.create_table("other", log="log", deletes="sometimes")
        with pytest.raises(RuntimeError):
            await given_up(client)
        assert await client.tables() == ["stock"]
        async with client.ddl() as change:
            change.rename("stock", "goods")
            change.create("second", log="log", indexes={"all": "value"})
            change.create_index("goods", "by_n", "json:/n:int")
            with pytest.raises(AlreadyExistsError):
                change.create_index("goods", "by_n", "value")
            with pytest.raises(NotFoundError):
                change.drop_index("goods", "none")
        assert await client.tables() == ["goods", "second"]
        # What was got before the change goes on under the new name.
        index = await table.index("by_n")
        assert await index.wait(timeout=20)
        assert len([r async for r in index.get(199)]) == 1
        assert table.name == "goods"
        async with client.ddl() as change:
            change.truncate("goods")
            change.rebuild("second")
            change.drop_index("second", "all")
        assert await table.get(KEYS[0]) is None
        assert [r async for r in index.scan()] == []
        second = await client.table("second")
        assert {r.key: r.value async for r in second} == model
        with pytest.raises(NotFoundError, match="there are: none"):
            await second.index("al")
        await client.drop_table("second")
        with pytest.raises(NotFoundError):
            await second.get(KEYS[0])
        with pytest.raises(NotFoundError):
            await client.table("second")


async def test_names_and_values_of_indexes_are_checked(tmp_path: Path) -> None:
    async with running(tmp_path, 1, native=True) as nodes:
        indexes = {"by_n": "json:/n:int", "strict": "strict json:/n:int"}
        log, table, _ = await filled(nodes, indexes=indexes)
        index = await table.index("by_n")
        with pytest.raises(InvalidArgumentError):
            index.scan("text")
        for wrong in ({"limit": -1}, {"after": 0}):
            with pytest.raises(InvalidArgumentError):
                [r async for r in index.scan(1, **wrong)]
        assert [r.key async for r in index.get(199)] == [KEYS[39]]
        strict = await table.index("strict")
        assert len([r async for r in strict.scan()]) == 40
        await log.append(b"no json", key=b"k")
        with pytest.raises(InvalidArgumentError, match="must not be incomplete"):
            [r async for r in strict.scan()]
        described = {i.name: i for i in (await table.describe()).indexes}
        assert described["by_n"].missing == 1
        assert described["by_n"].missing_first is not None


def blocking(addresses: list[str]) -> list[Any]:
    with braidlog.connect(addresses) as client:
        log = client.create_log("log", streams=2)
        table = client.create_table("stock", log="log", indexes={"all": "value"})
        position = max(log.append_many([b"a", b"b", b"c"], keys=KEYS[:3]))
        found = [
            value(table.get(KEYS[0], after=position)),
            [r.value for r in table.scan(reverse=True)],
            [r.value for r in table.index("all").get(b"b")],
            [r and r.key for r in table.get_many([KEYS[2], b"none"])],
            sum(batch.num_rows for batch in table.batches()),
            pa.table(table).num_rows,
            table.index("all").to_arrow().num_rows,
            len(list(table)),
            table.wait(position, timeout=5),
        ]
        with table.at() as snapshot:
            log.append(b"z", key=KEYS[0])
            found.append(value(snapshot.get(KEYS[0])))
            found.append([r.value for r in snapshot.index("all")])
        snapshot.close()
        with client.ddl() as change:
            change.rename("stock", "goods")
        found += [client.tables(), table.stats().entries, table.describe().lag]
        client.drop_table("goods")
        found.append(client.tables())
    return found


async def test_blocking_calls_are_the_same(tmp_path: Path) -> None:
    async with running(tmp_path, 1, native=True) as nodes:
        address = nodes.nodes[1].config.node.listen
        found = await asyncio.to_thread(blocking, [address])
        assert found == [
            b"a",
            [b"c", b"b", b"a"],
            [b"b"],
            [KEYS[2], None],
            3,
            3,
            3,
            3,
            True,
            b"a",
            [b"a", b"b", b"c"],
            ["goods"],
            found[-3],
            0,
            [],
        ]


def answered(rows: Rows) -> Answered:
    return Answered(1, rows, memoryview(b""))


def test_answers_that_make_no_sense_are_refused() -> None:
    good = Rows(5, (1, 2), (0, 2), None, 3)
    assert _add(Found(), answered(good), 0, 3) == 3
    for wrong in (
        replace_rows(good, looked=0),
        replace_rows(good, looked=4),
        replace_rows(good, looked=2),
        replace_rows(good, found=(2, 0)),
        replace_rows(good, found=(0,)),
    ):
        with pytest.raises(RemoteProtocolError):
            _add(Found(), answered(wrong), 0, 3)
    page = Rows(5, (1, 2), (), b"k")
    _, rest = _cut(Wanted(limit=5), page, answered(page))
    assert rest == Wanted(begin=b"k", limit=3)
    with pytest.raises(RemoteProtocolError):
        _cut(Wanted(limit=1), page, answered(page))
    empty = Rows(5, (), (), b"k")
    with pytest.raises(RemoteProtocolError):
        _cut(Wanted(), empty, answered(empty))
    newer = Rows(5, (1, 6), (), None)
    with pytest.raises(RemoteProtocolError, match="newer"):
        _cut(Wanted(), newer, answered(newer))
    for wanted in (
        Wanted(begin=b"k"),
        Wanted(begin=b"l"),
        Wanted(end=b"j"),
        Wanted(end=b"k", reverse=True),
        Wanted(begin=b"l", reverse=True),
    ):
        with pytest.raises(RemoteProtocolError, match="would go on"):
            _cut(wanted, page, answered(page))
    _, rest = _cut(Wanted(end=b"l", reverse=True), page, answered(page))
    assert rest == Wanted(end=b"k", reverse=True)


def replace_rows(rows: Rows, **changes: Any) -> Rows:
    import msgspec

    return msgspec.structs.replace(rows, **changes)


async def test_questions_are_bounded(tmp_path: Path) -> None:
    settings = replace(ClientSettings(), table_reads_max=2)
    async with running(tmp_path, 1, native=True, client=settings) as nodes:
        _, table, model = await filled(nodes)
        asked = most = 0
        ask = nodes.cluster.ask_node

        async def counted(*args: Any, **keywords: Any) -> Any:
            nonlocal asked, most
            asked += 1
            most = max(most, asked)
            try:
                return await ask(*args, **keywords)
            finally:
                asked -= 1

        nodes.cluster.ask_node = counted  # type: ignore[method-assign]
        found = await asyncio.gather(*(table.get(key) for key in KEYS))
        assert [r.value for r in found] == [model[key] for key in KEYS]
        assert most == 2
        assert isinstance(table._hosts, TableHosts)
