"""Serve concurrent tasks from a peer: one thread commits whatever has gathered.

SQLite and LMDB have one writer and no group commit. This is the least a program with
many concurrent callers has to put in front of them.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from benchmarks.peers.protocol import Peer


class CommitQueue:
    """Appends of concurrent tasks, one transaction at a time."""

    def __init__(self, peer: Peer) -> None:
        """Put a queue in front of `peer`."""
        self._peer = peer
        self._thread = ThreadPoolExecutor(1)
        self._gathered: list[tuple[bytes, asyncio.Future[None]]] = []
        self._committer: asyncio.Task[None] | None = None

    async def append(self, value: bytes) -> None:
        """Append one value; durable on return."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._gathered.append((value, done))
        if self._committer is None:
            self._committer = loop.create_task(self._commit())
        await done

    async def _commit(self) -> None:
        loop = asyncio.get_running_loop()
        while self._gathered:
            group, self._gathered = self._gathered, []
            values = [value for value, _ in group]
            await loop.run_in_executor(self._thread, self._peer.append_group, values)
            for _, done in group:
                done.set_result(None)
            await asyncio.sleep(0)
        self._committer = None

    def close(self) -> None:
        """Stop the thread."""
        self._thread.shutdown()
