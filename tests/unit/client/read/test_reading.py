"""Reading beside other things that a program does."""

from __future__ import annotations

import asyncio

from braidlog.wire.messages import Message, Read
from unit.client.fake import FakeCluster


async def test_a_long_read_gives_others_a_turn_and_reads_ahead(
    cluster: FakeCluster,
) -> None:
    """A program that never waits between records must not hold up everything else."""
    asked: list[int] = []

    def ask(_: int, message: Message) -> str:
        if isinstance(message, Read):
            asked.append(message.bytes_max)
        return ""

    async with cluster.client(prefetch_bytes=4 << 20) as client:
        log = await client.create_log("log")
        for _ in range(64):
            await log.append(bytes(128 << 10))
        cluster.fault = ask
        turns = passed = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        ahead: list[int] = []
        async for record in log.read():
            passed += len(record.value or b"")
            ahead.append(sum(asked) - passed)
        beside.cancel()
    assert record.position == 64
    assert set(asked) == {1 << 20}
    assert turns > 30
    # Parts are asked for while others are passed on, but no more than the credit, and
    # the part that is being passed on.
    assert 1 << 20 < max(ahead) <= (4 << 20) + (1 << 20)
