"""Ours: `braidlog serve` three times, and the asynchronous client."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.cluster.plan import Plan
from benchmarks.cluster.systems.system import Nodes, System
from braidlog.client import AsyncClient, AsyncClusterLog, connect_async
from braidlog.errors import InvalidArgumentError
from braidlog.testing.cluster import LocalCluster

_LIMITS = {
    "segment_bytes": 64 << 20,
    "wal_bytes_max": 4 << 30,
    # A log that has gone round once has its files; so has the one that is measured.
    "wal_ready_bytes": 512 << 20,
}
_NODES = 3
_READY_S = 30.0


class Braidlog:
    """A log on three nodes."""

    def __init__(self, seeds: str) -> None:
        """Connect later."""
        self._seeds = seeds
        self._client: AsyncClient | None = None
        self._log: AsyncClusterLog | None = None

    @property
    def log(self) -> AsyncClusterLog:
        """Return the log."""
        assert self._log is not None
        return self._log

    async def open(self, log: str, streams: int, *, make: bool) -> None:
        """Connect to the log, which has three replicas in sync."""
        client = self._client = await connect_async(self._seeds).__aenter__()
        if not make:
            self._log = await client.log(log)
            return
        async with asyncio.timeout(_READY_S):
            while self._log is None:
                try:
                    self._log = await client.create_log(
                        log, streams=streams, replication=_NODES
                    )
                except InvalidArgumentError:  # Nodes are not registered yet.
                    await asyncio.sleep(0.1)
            while not await _is_whole(self._log):  # noqa: ASYNC110, RUF100
                await asyncio.sleep(0.1)

    async def append(self, value: bytes) -> None:
        """Append one record."""
        await self.log.append(value)

    async def append_many(self, values: Sequence[bytes]) -> None:
        """Append a batch."""
        await self.log.append_many(values)

    async def read(self, count: int) -> int:
        """Read from the start."""
        found = 0
        async for _ in self.log.read(1, 1 + count):
            found += 1
        return found

    async def leader(self) -> int:
        """Return the node with the primary of the first stream."""
        described = await self.log.describe()
        return described.streams[0].replicas[0] - 1

    async def recover(self) -> None:
        """Do nothing: the client does."""

    async def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            await self._client.__aexit__(None, None, None)


async def _is_whole(log: AsyncClusterLog) -> bool:
    streams = (await log.describe()).streams
    return all(
        len(each.replicas) == len(each.in_sync or ()) == _NODES for each in streams
    )


def launch(folder: Path, stack: ExitStack, program: str = "braidlog") -> LocalCluster:
    """Start three nodes; `program` is the module that each of them runs."""
    cluster = LocalCluster(
        _NODES, directory=folder, settings={"limits": _LIMITS}, program=program
    )
    return stack.enter_context(cluster)


def _start(_: Plan, folder: Path, stack: ExitStack) -> Nodes:
    cluster = launch(folder, stack)
    return Nodes(cluster.seeds, tuple(map(cluster.pid, cluster.nodes)))


SYSTEM = System("braidlog", _start, Braidlog, streams=True)
