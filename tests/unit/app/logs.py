"""Logs in lists as what replay reads, and banks with a history."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from braidlog import Record
from braidlog.app import Application
from braidlog.app.execution.executor import Executor
from braidlog.app.state.sqlite import SqliteState
from braidlog.errors import TrimmedError
from unit.app.records import Records

ACCOUNTS = 30


class ListInput:
    """Records in a list; some may be missing, and the first ones trimmed."""

    def __init__(
        self, records: list[Record], *, gaps: bool = False, first: int = 1
    ) -> None:
        self.name = "a list"
        self.id = ""
        self.gaps = gaps
        self.first = first
        self.listed = records

    def records(self, begin: int | None, end: int | None = None) -> Iterator[Record]:
        if begin is not None and begin < self.first:
            raise TrimmedError(first=self.first)
        begin = self.first if begin is None else begin
        found = [r for r in self.listed if r.position >= begin]
        return iter([r for r in found if end is None or r.position < end])


def history(bank: Application, commands: int, *, seed: int = 1) -> Records:
    """A log of calls, some of which abort, fail, draw, or repeat others."""
    log = Records(bank)
    numbers = random.Random(seed)
    past = [log.call_id()]
    for _ in range(commands):
        one, two = numbers.sample(range(ACCOUNTS), 2)
        kind = numbers.randrange(8)
        if kind == 0:
            log.command("transfer", one, two, numbers.randrange(80))
        elif kind == 1:
            log.command("lottery", one)
        elif kind == 2:
            log.command("explode", one)
        else:
            call = numbers.choice(past) if kind == 3 else log.call_id()
            log.command("deposit", one, numbers.randrange(50), call=call)
            past.append(call)
    return log


def oracle(log: Records, path: Path, until: int, **options: Any) -> dict[int, bytes]:
    """State hashes after a position, one command after the other in one go."""
    state = SqliteState(path, log.application.partitions)
    executor = Executor(log.application, state, **options)
    for record in log.records[:until]:
        executor.feed((record,))
        executor.commit()
    views = [partition.view() for partition in state.partitions]
    found = {number: view.hash() for number, view in enumerate(views)}
    for view in views:
        view.close()
    state.close()
    return found
