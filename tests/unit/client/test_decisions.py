"""How soon a client acts on what the cluster has decided."""

from __future__ import annotations

import asyncio

import pytest

from braidlog.errors import NotPrimaryError
from braidlog.wire.messages import Append, Appended
from unit.client.fake import FakeCluster


async def test_a_new_primary_that_has_not_heard_of_it_is_asked_again_at_once(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster.client(retry_first_s=60.0, retry_max_s=60.0) as client:
        log = await client.create_log("log")
        await log.append(b"a")
        [stream] = [each for each in cluster.streams.values() if each.batches]
        append, refused = cluster._append, [1]

        def too_early(node: int, message: Append, payload: bytes) -> Appended:
            if stream.epoch > 1 and refused:
                refused.pop()
                raise NotPrimaryError("of the next epoch it knows nothing yet")
            return append(node, message, payload)

        monkeypatch.setattr(cluster, "_append", too_early)
        later = asyncio.create_task(log.append(b"b"))
        cluster.kill(stream.replicas[0])
        await asyncio.sleep(0.02)
        cluster.fail_over(stream.number)
        assert await asyncio.wait_for(later, 5.0) == 2
        assert not refused


async def test_the_second_of_two_decisions_is_heard_at_once(
    cluster: FakeCluster,
) -> None:
    """And a third one in a row after a pause, lest a client does nothing else."""
    async with cluster.client(metadata_pause_s=0.2) as client:
        await client.create_log("log")
        heard = []
        for _ in range(2):
            await asyncio.sleep(0.5)  # For longer than two pauses nothing was decided.
            for _ in range(3):
                cluster.bump()
                await settled()
                heard.append(client._cluster.routes.index == cluster.index)
        assert heard == [True, True, False] * 2


async def settled() -> None:
    """Let everything happen that waits for nothing but a turn of the loop."""
    for _ in range(50):
        await asyncio.sleep(0)
