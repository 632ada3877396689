"""Where a log ends is a small question, and its answer knows what became of tables."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.client import AsyncClient
from braidlog.errors import NotFoundError, NotReadyError
from braidlog.wire.codec import encode
from braidlog.wire.messages import (
    Feature,
    GetLogEnd,
    GetMetadata,
    LogEnd,
    Message,
)
from unit.client.tables.test_cluster_tables import KEYS, filled
from unit.node.tables.cluster import Nodes, running


def heard(client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list of what a client asks from now on, with the answers."""
    said: list[tuple[Message, Message]] = []
    real = client._cluster.ask

    async def ask(address: str, message: Message, *more: Any, **options: Any) -> Any:
        answer = await real(address, message, *more, **options)
        said.append((message, answer[0]))
        return answer

    monkeypatch.setattr(client._cluster, "ask", ask)
    return said


async def deaf(client: AsyncClient) -> None:
    """Let a client hear no news by itself."""
    for task in client._cluster._watchers:
        task.cancel()
    await asyncio.gather(*client._cluster._watchers, return_exceptions=True)
    client._cluster._watchers = []


def of(said: list[Any], kind: type) -> list[Any]:
    return [each for each in said if isinstance(each[0], kind)]


async def test_reads_ask_for_little_however_many_logs_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, 1, native=True) as nodes:
        for number in range(30):
            await nodes.client.create_log(f"other-{number}")
        log, table, model = await filled(nodes)
        await table.get(KEYS[0])
        await deaf(nodes.client)
        said = heard(nodes.client, monkeypatch)
        for n in range(20):
            await log.append(b"%d" % n, key=KEYS[n])
            assert (await table.get(KEYS[n])).value == b"%d" % n
            assert (await table.get(b"none")) is None
        assert len([r async for r in table.scan()]) == len(model)
        assert not of(said, GetMetadata)
        ends = of(said, GetLogEnd)
        assert len(ends) == 41
        assert max(len(encode(answer)) for _, answer in ends) < 20
        whole = await nodes.cluster.linearize()
        assert len(encode(whole.metadata)) > 100 * 20


async def test_a_position_that_was_heard_of_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, 1, native=True) as nodes:
        log, table, _ = await filled(nodes)
        await deaf(nodes.client)
        position = await log.append(b"x", key=b"x")
        said = heard(nodes.client, monkeypatch)
        for _ in range(5):
            assert (await table.get(b"x", after=position)).value == b"x"
        assert len(of(said, GetLogEnd)) <= 1


async def test_what_others_changed_is_seen_by_the_next_read(tmp_path: Path) -> None:
    async with running(tmp_path, 2, native=True) as nodes:
        log, table, model = await filled(nodes, indexes={"by_n": "json:/n:int"})
        index = await table.index("by_n")
        assert len([r async for r in index.scan()]) == len(model)
        await deaf(nodes.client)
        addresses = [n.config.node.listen for n in nodes.nodes.values()]
        async with braidlog.connect_async(addresses) as other:
            async with other.ddl() as change:
                change.truncate("stock")
            assert [r async for r in table.scan()] == []
            async with other.ddl() as change:
                change.rename("stock", "goods")
            assert (await table.get(KEYS[0]), table.name) == (None, "goods")
            assert [r async for r in index.scan()] == []
            await log.append(b'{"n":1}', key=b"new")
            assert [r.key async for r in table.scan()] == [b"new"]
            async with other.ddl() as change:
                change.drop_index("goods", "by_n")
            with pytest.raises(NotFoundError, match="index 'by_n'"):
                await anext(aiter(index.scan()))
            await other.drop_table("goods")
            with pytest.raises(NotFoundError, match="'goods' was dropped"):
                await table.get(b"new")
            await other.delete_log("log")
            with pytest.raises(NotFoundError, match="'goods' was dropped"):
                await table.get(b"new")


async def ask(nodes: Nodes, node: int, message: Message) -> Message:
    address = nodes.nodes[node].config.node.listen
    answer, _ = await nodes.cluster.ask(address, message, within=8)
    return answer


async def test_any_node_answers_and_all_questions_are_answered(tmp_path: Path) -> None:
    async with running(tmp_path, 4, native=True) as nodes:
        log, _, _ = await filled(nodes)
        identity = bytes.fromhex(log.id)
        # Node 4 is no member of the repository.
        for node in nodes.nodes:
            position = await log.append(b"x")
            end = await ask(nodes, node, GetLogEnd(identity))
            assert isinstance(end, LogEnd)
            assert end.high_watermark == position
            assert [table.name for table in end.tables or ()] == ["stock"]
            last = GetLogEnd(identity, end.index)
            again = await ask(nodes, node, last)
            assert isinstance(again, LogEnd)
            assert (again.high_watermark, again.tables) == (position, None)
            assert again.index >= end.index
            with pytest.raises(NotFoundError, match="was deleted"):
                await ask(nodes, node, GetLogEnd(bytes(16)))
        many = (ask(nodes, 1, GetLogEnd(identity, 1 << 40)) for _ in range(700))
        ends = await asyncio.gather(*many)
        assert {type(end) for end in ends} == {LogEnd}


async def test_where_a_node_does_not_know_the_question_all_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("braidlog.node.node.FEATURES", Feature.NULL_VALUES)
    async with running(tmp_path, 4, native=True) as nodes:
        log, table, model = await filled(nodes)
        await deaf(nodes.client)
        said = heard(nodes.client, monkeypatch)
        assert (await table.get(KEYS[0])).value == model[KEYS[0]]
        assert not of(said, GetLogEnd)
        assert of(said, GetMetadata)[0][0].linearizable
        # One that passes it on does not pass it to who would not understand it.
        with pytest.raises(NotReadyError, match="does not answer GetLogEnd"):
            await ask(nodes, 4, GetLogEnd(bytes.fromhex(log.id)))
