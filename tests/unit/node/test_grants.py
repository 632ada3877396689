"""Tokens with grants on logs: every request about a log, through a real node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from braidlog.client import AsyncClient
from braidlog.errors import LogError, NotFoundError, UnauthorizedError
from braidlog.wire import commands, messages
from braidlog.wire.messages import Message
from braidlog.wire.rights import Grant
from braidlog.wire.roles import OF_LOGS, Role
from braidlog.wire.tokens import Token, make_token, token_entry
from unit.node.test_reload import TEXTS, Files, serving
from unit.node.test_server import client

TEXT, TOKEN = make_token("limited", Role.NONE, bytes([77]) * 32)


def grants(**given: str) -> tuple[Grant, ...]:
    return tuple(
        Grant(pattern.replace("_", "."), Role.named(role))
        for pattern, role in given.items()
    )


class Limited(Files):
    """A node that knows a token with grants."""

    def allow(self, *found: Grant) -> None:
        self.write(ops=Role.ADMIN)
        token: Token = replace(TOKEN, grants=found)
        with self.tokens.open("a") as file:
            file.write("\n" + token_entry(token))


@asynccontextmanager
async def both(
    files: Limited, *found: Grant
) -> AsyncIterator[tuple[AsyncClient, AsyncClient]]:
    files.allow(*found)
    async with (
        serving(files),
        client(files.config, token=TEXTS["ops"]) as ops,
        client(files.config, token=TEXT) as limited,
    ):
        yield ops, limited


async def refusal(limited: AsyncClient, message: Message, payload: bytes = b"") -> str:
    """Return why a node refuses a request that is sent as it is."""
    cluster = limited._cluster
    with pytest.raises(LogError) as caught:
        await cluster.ask(cluster.seeds[0], message, payload, within=5.0)
    assert isinstance(caught.value, UnauthorizedError | NotFoundError), caught.value
    return caught.value.message


async def test_what_grants_allow(tmp_path: Path) -> None:
    found = (
        Grant("orders.*", Role.APPEND),
        Grant("audit", Role.READ),
        Grant("ord*", Role.READ),
        Grant('é "x"*', Role.ADMIN),
    )
    async with both(Limited(tmp_path), *found) as (ops, limited):
        for name in ("orders", "orders.eu", "audit", "audit2", "secret"):
            await (await ops.create_log(name)).append(b"x")
        await limited._cluster.refresh()
        assert sorted(await limited.logs()) == ["audit", "orders", "orders.eu"]
        # Other tokens are shown all.
        assert len(await ops.logs()) == 5
        eu = await limited.log("orders.eu")
        assert await eu.append(b"y") == 2
        assert [record.value async for record in eu.read()] == [b"x", b"y"]
        for name in ("orders", "audit"):
            log = await limited.log(name)
            assert [record.value async for record in log.read()] == [b"x"]
            with pytest.raises(UnauthorizedError) as caught:
                await log.append(b"no")
            said = caught.value.message
            assert said.startswith(f"Append on the log {name!r} needs a token of role ")
            assert said.endswith("'limited' has role read there")
        with pytest.raises(NotFoundError):
            await limited.log("secret")
        for name in ("orders.us", "new"):
            with pytest.raises(UnauthorizedError, match=f"CreateLog on .*'{name}'"):
                await limited.create_log(name)
        mine = await limited.create_log('é "x".1')
        assert await mine.append(b"z") == 1
        await mine.trim(2)
        await limited.delete_log('é "x".1')
        assert len(await ops.logs()) == 5


async def test_a_log_that_may_not_be_touched_is_not_by_any_message(
    tmp_path: Path,
) -> None:
    """Messages are sent as they are: a client of ours would not find the log."""
    async with both(Limited(tmp_path), Grant("mine*", Role.ADMIN)) as (ops, limited):
        log = await ops.create_log("secret")
        await log.append(b"x", key=b"k")
        await ops.create_table("stock", log="secret")
        metadata = await ops.metadata()
        [info], [kept] = metadata.logs, metadata.tables
        stream, identity, key = info.streams[0].stream, info.log, kept.table
        tree = kept.tree
        sent = {
            messages.Append(stream, 0): b"batch",
            messages.Read(stream, 1, True, 4096, 0): b"",
            messages.GetLogEnd(identity): b"",
            messages.AppendTo(stream): b"batch",
            messages.Acquire(stream, "me"): b"",
            messages.Release(stream, 1): b"",
            messages.GetShardEnd(stream): b"",
            messages.GetTimestamps(stream): b"",
            messages.GetRows(key, (b"k",)): b"",
            messages.ScanRows(key, tree, b"", None, False, 9, 4096): b"",
            messages.GetTable(key): b"",
            messages.DivideTable(key, tree, b"", None, 1, 1): b"",
            messages.ReleaseRows(key, 1, 1): b"",
            messages.FlushTable(key): b"",
            messages.VerifyTable(key, bytes(16)): b"",
        }
        asked = {type(each) for each in sent}
        assert asked | {messages.Execute, messages.GetMetadata} == OF_LOGS
        for message, payload in sent.items():
            said = await refusal(limited, message, payload)
            assert "on the log 'secret' needs a token of role" in said, said
            assert "has no role there" in said
        for message in (messages.PinRuns(key, 1), messages.FetchRun(1, "x", 0, 1)):
            assert "needs a token of role admin" in await refusal(limited, message)
        assert "role admin" in await refusal(limited, messages.Reload())
        for command in (
            commands.AlterLog(identity, name="mine"),
            commands.AlterLog(identity, replication=1),
            commands.DeleteLog(identity),
            commands.Trim(identity, 2),
            commands.SetCursor(identity, "c", 1),
            commands.DeleteCursor(identity, "c"),
            commands.GetCursors(identity),
            commands.Seal(stream),
            commands.Unseal(stream),
            commands.AddLearner(stream, 1),
            commands.DropLearner(stream, 1),
            commands.MoveReplica(stream, 1, 2),
        ):
            said = await refusal(limited, messages.Execute(), commands.encode(command))
            assert "on the log 'secret' needs a token of role" in said, said
        drain = commands.encode(commands.DrainNode(1))
        said = await refusal(limited, messages.Execute(), drain)
        assert "DrainNode needs a token of role admin" in said
        # Renaming one's own log to a name of others needs a grant on that as well.
        await limited.create_log("mine")
        own = next(each for each in (await ops.metadata()).logs if each.name == "mine")
        rename = commands.encode(commands.AlterLog(own.log, name="theirs"))
        said = await refusal(limited, messages.Execute(), rename)
        assert "AlterLog on the log 'theirs'" in said
        assert "does not exist" in await refusal(limited, messages.GetLogEnd(bytes(16)))
        assert [record.value async for record in log.read()] == [b"x"]
        seen = (await limited.metadata()).logs
        assert [each.name for each in seen] == ["mine"]
        assert (await limited.metadata()).tables == ()


async def test_grants_are_taken_away_by_a_reload(tmp_path: Path) -> None:
    files = Limited(tmp_path)
    files.allow(Grant("orders*", Role.APPEND))
    async with (
        serving(files) as server,
        client(files.config, token=TEXTS["ops"]) as ops,
        client(files.config, token=TEXT) as limited,
    ):
        await ops.create_log("orders")
        await limited._cluster.refresh()
        log = await limited.log("orders")
        assert await log.append(b"x") == 1
        files.allow(Grant("*", Role.ADMIN))
        assert (await server.reload()).closed == 0
        assert await log.append(b"y") == 2
        files.allow(Grant("orders*", Role.READ))
        assert (await server.reload()).closed > 0
        with pytest.raises(UnauthorizedError, match="has role read there"):
            await log.append(b"z")
        many = [log.append(b"%d" % n) for n in range(20)]
        for refused in await asyncio.gather(*many, return_exceptions=True):
            assert isinstance(refused, UnauthorizedError)
        assert await (await ops.log("orders")).append(b"w") == 3
