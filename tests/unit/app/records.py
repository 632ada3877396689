"""A log in a list, and calls as records: for tests of the executor alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from braidlog import Record
from braidlog.app import Application, CallId
from braidlog.app.execution.entries import (
    Command,
    Create,
    Entry,
    Resize,
    key_of,
    pack,
)
from braidlog.app.execution.executor import Executor
from braidlog.app.procedure import bind


class Records:
    """Records at positions from 1; begins with CREATE and the catalog."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self.records: list[Record] = []
        self._calls = 0
        kept = application.results_kept
        name, partitions = application.name, application.partitions
        self.partitions, self.routing = partitions, 0
        self.add(Create(b"i" * 16, name, partitions, kept))
        self.add(application.catalog(1))

    @property
    def end(self) -> int:
        return len(self.records) + 1

    def add(self, entry: Entry, timestamp: int | None = None) -> int:
        position = self.end
        key = key_of(entry.partitions) if isinstance(entry, Command) else None
        stamp = position * 1000 if timestamp is None else timestamp
        self.records.append(Record(position, stamp, key, pack(entry)))
        return position

    def call_id(self) -> CallId:
        self._calls += 1
        return CallId.make(self.end, self._calls.to_bytes(9, "big"))

    def command(
        self,
        name: str,
        *arguments: Any,
        call: CallId | None = None,
        timestamp: int | None = None,
        routed: tuple[int, int] | None = None,
    ) -> int:
        """Append a call; ``routed`` by another routing and number of partitions."""
        routing, partitions = routed or (self.routing, self.partitions)
        procedure = self.application.find(name)
        bound = bind(procedure, arguments, {})
        numbers = procedure.partitions(bound, partitions)
        call = self.call_id() if call is None else call
        seed = call[:16]
        entry = Command(call, seed, name, procedure.content, numbers, bound, routing)
        return self.add(entry, timestamp)

    def resize(self, partitions: int, row_keys: dict[str, str | None]) -> int:
        """Append an entry after which there are so many partitions, if it counts."""
        return self.add(Resize(partitions, self.routing, row_keys))

    def resized(self, position: int, partitions: int) -> None:
        """Route calls by the entry at a position from here on."""
        self.routing, self.partitions = position, partitions

    def after(self, executor: Executor) -> Iterator[Record]:
        return iter(self.records[executor.position :])
