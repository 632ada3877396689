"""Damage in the log of the metadata repository: a snapshot replaces it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from braidlog.node.config import NodeConfig
from unit.node.test_server import client, config, serving

SEGMENT = 1 << 20
CURSORS = 60


def name_of(number: int) -> str:
    return f"cursor {number:03} " + "x" * 230


def small(directory: Path) -> NodeConfig:
    """Return settings of a node that reads what it has, all the time."""
    given = config(directory)
    limits = replace(given.limits, segment_bytes=SEGMENT, scrub_bytes=64 << 20)
    return replace(
        given, limits=limits, timing=replace(given.timing, tick_ms=10, scrub_ms=50)
    )


def damage(directory: Path, number: int) -> None:
    """Change bytes of an entry of the repository, as a disk does."""
    wanted = name_of(number).encode()
    [(path, at)] = [
        (path, at)
        for path in directory.rglob("*.wal")
        if (at := path.read_bytes().find(wanted)) >= 0
    ]
    with path.open("r+b") as file:
        file.seek(at + 20)
        file.write(b"damaged")


async def test_a_damaged_log_of_the_repository_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = small(tmp_path)
    async with serving(settings) as server, client(settings) as there:
        log = await there.create_log("orders")
        for number in range(CURSORS):
            await log.set_cursor(name_of(number), 1)
        # The segment of these entries ends.
        for _ in range(8):
            await log.append_many([b"." * 10_000] * 20)
        damage(Path(settings.node.data), 7)
        with caplog.at_level(logging.ERROR, "braidlog"):
            async with asyncio.timeout(30):
                while not server.node._scrub.counters.scrub_damages:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        assert "is damaged, and is replaced" in caplog.text
        assert await log.append(b"after") == 161
    # It would have been refused: entries that follow the snapshot are read.
    async with serving(settings), client(settings) as there:
        log = await there.log("orders")
        names = {each.name for each in await log.cursors()}
        assert names == {name_of(number) for number in range(CURSORS)}
