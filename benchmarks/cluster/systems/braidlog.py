"""Ours: `braidlog serve` three times, and the asynchronous client."""

from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks.cluster.plan import Plan
from braidlog.client import AsyncClient, AsyncClusterLog, connect_async
from braidlog.testing.cluster import LocalCluster

_READY = 256 << 20
_LIMITS = {
    "segment_bytes": 64 << 20,
    "wal_bytes_max": 2 << 30,
    # A log that has gone round once has its files; so has the one that is measured.
    "wal_ready_bytes": _READY,
}


class Braidlog:
    """A log with one stream on three nodes."""

    note = f"{_READY >> 20} MiB of log files are made before it starts"

    def __init__(self, cluster: LocalCluster) -> None:
        """Use a cluster that runs."""
        self.cluster = cluster
        self._client: AsyncClient | None = None
        self._log: AsyncClusterLog | None = None

    @property
    def log(self) -> AsyncClusterLog:
        """Return the log."""
        assert self._log is not None
        return self._log

    async def open(self) -> None:
        """Connect, and make the log."""
        self._client = connect_async(self.cluster.seeds)
        await self._client.__aenter__()
        self._log = await self._client.create_log("bench", streams=1)

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

    async def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            await self._client.__aexit__(None, None, None)


def start(
    plan: Plan, question: str, stack: ExitStack, program: str = "braidlog"
) -> Braidlog:
    """Start three nodes."""
    cluster = LocalCluster(
        3,
        directory=plan.directory / question / "braidlog",
        settings={"limits": _LIMITS},
        program=program,
    )
    return Braidlog(stack.enter_context(cluster))
