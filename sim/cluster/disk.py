"""The disk of a simulated node, and who syncs it: in virtual time, and not always.

*Theory of operation.* Files are the core's `MemoryDisk`, which knows what was synced. A
crash is an image of it, on which the next life of the node opens. A sync takes a seeded
time; it does its work at its beginning or at its end, so that a crash in between finds
writes that are on the disk and were never reported, or the other way round. Without
power, half of a write that was on its way may be there.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from random import Random

from braidlog import _native
from braidlog.errors import LogError
from braidlog.store.node_store import NodeStore

__all__ = ["ClusterDisk", "VirtualSyncer"]

_log = logging.getLogger("braidlog.sim")

_SYNC_S = 0.001
_HOUSEKEEPING_S = 0.25
# Share of syncs that do their work at once and say so late.
_EARLY = 0.3
# Share of syncs on a slow disk that hang, and how much longer these take.
_HANGS = 0.05
_HANG_TIMES = 10.0
# Of the header of a slot: what it begins with, and the number of its segment.
_MAGIC = b"BRWS"
_NUMBER = struct.Struct("<24xQ")


class ClusterDisk:
    """Files that survive the processes of one node; the nemesis makes them worse."""

    def __init__(self, random: Random) -> None:
        """Begin empty and healthy."""
        self.random = random
        self.native = _native.MemoryDisk(random.getrandbits(63))
        self.syncer: VirtualSyncer | None = None
        # Whether the disk was in trouble since the last start: then a node may fail.
        self.hurt = False
        self._slow = 0.0
        self._delay = 0.0
        self._failing = False
        self._full = False
        # What rotted: segment, offset, and the byte that was there.
        self._rotten: list[tuple[int, int, int]] = []

    def wipe(self) -> None:
        """Lose everything, while no process uses the disk."""
        self.native = _native.MemoryDisk(self.random.getrandbits(63))
        self._rotten = []

    def start(self) -> None:
        """Note that a process begins to use the disk."""
        self.syncer = None
        self.hurt = self._failing or self._full

    def sync_s(self) -> float:
        """Draw how long the next sync takes."""
        seconds = self.random.uniform(0.2, 1.5) * (self._slow or _SYNC_S)
        if self._slow and self.random.random() < _HANGS:
            seconds *= _HANG_TIMES
        return seconds + self._delay

    def on_crash(self, *, power: bool) -> None:
        """Keep what a crash leaves: without power, some of what was not synced."""
        syncer, self.syncer = self.syncer, None
        policy = "keep"
        if not power:
            policy = self.random.choice(["drop", "subset", "torn", "torn"])
            if syncer is not None and syncer.busy and not self._failing:
                self.native.fail_next_sync(landed=self.random.random() < 0.5)
                syncer.flush()
        self.native = self.native.crash(policy)
        self._decay()
        self._apply()

    def slow(self, seconds: float) -> None:
        """Let each sync take about that long; 0 is as usual."""
        self._slow = seconds

    def delay(self, seconds: float) -> None:
        """Let each sync take so much longer than it would; 0 is as usual."""
        self._delay = seconds

    def fail_syncs(self, failing: bool) -> None:
        """Let syncs fail, or work again."""
        self._failing = failing
        self._apply()

    def fill(self, full: bool) -> None:
        """Let no file grow, or let them again."""
        self._full = full
        self._apply()

    def segments(self) -> dict[int, str]:
        """Return the files of the segments, by number; of free slots the last one."""
        found = {}
        for path, _ in self.native.files():
            if path.endswith(".wal"):
                head = bytes(self.native.read(path)[: _NUMBER.size])
                if head.startswith(_MAGIC):
                    found[_NUMBER.unpack(head)[0]] = path
        return found

    def rot(self, segment: int, value: bytes) -> bool:
        """Flip a bit of a value in a segment; False if it is not there."""
        path = self.segments().get(segment)
        content = bytes(self.native.read(path)) if path is not None else b""
        offset = content.find(value)
        if offset < 0:
            return False
        self._rotten.append((segment, offset, content[offset]))
        self._decay()
        return True

    def _decay(self) -> None:
        """Damage what rotted; the image that a crash leaves comes from the writes."""
        segments = self.segments() if self._rotten else {}
        for segment, offset, byte in self._rotten:
            path = segments.get(segment)
            if path is not None and self.native.read(path)[offset] == byte:
                self.native.flip_bit(path, offset)

    def _apply(self) -> None:
        self.hurt = self.hurt or self._failing or self._full
        self.native.fail_syncs(False)
        if self._failing:
            self.native.fail_syncs(True)
        self.native.set_free(0 if self._full else None)


class VirtualSyncer:
    """A `Syncer` without threads: one sync at a time, each takes as long as drawn."""

    def __init__(self, store: NodeStore, disk: ClusterDisk) -> None:
        """Serve a store on a disk."""
        self._store = store
        self._disk = disk
        self._synced: Callable[[], None] | None = None
        self._sync: asyncio.TimerHandle | None = None
        self._house: asyncio.TimerHandle | None = None
        self._told = 0
        disk.syncer = self

    @property
    def busy(self) -> bool:
        """Return whether a sync is on its way."""
        return self._sync is not None

    def start(self, synced: Callable[[], None]) -> None:
        """Begin; call `synced` after every sync."""
        self._synced = synced
        self._keep_house()
        self.wake()

    def wake(self) -> None:
        """Begin a sync if something was written or synced and none is on its way."""
        if self._sync is not None or self._synced is None or not self._pending():
            return
        early = self._disk.random.random() < _EARLY
        if early:
            self.flush()
        loop = asyncio.get_running_loop()
        self._sync = loop.call_later(self._disk.sync_s(), self._finish, early)

    def _pending(self) -> bool:
        try:
            # What the store synced by itself, as for a new log, is told as well.
            return self._store.ticket() > self._told
        except LogError:
            # A failed store says so to whoever uses it next.
            return False

    def flush(self) -> None:
        """Write what there is; whoever waits for it learns of a failure by himself."""
        try:
            self._told = self._store.sync()
        except LogError as error:
            _log.warning("a sync failed: %s", error)

    def _finish(self, early: bool) -> None:
        if not early:
            self.flush()
        self._sync = None
        if self._synced is not None:
            self._synced()
        self.wake()

    def _keep_house(self) -> None:
        loop = asyncio.get_running_loop()
        self._house = loop.call_later(_HOUSEKEEPING_S, self._keep_house)
        try:
            self._store.housekeeping()
        except LogError as error:
            # Appends meet the same trouble and report it.
            _log.warning("housekeeping failed: %s", error)

    async def close(self) -> None:
        """Make durable what there is, close the store."""
        self._synced = None
        for timer in (self._sync, self._house):
            if timer is not None:
                timer.cancel()
        self._sync = None
        self._store.close()
