"""The API as the conformance suite uses it: awaitables over each implementation.

Another implementation joins with an adapter that offers the same calls, and an opener
that opens the same contents again and again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

import braidlog
from braidlog import Producer, Record
from braidlog.client import Client, ClientSettings
from braidlog.store.arguments import TimestampLike
from braidlog.testing import MemoryStore
from braidlog.testing.cluster import LocalCluster
from conformance.tables import AnyTable, BlockingTable, LoopTable, make
from unit.client.fake import FakeCluster

CURSORS = ("cursor", "set_cursor")


class AnyLog(Protocol):
    """What the suite calls of a log."""

    @property
    def first(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def id(self) -> str: ...
    @property
    def options(self) -> Any: ...
    async def append(self, value: bytes | None, **options: Any) -> int: ...
    async def append_many(
        self, values: Iterable[bytes | None], **options: Any
    ) -> Sequence[int]: ...
    async def append_arrow(self, data: Any, **options: Any) -> Sequence[int]: ...
    async def get(self, position: int) -> Record: ...
    async def read(self, *bounds: int | None, **options: Any) -> list[Record]: ...
    async def at(self, index: Any) -> Record: ...
    async def part(self, wanted: Any) -> list[Record]: ...
    async def back(self, wanted: slice | None = None) -> list[Record]: ...
    def subscribe(self, *start: int, **options: Any) -> AsyncIterator[Record]: ...
    async def wait(self, position: int, **options: Any) -> bool: ...
    async def find(self, timestamp: TimestampLike) -> int | None: ...
    async def first_timestamp(self) -> int | None: ...
    async def to_arrow(self, *bounds: int | None, **options: Any) -> Any: ...
    async def trim(self, before: int, **options: Any) -> int: ...
    async def archive(self) -> Any: ...
    async def set_archive(self, location: Path | None) -> None: ...
    async def set_options(self, **options: Any) -> None: ...
    async def cursor(self, name: str, **options: Any) -> Any: ...
    async def set_cursor(self, name: str, position: int, **options: Any) -> Any: ...
    async def cursors(self) -> list[Any]: ...
    async def next_sequence(self, producer: Producer) -> int: ...


class AnyNode(Protocol):
    """What the suite calls of a node."""

    async def create_log(self, name: str, **options: Any) -> AnyLog: ...
    async def log(self, name: str) -> AnyLog: ...
    async def logs(self) -> list[str]: ...
    async def delete_log(self, name: str) -> None: ...
    async def tables(self) -> list[str]: ...
    async def table(self, name: str) -> AnyTable: ...
    async def create_table(self, name: str, **options: Any) -> AnyTable: ...
    async def drop_table(self, name: str) -> None: ...
    async def ddl(self, *changes: tuple[Any, ...]) -> None: ...
    async def close(self) -> None: ...


class BlockingCursor:
    """A cursor whose calls are awaited."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    async def commit(self, position: int) -> None:
        self._cursor.commit(position)

    async def refresh(self) -> None:
        self._cursor.refresh()

    async def delete(self) -> None:
        self._cursor.delete()


class BlockingLog:
    """`Log`, or what has its calls, with the calls of the suite."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._log, name)
        if not callable(found):
            return found

        async def call(*arguments: Any, **options: Any) -> Any:
            result = found(*arguments, **options)
            return BlockingCursor(result) if name in CURSORS else result

        return call

    async def read(self, *bounds: int | None, **filters: Any) -> list[Record]:
        return list(self._log.read(*bounds, **filters))

    async def at(self, index: Any) -> Record:
        record: Record = self._log[index]
        return record

    async def part(self, wanted: Any) -> list[Record]:
        return list(self._log[wanted])

    async def back(self, wanted: slice | None = None) -> list[Record]:
        return list(reversed(self._log if wanted is None else self._log[wanted]))

    async def subscribe(self, *start: int, **options: Any) -> AsyncIterator[Record]:
        for record in self._log.subscribe(*start, **options):
            yield record


class BlockingNode:
    """`Node`, or what has its calls, with the calls of the suite."""

    def __init__(self, node: Any) -> None:
        self._node = node

    async def create_log(self, name: str, **options: Any) -> AnyLog:
        return BlockingLog(self._node.create_log(name, **options))

    async def log(self, name: str) -> AnyLog:
        return BlockingLog(self._node.log(name))

    async def logs(self) -> list[str]:
        names: list[str] = self._node.logs()
        return names

    async def delete_log(self, name: str) -> None:
        self._node.delete_log(name)

    async def tables(self) -> list[str]:
        names: list[str] = self._node.tables()
        return names

    async def table(self, name: str) -> AnyTable:
        return BlockingTable(self._node.table(name))

    async def create_table(self, name: str, **options: Any) -> AnyTable:
        return BlockingTable(self._node.create_table(name, **options))

    async def drop_table(self, name: str) -> None:
        self._node.drop_table(name)

    async def ddl(self, *changes: tuple[Any, ...]) -> None:
        with self._node.ddl() as change:
            make(change, changes)

    async def close(self) -> None:
        self._node.close()


class LoopLog:
    """`AsyncLog`, or what has its calls, with the calls of the suite."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def read(self, *bounds: int | None, **filters: Any) -> list[Record]:
        return [record async for record in self._log.read(*bounds, **filters)]

    async def at(self, index: Any) -> Record:
        record: Record = await self._log[index]
        return record

    async def part(self, wanted: Any) -> list[Record]:
        return [record async for record in self._log[wanted]]

    async def back(self, wanted: slice | None = None) -> list[Record]:
        part = self._log if wanted is None else self._log[wanted]
        return [record async for record in reversed(part)]


class LoopNode:
    """`AsyncStore`, or what has its calls, with the calls of the suite."""

    def __init__(self, node: Any) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    async def create_log(self, name: str, **options: Any) -> AnyLog:
        return LoopLog(await self._node.create_log(name, **options))

    async def log(self, name: str) -> AnyLog:
        return LoopLog(await self._node.log(name))

    async def table(self, name: str) -> AnyTable:
        return LoopTable(await self._node.table(name))

    async def create_table(self, name: str, **options: Any) -> AnyTable:
        return LoopTable(await self._node.create_table(name, **options))

    async def ddl(self, *changes: tuple[Any, ...]) -> None:
        async with self._node.ddl() as change:
            make(change, changes)


Reopen = Callable[..., Awaitable[AnyNode]]


class Opener(Protocol):
    """Opens the same contents again and again; one for each test."""

    READ_ONLY: bool
    """Whether it can be opened to read only."""
    CLUSTER: bool
    """Whether it wants a cluster of processes instead of a path."""
    TABLES: bool
    """Whether it has tables."""

    def __init__(self, where: Any) -> None: ...
    async def open(self, **options: Any) -> AnyNode: ...


class EmbeddedOpener:
    """`braidlog.open`."""

    READ_ONLY = True
    CLUSTER = False
    TABLES = True

    def __init__(self, path: Path) -> None:
        self._path = path

    async def open(self, **options: Any) -> AnyNode:
        return BlockingNode(braidlog.open(self._path, segment_bytes=1 << 20, **options))


class LoopOpener:
    """`braidlog.open_async`."""

    READ_ONLY = True
    CLUSTER = False
    TABLES = True

    def __init__(self, path: Path) -> None:
        self._path = path

    async def open(self, **options: Any) -> AnyNode:
        opening = braidlog.open_async(self._path, segment_bytes=1 << 20, **options)
        return LoopNode(await opening.__aenter__())


class MemoryOpener:
    """`MemoryStore`."""

    READ_ONLY = True
    CLUSTER = False
    TABLES = True

    def __init__(self, path: Path) -> None:
        self._node = MemoryStore(segment_bytes=1 << 20)

    async def open(self, **options: Any) -> AnyNode:
        return BlockingNode(self._node.reopen(**options))


class ClientOpener:
    """The client of a cluster whose nodes are in memory."""

    READ_ONLY = False
    CLUSTER = False
    TABLES = False

    def __init__(self, path: Path) -> None:
        self._cluster = FakeCluster()

    async def open(self, **options: Any) -> AnyNode:
        client = self._cluster.client(record_bytes_max=1 << 19, **options)
        return LoopNode(await client.__aenter__())


class BlockingClientOpener:
    """The blocking client over the same; its nodes live on its loop."""

    READ_ONLY = False
    CLUSTER = False
    TABLES = False

    def __init__(self, path: Path) -> None:
        self._cluster = FakeCluster()

    async def open(self, **options: Any) -> AnyNode:
        self._cluster.go_to_loop()
        client = Client(
            lambda: self._cluster.client(record_bytes_max=1 << 19, **options)
        )
        return BlockingNode(client.__enter__())


_CLUSTER_SETTINGS = ClientSettings(record_bytes_max=1 << 19)


class ClusterOpener:
    """The client of a cluster of processes, which begins without logs."""

    READ_ONLY = False
    CLUSTER = True
    TABLES = True

    def __init__(self, cluster: LocalCluster) -> None:
        self._seeds = cluster.seeds
        with braidlog.connect(self._seeds) as client:
            for name in client.tables():
                client.drop_table(name)
            for name in client.logs():
                client.delete_log(name)

    async def open(self, **options: Any) -> AnyNode:
        client = braidlog.connect_async(
            self._seeds, settings=_CLUSTER_SETTINGS, **options
        )
        return LoopNode(await client.__aenter__())


class BlockingClusterOpener(ClusterOpener):
    """The blocking client of the same."""

    async def open(self, **options: Any) -> AnyNode:
        client = braidlog.connect(self._seeds, settings=_CLUSTER_SETTINGS, **options)
        return BlockingNode(client.__enter__())


class ShardNode(LoopNode):
    """The same, where a log is a shard unless it asks for what none has."""

    async def create_log(self, name: str, **options: Any) -> AnyLog:
        if "streams" not in options:
            options["kind"] = "shard"
        return await super().create_log(name, **options)


class ShardOpener(ClusterOpener):
    """The client of the same, with shards."""

    async def open(self, **options: Any) -> AnyNode:
        client = braidlog.connect_async(
            self._seeds, settings=_CLUSTER_SETTINGS, **options
        )
        return ShardNode(await client.__aenter__())


IMPLEMENTATIONS: dict[str, type[Opener]] = {
    "blocking": EmbeddedOpener,
    "asyncio": LoopOpener,
    "memory": MemoryOpener,
    "client": ClientOpener,
    "blocking client": BlockingClientOpener,
    "cluster": ClusterOpener,
    "blocking cluster": BlockingClusterOpener,
    "shards": ShardOpener,
}


def params(*, tables: bool = False) -> list[Any]:
    """Return what a fixture is made with for each of them, or each that has tables."""
    return [
        pytest.param(kind, id=name, marks=[pytest.mark.process] * kind.CLUSTER)
        for name, kind in IMPLEMENTATIONS.items()
        if kind.TABLES or not tables
    ]


def opener_of(request: pytest.FixtureRequest, path: Path) -> Opener:
    """Return the opener that a fixture was made with."""
    kind: type[Opener] = request.param
    return kind(request.getfixturevalue("cluster") if kind.CLUSTER else path / "d")
