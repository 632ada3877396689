"""The API as the conformance suite uses it: awaitables over either implementation.

A later implementation joins with an adapter that offers the same calls.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Protocol

import braidlog
from braidlog import AsyncLog, AsyncNode, Log, Node, Producer, Record


class AnyLog(Protocol):
    """What the suite calls of a log."""

    @property
    def first(self) -> int: ...
    @property
    def end(self) -> int: ...
    async def append(self, value: bytes, **options: Any) -> int: ...
    async def append_many(self, values: Iterable[bytes], **options: Any) -> range: ...
    async def append_arrow(self, data: Any, **options: Any) -> range: ...
    async def get(self, position: int) -> Record: ...
    async def read(self, *bounds: int | None, **filters: Any) -> list[Record]: ...
    def subscribe(self, *start: int, **options: Any) -> AsyncIterator[Record]: ...
    async def wait(self, position: int, **options: Any) -> bool: ...
    async def find(self, timestamp: int) -> int | None: ...
    async def to_arrow(self, *bounds: int | None, **options: Any) -> Any: ...
    async def trim(self, before: int, **options: Any) -> int: ...
    async def cursor(self, name: str, **options: Any) -> Any: ...
    async def set_cursor(self, name: str, position: int, **options: Any) -> Any: ...
    async def next_sequence(self, producer: Producer) -> int: ...


class AnyNode(Protocol):
    """What the suite calls of a node."""

    async def create_log(self, name: str, **options: Any) -> AnyLog: ...
    async def log(self, name: str) -> AnyLog: ...
    async def logs(self) -> list[str]: ...
    async def delete_log(self, name: str) -> None: ...
    async def close(self) -> None: ...


class BlockingLog:
    """`Log` with the calls of the suite."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._log, name)
        if not callable(found):
            return found

        async def call(*arguments: Any, **options: Any) -> Any:
            return found(*arguments, **options)

        return call

    async def read(self, *bounds: int | None, **filters: Any) -> list[Record]:
        return list(self._log.read(*bounds, **filters))

    async def subscribe(self, *start: int, **options: Any) -> AsyncIterator[Record]:
        for record in self._log.subscribe(*start, **options):
            yield record


class BlockingNode:
    """`Node` with the calls of the suite."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def create_log(self, name: str, **options: Any) -> AnyLog:
        return BlockingLog(self._node.create_log(name, **options))

    async def log(self, name: str) -> AnyLog:
        return BlockingLog(self._node.log(name))

    async def logs(self) -> list[str]:
        return self._node.logs()

    async def delete_log(self, name: str) -> None:
        self._node.delete_log(name)

    async def close(self) -> None:
        self._node.close()


class LoopLog:
    """`AsyncLog` with the calls of the suite."""

    def __init__(self, log: AsyncLog) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def read(self, *bounds: int | None, **filters: Any) -> list[Record]:
        return [record async for record in self._log.read(*bounds, **filters)]


class LoopNode:
    """`AsyncNode` with the calls of the suite."""

    def __init__(self, node: AsyncNode) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    async def create_log(self, name: str, **options: Any) -> AnyLog:
        return LoopLog(await self._node.create_log(name, **options))

    async def log(self, name: str) -> AnyLog:
        return LoopLog(await self._node.log(name))


async def open_blocking(path: Path, **options: Any) -> AnyNode:
    """Open with `braidlog.open`."""
    return BlockingNode(braidlog.open(path, **options))


async def open_loop(path: Path, **options: Any) -> AnyNode:
    """Open with `braidlog.open_async`."""
    return LoopNode(await braidlog.open_async(path, **options).__aenter__())


IMPLEMENTATIONS = {"blocking": open_blocking, "asyncio": open_loop}
