"""Connections that come while a node stops are closed, whatever the turn."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from pathlib import Path

import pytest

from braidlog.node.server import NodeServer
from unit.node.test_server import config


@pytest.mark.parametrize("turns", range(5))
async def test_who_connects_as_it_closes_is_let_go(tmp_path: Path, turns: int) -> None:
    settings = config(tmp_path)
    host, _, port = settings.node.listen.rpartition(":")
    async with NodeServer(settings) as server:
        # The system takes them; the loop accepts them in one of its next turns.
        held = [socket.create_connection((host, int(port))) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        server._listener.close()
        server.node.sessions.close()
        await asyncio.sleep(0.01)
        assert len(server.node.sessions) == 0
    # A transport that nobody closed would be a warning here, so an error.
    gc.collect()
    for each in held:
        each.settimeout(5)
        # The system resets what it had and nobody accepted.
        with contextlib.suppress(ConnectionResetError):
            assert each.recv(1) == b""
        each.close()
