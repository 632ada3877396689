"""An asyncio node that is entered again, while something of the former is left."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import braidlog
from braidlog.store.backend import WriterBackend

SEGMENT_BYTES = 1 << 20


def opened(data: Path, **options: object) -> braidlog.AsyncStore:
    return braidlog.open_async(data, segment_bytes=SEGMENT_BYTES, **options)


async def test_a_former_close_ends_nothing_of_the_next_node(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_house, release = WriterBackend._keep_house, threading.Event()

    def linger(self: WriterBackend, *tasks: Callable[[], object]) -> None:
        keep_house(self, *tasks)
        release.wait(20)

    monkeypatch.setattr(WriterBackend, "_keep_house", linger)
    node = opened(data)
    await node.__aenter__()
    # The directory is free before the thread that keeps house has ended.
    closing = [asyncio.create_task(node.close()) for _ in range(2)]
    await asyncio.wait(closing, timeout=0.2)
    async with asyncio.timeout(20):
        await node.__aenter__()
        log = await node.create_log("a")
        assert await log.append(b"x") == 1
        release.set()
        await asyncio.gather(*closing)
        assert await log.append(b"y") == 2
        await node.close()


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_log_of_the_former_node_ends_no_wait(
    data: Path, read_only: bool
) -> None:
    async with opened(data) as writer:
        await writer.create_log("a")
    node = opened(data, read_only=read_only)
    async with node:
        former = await node.log("a")
    async with asyncio.timeout(20), node:
        log = await node.log("a")
        # Nothing comes to it any more, so it does not wait.
        waiting = [asyncio.create_task(former.wait(5)) for _ in range(2)]
        assert await asyncio.gather(*waiting) == [False, False]
        assert [record async for record in former.subscribe(1)] == []
        waiting = [asyncio.create_task(each.wait(1)) for each in (former, log)]
        await asyncio.sleep(0.1)
        if read_only:
            async with opened(data) as writer:
                await (await writer.log("a")).append(b"x")
        else:
            await log.append(b"x")
        assert await asyncio.gather(*waiting) == [False, True]


LOOP_IN_A_THREAD = """
    import asyncio, sys, threading
    import braidlog

    async def append():
        async with braidlog.open_async(sys.argv[1], segment_bytes=1 << 20) as node:
            log = await node.create_log("a", exist_ok=True)
            while True:
                await log.append(b"x")
                appended.set()

    appended = threading.Event()
    threading.Thread(target=asyncio.run, args=(append(),), daemon=True).start()
    appended.wait()
"""


@pytest.mark.process
def test_a_program_may_end_while_a_thread_has_a_loop(data: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(LOOP_IN_A_THREAD), str(data)]
    for _ in range(5):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "Bad file descriptor" not in done.stderr
