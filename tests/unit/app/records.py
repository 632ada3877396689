"""A log in a list, and calls as records: for tests of the executor alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from braidlog import Record
from braidlog.app import Application, CallId
from braidlog.app.execution.entries import Command, Create, Entry, key_of, pack
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
    ) -> int:
        procedure = self.application.find(name)
        bound = bind(procedure, arguments, {})
        numbers = procedure.partitions(bound, self.application.partitions)
        call = self.call_id() if call is None else call
        seed = call[:16]
        entry = Command(call, seed, name, procedure.content, numbers, bound)
        return self.add(entry, timestamp)

    def after(self, executor: Executor) -> Iterator[Record]:
        return iter(self.records[executor.position :])
