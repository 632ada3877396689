"""What one request meets ends that request; what was logged before heals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from braidlog.errors import InternalError, InvalidArgumentError, LogError
from braidlog.logstream import sequencer
from braidlog.logstream.replica import Replica
from braidlog.metarepo.leader.leadership import Leadership
from braidlog.node.config import NodeConfig
from braidlog.node.leader import retention
from braidlog.node.server import NodeServer
from braidlog.wire import commands
from unit.node.loops import poll_of_loop
from unit.node.test_server import client, config, serving


def busy(directory: Path) -> NodeConfig:
    """Return settings with retention at every tick."""
    settings = config(directory)
    return replace(settings, timing=replace(settings.timing, retention_ms=1))


async def put(server: NodeServer, command: commands.Command) -> None:
    """Log a command as a version did that looked at nothing."""
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    server.node.requests.execute(
        b"", commands.encode(command), lambda answer, _: done.set_result(answer)
    )
    server.node.changed()
    answer = await done
    assert not isinstance(answer, LogError), answer


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


BAD = (b"x", b"null", b'{"retention_ms": "1"}')


async def test_a_cluster_with_options_that_cannot_be_read_heals(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = busy(tmp_path)

    def said() -> list[str]:
        found = [each for each in caplog.records if each.name == retention.__name__]
        return [each.getMessage() for each in found if "Set the" in each.getMessage()]

    async with serving(settings) as server, client(settings) as there:
        await there.create_log("good")
        for number, options in enumerate(BAD):
            key = bytes([number]) * 16
            await put(server, commands.CreateLog(key, f"bad{number}", 1, 1, 1, options))
        await until(lambda: len(said()) == len(BAD))
    async with serving(settings) as server, client(settings) as there:
        log = await there.log("bad0")
        assert await log.append(b"x") == 1
        assert (await log.describe()).retention_ms is None
        await until(lambda: len(said()) == 2 * len(BAD))
        await log.set_options(retention_ms=1)
        async with asyncio.timeout(20):
            while (await log.refresh()).start == 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not server.node.failed.done()
    assert len(said()) == 2 * len(BAD)  # Once in each start, however often it looked.


async def test_options_that_cannot_be_read_are_refused_by_the_node(
    tmp_path: Path,
) -> None:
    settings = config(tmp_path)
    async with serving(settings), client(settings) as there:
        with pytest.raises(InvalidArgumentError, match="JSON"):
            await there._cluster.execute(
                commands.CreateLog(b"p" * 16, "bad", 1, 1, 1, b"x")
            )
        assert await there.logs() == []


async def test_names_that_mean_something_else_are_refused_by_the_node(
    tmp_path: Path,
) -> None:
    """A client that checks nothing learns what a name may be, and changes nothing."""
    settings = config(tmp_path)
    async with serving(settings), client(settings) as there:
        log = await there.create_log("orders")
        for name in ("..", "x\ny", "", "é" * 128):
            made: list[commands.Command] = [
                commands.CreateLog(b"p" * 16, name, 1, 1, 1),
                commands.AlterLog(log._id, name=name),
                commands.SetCursor(log._id, name, 1),
            ]
            for command in made:
                with pytest.raises(InvalidArgumentError) as caught:
                    await there._cluster.execute(command)
                assert "name" in caught.value.hint, command
        assert await there.logs() == ["orders"]
        assert await log.cursors() == []


def fails(*_: Any, **__: Any) -> Any:
    raise KeyError("a bug")


async def test_a_bug_at_a_request_is_the_answer_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = config(tmp_path)
    # Python looks at each append.
    monkeypatch.setattr(Replica, "_settle", lambda replica: None)
    async with serving(settings) as server, client(settings) as there:
        log = await there.create_log("orders")
        await log.append(b"x")
        with monkeypatch.context() as patch:
            patch.setattr(Leadership, "prepare", fails)
            with pytest.raises(InternalError, match="KeyError"):
                await log.trim(1)
            patch.setattr(sequencer, "_refusal", fails)
            with pytest.raises(InternalError, match="KeyError"):
                await log.append(b"y")
            patch.setattr(type(server.node.replicas.readers), "_answered", fails)
            with pytest.raises(InternalError, match="KeyError"):
                _ = [record async for record in log.read()]
        assert await log.append(b"z") == 2
        assert not server.node.failed.done()
    logged = [each for each in caplog.records if each.exc_info]
    assert len(logged) == 3


async def test_a_bug_in_the_midst_of_a_change_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(tmp_path)
    stop = asyncio.Event()
    # Python looks at each append.
    monkeypatch.setattr(Replica, "_settle", lambda replica: None)
    serves_by = NodeServer(settings, poll=poll_of_loop())
    async with serves_by as server, client(settings) as there:
        serves = asyncio.create_task(server.serve(stop))
        log = await there.create_log("orders")
        monkeypatch.setattr(sequencer, "_wait", fails)
        appending = asyncio.create_task(log.append(b"x"))
        with pytest.raises(LogError, match="cannot handle"):
            await serves
        appending.cancel()
        await asyncio.gather(appending, return_exceptions=True)
