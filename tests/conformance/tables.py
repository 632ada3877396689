"""Tables as the conformance suite uses them: awaitables over each implementation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from inspect import isawaitable
from typing import Any, Protocol

from braidlog import Record


class AnyReads(Protocol):
    """What the suite calls of a table and of a snapshot."""

    async def get(self, key: Any, **options: Any) -> Record | None: ...
    async def get_many(self, keys: Any, **options: Any) -> Any: ...
    async def scan(self, *bounds: Any, **options: Any) -> list[Record]: ...
    async def batches(self, *bounds: Any, **options: Any) -> list[Any]: ...
    async def to_arrow(self, *bounds: Any, **options: Any) -> Any: ...
    async def index(self, name: str) -> AnyIndex: ...


class AnyIndex(Protocol):
    """What the suite calls of an index, of a table or of a snapshot."""

    async def get(self, value: Any, **options: Any) -> list[Record]: ...
    async def scan(self, *bounds: Any, **options: Any) -> list[Record]: ...
    async def batches(self, *bounds: Any, **options: Any) -> list[Any]: ...
    async def to_arrow(self, *bounds: Any, **options: Any) -> Any: ...
    async def wait(self, **options: Any) -> bool: ...


class AnySnapshot(AnyReads, Protocol):
    """What the suite calls of a snapshot."""

    @property
    def position(self) -> int: ...


class AnyTable(AnyReads, Protocol):
    """What the suite calls of a table."""

    @property
    def name(self) -> str: ...
    @property
    def log(self) -> str: ...
    def at(self, *position: int) -> AbstractAsyncContextManager[AnySnapshot]: ...
    async def applied(self) -> int: ...
    async def wait(self, position: int, **options: Any) -> bool: ...
    async def flush(self) -> None: ...
    async def rebuild(self) -> None: ...
    async def stats(self) -> Any: ...
    async def describe(self) -> Any: ...
    async def verify(self) -> tuple[int, int]: ...


def make(changes: Any, wanted: Iterable[tuple[Any, ...]]) -> None:
    """Make changes: each is the name of a call, its arguments, and perhaps options."""
    for call, *arguments in wanted:
        options = arguments.pop() if isinstance(arguments[-1], dict) else {}
        getattr(changes, call)(*arguments, **options)


class BlockingIndex:
    """`TableIndex`, or what has its calls, with the calls of the suite."""

    def __init__(self, index: Any) -> None:
        self._index = index

    async def get(self, value: Any, **options: Any) -> list[Record]:
        return list(self._index.get(value, **options))

    async def scan(self, *bounds: Any, **options: Any) -> list[Record]:
        return list(self._index.scan(*bounds, **options))

    async def batches(self, *bounds: Any, **options: Any) -> list[Any]:
        return list(self._index.batches(*bounds, **options))

    async def to_arrow(self, *bounds: Any, **options: Any) -> Any:
        return self._index.to_arrow(*bounds, **options)

    async def wait(self, **options: Any) -> bool:
        done: bool = self._index.wait(**options)
        return done


class BlockingTable:
    """`Table` or `TableSnapshot`, or what has their calls."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._table, name)
        if not callable(found):
            return found

        async def call(*arguments: Any, **options: Any) -> Any:
            return found(*arguments, **options)

        return call

    async def scan(self, *bounds: Any, **options: Any) -> list[Record]:
        return list(self._table.scan(*bounds, **options))

    async def batches(self, *bounds: Any, **options: Any) -> list[Any]:
        return list(self._table.batches(*bounds, **options))

    async def index(self, name: str) -> AnyIndex:
        return BlockingIndex(self._table.index(name))

    async def applied(self) -> int:
        position: int = self._table.applied
        return position

    @asynccontextmanager
    async def at(self, *position: int) -> AsyncIterator[AnySnapshot]:
        with self._table.at(*position) as snapshot:
            yield BlockingTable(snapshot)


class LoopIndex:
    """`AsyncTableIndex`, or what has its calls, with the calls of the suite."""

    def __init__(self, index: Any) -> None:
        self._index = index

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)

    async def get(self, value: Any, **options: Any) -> list[Record]:
        return [record async for record in self._index.get(value, **options)]

    async def scan(self, *bounds: Any, **options: Any) -> list[Record]:
        return [record async for record in self._index.scan(*bounds, **options)]

    async def batches(self, *bounds: Any, **options: Any) -> list[Any]:
        return [batch async for batch in self._index.batches(*bounds, **options)]


class LoopTable:
    """`AsyncTable` or `AsyncTableSnapshot`, with the calls of the suite."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    async def scan(self, *bounds: Any, **options: Any) -> list[Record]:
        return [record async for record in self._table.scan(*bounds, **options)]

    async def batches(self, *bounds: Any, **options: Any) -> list[Any]:
        return [batch async for batch in self._table.batches(*bounds, **options)]

    async def index(self, name: str) -> AnyIndex:
        index = self._table.index(name)
        # That of a snapshot is there already.
        return LoopIndex(await index if isawaitable(index) else index)

    @asynccontextmanager
    async def at(self, *position: int) -> AsyncIterator[AnySnapshot]:
        async with self._table.at(*position) as snapshot:
            yield LoopTable(snapshot)
