"""Nodes of one process that keep tables in memory, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from sim.tables.engine import MemoryEngine, TableDisk

import braidlog
from braidlog.client import AsyncClient, AsyncClusterLog, ClientSettings
from braidlog.client.batches import NativeCodec
from braidlog.client.connection.cluster import Cluster
from braidlog.node.config import NodeConfig, parse
from braidlog.node.server import NodeServer, native_tables
from braidlog.node.tables.host import HostState
from braidlog.node.tables.settings import TableSettings
from braidlog.node.tables.tables import Tables, TableWork
from braidlog.node.tables.worker import InlineWorker
from braidlog.wire.commands import ChangeTables
from braidlog.wire.messages import Message
from braidlog.wire.rows import GetRows, Rows, ScanRows
from braidlog.wire.tables import CreateTable, TableChange, TableInfo
from cluster.hosts import free_ports

SETTINGS = TableSettings(
    flush_s=0.2, merge_pause_s=0.05, retry_s=0.01, retry_max_s=0.1, part_bytes=512
)
_ids = count(1)


def identity() -> bytes:
    return next(_ids).to_bytes(16)


@dataclass
class Node:
    config: NodeConfig
    disk: TableDisk = field(default_factory=TableDisk)
    settings: TableSettings = SETTINGS
    server: NodeServer | None = None
    task: asyncio.Task[None] | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    engine: MemoryEngine | None = None
    native: bool = False

    @property
    def directory(self) -> Path:
        """Of the tables of the native engine."""
        return Path(self.config.node.data) / "tables"

    def _work(self) -> TableWork:
        if self.native:
            return native_tables(self.directory, self.settings)
        self.engine = MemoryEngine(self.disk)
        return TableWork(self.engine, InlineWorker(), InlineWorker(), self.settings)

    async def start(self) -> None:
        self.server = NodeServer(self.config, tables=self._work())
        await self.server.__aenter__()
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(self.server.serve(self.stop))

    async def end(self) -> None:
        if self.server is None or self.task is None:
            return
        self.stop.set()
        await self.task
        await self.server.__aexit__(None, None, None)
        self.server = None

    @property
    def tables(self) -> Tables:
        assert self.server is not None
        assert self.server.node.tables is not None
        return self.server.node.tables

    def state(self, table: bytes) -> str:
        found = [s for s in self.tables.status() if s.table == table.hex()]
        return found[0].state if found else ""


@dataclass
class Nodes:
    nodes: dict[int, Node]
    client: AsyncClient

    @property
    def cluster(self) -> Cluster:
        return self.client._cluster

    async def change(self, *changes: TableChange) -> None:
        await self.cluster.execute(ChangeTables(changes))

    async def create(self, log: AsyncClusterLog, name: str, replicas: int) -> bytes:
        table = identity()
        tree = identity()
        change = CreateTable(table, tree, name, bytes.fromhex(log.id), replicas)
        await self.change(change)
        return table

    async def info(self, table: bytes) -> TableInfo | None:
        routes = await self.cluster.linearize()
        found = [each for each in routes.metadata.tables if each.table == table]
        return found[0] if found else None

    async def get(
        self, node: int, table: bytes, *keys: bytes, after: int = 0, at: int = 0
    ) -> dict[bytes, bytes]:
        ask = GetRows(table, keys, at, after, 5000)
        rows, payload = await self.cluster.ask_node(node, ask, within=8)
        return values(rows, payload)

    async def scan(self, node: int, ask: ScanRows) -> tuple[Rows, dict[bytes, bytes]]:
        rows, payload = await self.cluster.ask_node(node, ask, within=8)
        assert isinstance(rows, Rows)
        return rows, values(rows, payload)


def values(rows: Message, payload: memoryview) -> dict[bytes, bytes]:
    assert isinstance(rows, Rows)
    if not rows.positions:
        assert not payload
        return {}
    found = NativeCodec().open(payload).records(1, 0, len(rows.positions))
    return {record.key: record.value for record in found if record.key is not None}


def config(directory: Path, number: int, addresses: Sequence[str]) -> NodeConfig:
    voters = ", ".join(f'{i + 1} = "{each}"' for i, each in enumerate(addresses[:3]))
    return parse(
        f"""
        [node]
        id = {number}
        data = "{directory / str(number)}"
        listen = "{addresses[number - 1]}"
        [cluster]
        name = "here"
        voters = {{ {voters} }}
        [timing]
        tick_ms = 20
        [limits]
        segment_bytes = 1048576
        wal_bytes_max = 33554432
        """,
        {},
    )


@asynccontextmanager
async def running(
    directory: Path,
    number: int,
    settings: TableSettings = SETTINGS,
    *,
    native: bool = False,
    client: ClientSettings | None = None,
) -> AsyncIterator[Nodes]:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(number)]
    nodes = {
        each: Node(config(directory, each, addresses), settings=settings, native=native)
        for each in range(1, number + 1)
    }
    try:
        await asyncio.gather(*(node.start() for node in nodes.values()))
        async with braidlog.connect_async(addresses, settings=client) as connected:
            while len(await connected.nodes()) < number:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            yield Nodes(nodes, connected)
    finally:
        await asyncio.gather(*(node.end() for node in nodes.values()))
        # Links close when the other side has read the goodbye.
        await asyncio.sleep(0.1)


async def until(holds: Callable[[], object]) -> None:
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def serving(nodes: Nodes, table: bytes, *hosts: int) -> None:
    state = HostState.SERVING.value
    await until(lambda: all(nodes.nodes[n].state(table) == state for n in hosts))
