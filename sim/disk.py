"""A disk in memory that forgets what was not synced, and fails when it is told to."""

from __future__ import annotations

import asyncio
import errno
from random import Random
from typing import Protocol, runtime_checkable

__all__ = ["Disk", "FaultyDisk", "MemoryDisk"]


class Disk(Protocol):
    """What the world needs of a node's disk; the rest is between node and disk."""

    def on_crash(self, *, power: bool) -> None:
        """Learn that the process died; without power, unsynced writes may be lost."""


@runtime_checkable
class FaultyDisk(Disk, Protocol):
    """A disk that the nemesis can make worse, and good again."""

    def slow(self, seconds: float) -> None:
        """Let each sync take about that long; 0 is as usual."""

    def fail_syncs(self, failing: bool) -> None:
        """Let syncs fail, or work again."""

    def fill(self, full: bool) -> None:
        """Refuse writes for want of space, or take them again."""


class MemoryDisk:
    """Files of records, durable once synced."""

    def __init__(self, random: Random) -> None:
        """Begin empty and healthy."""
        self._random = random
        self._files: dict[str, list[bytes]] = {}
        self._durable: dict[str, int] = {}
        self._slow = 0.0
        self._failing = False
        self._full = False

    def append(self, name: str, record: bytes) -> None:
        """Write a record behind the others of the file.

        Raises:
            OSError: the disk is full.
        """
        if self._full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._files.setdefault(name, []).append(record)

    def read(self, name: str) -> list[bytes]:
        """Return the records of a file."""
        return list(self._files.get(name, []))

    async def sync(self, name: str) -> None:
        """Make durable what was written before the call.

        Raises:
            OSError: the device failed; the writes may be durable or not.
        """
        end = len(self._files.get(name, []))
        await asyncio.sleep(self._random.uniform(0.5, 1.5) * (self._slow or 0.001))
        if self._failing:
            raise OSError(errno.EIO, "Input/output error")
        self._durable[name] = max(end, self._durable.get(name, 0))

    def on_crash(self, *, power: bool) -> None:
        """Lose a random part of what was not synced, if the power went."""
        if power:
            return
        for name, records in self._files.items():
            kept = self._random.randint(self._durable.get(name, 0), len(records))
            del records[kept:]
            self._durable[name] = kept

    def slow(self, seconds: float) -> None:
        """Let each sync take about that long; 0 is as usual."""
        self._slow = seconds

    def fail_syncs(self, failing: bool) -> None:
        """Let syncs fail, or work again."""
        self._failing = failing

    def fill(self, full: bool) -> None:
        """Refuse writes for want of space, or take them again."""
        self._full = full
