"""The syncer that leaves slow devices to a thread, on a store that only counts."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, cast

import pytest

from braidlog.errors import StoreFailedError
from braidlog.node import syncer
from braidlog.node.syncer import ThreadSyncer
from braidlog.store.node_store import NodeStore


class CountingStore:
    """As much of a store as a syncer sees."""

    def __init__(self, pause: float = 0.0) -> None:
        self.pause = pause
        self.bytes = 0
        self.written = 1
        self.synced = 0
        self.syncs = 0
        self.threads = 0
        self.failed = False

    def sync(self) -> int:
        time.sleep(self.pause)
        if self.failed:
            raise StoreFailedError("broken")
        self.syncs += 1
        self.synced = self.written
        return self.synced

    def ticket(self) -> int:
        return self.written

    def hurried(self) -> int:
        return self.bytes

    def durable(self) -> int:
        return self.synced

    def start_syncer(self, notify: int) -> None:
        self.threads += 1
        os.close(notify)

    def start_housekeeper(self) -> None:
        pass

    def close(self) -> None:
        pass


class Rig:
    """A syncer that was started, and what it said."""

    def __init__(self, store: CountingStore) -> None:
        self.store = store
        self.heard = 0
        self.again = 0
        """How often it writes again when it hears of a sync."""
        self.syncer = ThreadSyncer(cast("NodeStore", cast("Any", store)))
        self.syncer.start(self.hear)
        # The first look finds commits that never were synced.
        self.syncer.wake()

    def hear(self) -> None:
        self.heard += 1
        if self.again:
            self.again -= 1
            self.store.bytes += 1
            self.syncer.wake()

    async def write(self, size: int) -> None:
        self.store.bytes += size
        self.store.written += 1
        self.syncer.wake()
        self.syncer.wake()
        await asyncio.sleep(0)


@pytest.mark.parametrize("failed", [False, True])
async def test_a_turn_that_wrote_ends_with_one_sync(*, failed: bool) -> None:
    rig = Rig(CountingStore())
    await asyncio.sleep(0)
    rig.store.failed = failed
    before, heard = rig.store.syncs, rig.heard
    await rig.write(1)
    assert rig.heard == heard + 1
    assert rig.store.syncs == before + (not failed)
    rig.syncer.wake()
    await asyncio.sleep(0)
    assert rig.heard == heard + 1, "commits alone wait for company"
    await rig.syncer.close()


async def test_nothing_is_synced_when_nothing_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(syncer, "_COMMITS_S", -1.0)
    rig = Rig(CountingStore())
    await asyncio.sleep(0)
    syncs = rig.store.syncs
    assert syncs == 1
    rig.syncer.wake()
    await asyncio.sleep(0)
    assert rig.store.syncs == syncs
    rig.store.written += 1
    rig.syncer.wake()
    await asyncio.sleep(0)
    assert rig.store.syncs == syncs + 1, "commits become durable some time"
    await rig.syncer.close()


async def test_what_the_store_synced_by_itself_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(syncer, "_COMMITS_S", -1.0)
    rig = Rig(CountingStore())
    await asyncio.sleep(0)
    heard = rig.heard
    rig.store.written += 1
    rig.store.synced = rig.store.written  # a log was created
    rig.syncer.wake()
    await asyncio.sleep(0)
    assert rig.heard == heard + 1
    rig.syncer.wake()
    await asyncio.sleep(0)
    assert rig.heard == heard + 1
    await rig.syncer.close()


async def test_a_slow_device_is_left_to_the_thread() -> None:
    rig = Rig(CountingStore(pause=0.002))
    for _ in range(20):
        await rig.write(1)
    assert rig.store.threads == 1
    syncs = rig.store.syncs
    await rig.write(1)
    assert rig.store.syncs == syncs
    await rig.syncer.close()


async def test_many_bytes_may_take_longer() -> None:
    rig = Rig(CountingStore(pause=0.002))
    for _ in range(20):
        await rig.write(1 << 30)
    assert rig.store.threads == 0
    await rig.syncer.close()


async def test_nothing_is_synced_after_the_end() -> None:
    rig = Rig(CountingStore())
    await rig.syncer.close()
    syncs = rig.store.syncs
    rig.store.bytes += 1
    rig.syncer.wake()
    await asyncio.sleep(0)
    assert rig.store.syncs == syncs


async def test_what_a_sync_lets_go_is_synced_in_the_next_turn() -> None:
    """Or somebody who always writes again would keep the loop from all others."""
    rig = Rig(CountingStore())
    before, rig.again = rig.store.syncs, 2
    rig.store.bytes += 1
    rig.syncer.wake()
    assert (rig.store.syncs, rig.heard) == (before + 1, before + 1)
    await asyncio.sleep(0)
    assert (rig.store.syncs, rig.heard) == (before + 2, before + 2)
    await asyncio.sleep(0)
    assert (rig.store.syncs, rig.heard) == (before + 3, before + 3)
    await asyncio.sleep(0)
    assert rig.store.syncs == before + 3, "nothing was written any more"
    await rig.syncer.close()
