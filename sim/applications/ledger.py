"""What the log says, by a model that knows no database, and what callers were told.

*Theory of operation.* Every record that any host reads is noted, also those that are
trimmed later. The model goes through them in order and knows of each call where it was
executed and what it gave. What callers were told has to be that; a read has to be what
the accounts held at some position between the calls that were answered before it began
and the records that somebody had read when it ended.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from braidlog.app.determinism.codec import decode
from braidlog.app.execution.entries import Command, Create, Effect, unpack
from braidlog.app.execution.entries import Host as HostEntry
from sim.errors import ViolationError

__all__ = ["REFUSED", "Ledger", "Model", "Read", "Record", "Told"]

REFUSED = "refused"


class Record(NamedTuple):
    """A record as the executor needs it."""

    position: int
    timestamp: int
    value: bytes


@dataclass(slots=True)
class Told:
    """A call, and its first answer."""

    caller: str
    call: bytes
    begin: float
    answer: Any = None
    end: float = math.inf


@dataclass(frozen=True, slots=True)
class Read:
    """What a read-only call gave; of one account, or of all of them if it is None."""

    caller: str
    account: int | None
    value: int
    begin: float
    end: float


@dataclass(slots=True)
class Model:
    """The accounts after so many records, and the calls that are remembered."""

    partitions: int = 1
    results_kept: int = 1
    balances: dict[int, int] = field(default_factory=dict)
    answers: dict[bytes, Any] = field(default_factory=dict)
    at: dict[bytes, int] = field(default_factory=dict)
    """Where each call was executed."""
    repeated: int = 0
    expired: int = 0
    void: int = 0
    epoch: int = 0
    host: bytes = b""
    # Position and account of each change, with what it held then.
    history: list[tuple[int, int, int]] = field(default_factory=list)
    _last: dict[int, int] = field(default_factory=dict)
    _kept: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    _forgotten: dict[int, int] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        """Go through one record more.

        Raises:
            ViolationError: a call is executed twice, because it was forgotten too soon.
        """
        entry = unpack(record.value, record.position)
        if isinstance(entry, Create):
            self.partitions, self.results_kept = entry.partitions, entry.results_kept
        elif isinstance(entry, HostEntry):
            if entry.epoch > self.epoch:
                self.epoch, self.host = entry.epoch, entry.host
        elif isinstance(entry, (Command, Effect)):
            self._call(record.position, entry)

    def _call(self, position: int, entry: Command | Effect) -> None:
        every = list(range(self.partitions))
        numbers = every if entry.partitions is None else entry.partitions
        home, call = numbers[0], entry.call
        if call in self._kept[home]:
            self.repeated += 1
        elif int.from_bytes(call[:7], "big") <= self._forgotten.get(home, 0):
            self.expired += 1
        elif isinstance(entry, Effect) and entry.base != [
            self._last.get(number, 0) for number in numbers
        ]:
            self.void += 1
        else:
            self._execute(position, numbers, entry)
            self._remember(position, home, call)

    def _execute(
        self, position: int, numbers: list[int], entry: Command | Effect
    ) -> None:
        call = entry.call
        if call in self.answers:
            raise ViolationError(f"{call.hex()} is executed again at {position}")
        if isinstance(entry, Effect):
            (account,) = {int(change[2]) for change in entry.changes[0]}
            answer: Any = self._set(position, account, decode(entry.result))
        elif entry.procedure == "deposit":
            account, amount = entry.arguments
            there = self.balances.get(account, 0)
            answer = self._set(position, account, there + amount)
        else:
            answer = self._transfer(position, *entry.arguments)
        self.answers[call], self.at[call] = answer, position
        if answer != REFUSED:
            self._last.update(dict.fromkeys(numbers, position))

    def _transfer(self, position: int, source: int, target: int, amount: int) -> Any:
        left = self.balances.get(source, 0) - amount
        if left < 0:
            return REFUSED
        self._set(position, source, left)
        return [
            left,
            self._set(position, target, self.balances.get(target, 0) + amount),
        ]

    def _set(self, position: int, account: int, balance: int) -> int:
        self.balances[account] = balance
        self.history.append((position, account, balance))
        return balance

    def _remember(self, position: int, home: int, call: bytes) -> None:
        kept = self._kept[home]
        kept.append(call)
        while len(kept) > self.results_kept:
            self._forgotten[home] = self.at[kept.pop(0)]


class Ledger:
    """Everything that was seen of one application."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.records: dict[int, Record] = {}
        self.seen_at: dict[int, float] = {}
        self.told: list[Told] = []
        self.reads: list[Read] = []

    def seen(self, record: Record, now: float) -> None:
        """Note a record that a host read.

        Raises:
            ViolationError: another one was read at this position before.
        """
        known = self.records.setdefault(record.position, record)
        self.seen_at.setdefault(record.position, now)
        if known != record:
            raise ViolationError(f"two records at {record.position}")

    def in_order(self) -> list[Record]:
        """Return all records.

        Raises:
            ViolationError: nobody ever read one of them.
        """
        found = [self.records[position] for position in sorted(self.records)]
        if found and found[-1].position != len(found):
            raise ViolationError("hosts skipped a record")
        return found

    def finish(self) -> Model:
        """Judge what callers were told.

        Raises:
            ViolationError: it is not what the log gives.
        """
        model = Model()
        for record in self.in_order():
            model.take(record)
        self._check_answers(model)
        self._check_order(model)
        self._check_reads(model)
        return model

    def _check_answers(self, model: Model) -> None:
        for told in self.told:
            if told.end == math.inf:
                continue
            found = model.answers.get(told.call, "nothing")
            if found != told.answer:
                what = f"{told.caller} was told {told.answer} of {told.call.hex()}"
                raise ViolationError(f"{what}, the log gives {found}")

    def _answered(self, model: Model) -> list[tuple[float, int]]:
        """Return when calls were answered, and where the last of those is by then."""
        ends = sorted(
            (told.end, model.at[told.call]) for told in self.told if told.end < math.inf
        )
        highest, found = 0, []
        for end, position in ends:
            highest = max(highest, position)
            found.append((end, highest))
        return found

    def _check_order(self, model: Model) -> None:
        answered = self._answered(model)
        for told in self.told:
            at = model.at.get(told.call)
            if at is not None and at <= _before(answered, told.begin):
                text = f"{told.call.hex()} at {at} began after what follows it"
                raise ViolationError(text)

    def _check_reads(self, model: Model) -> None:
        answered = self._answered(model)
        seen: list[tuple[float, int]] = []
        for position, when in sorted(self.seen_at.items(), key=lambda each: each[1]):
            seen.append((when, max(position, seen[-1][1] if seen else 0)))
        explained: list[tuple[float, int]] = []
        for read in sorted(self.reads, key=lambda each: each.end):
            low = max(
                _before(answered, read.begin),
                max([at for end, at in explained if end < read.begin], default=0),
            )
            high = _before(seen, read.end, last=True)
            explained.append((read.end, _explain(model, read, low, high)))


def _before(
    steps: Sequence[tuple[float, int]], moment: float, *, last: bool = False
) -> int:
    """Return the position that was reached before a moment; with ``last`` also then."""
    found = 0
    for when, position in steps:
        if when > moment or (when == moment and not last):
            break
        found = position
    return found


def _explain(model: Model, read: Read, low: int, high: int) -> int:
    """Return the first position from ``low`` on at which a read gives what it gave.

    Raises:
        ViolationError: there is none up to ``high``.
    """
    balances: dict[int, int] = defaultdict(int)
    changes = iter(model.history)
    change = next(changes, None)
    changed = {at for at, _, _ in model.history if low < at <= high}
    for position in sorted({low, *changed}):
        while change is not None and change[0] <= position:
            balances[change[1]] = change[2]
            change = next(changes, None)
        there = sum(balances.values())
        if read.account is not None:
            there = balances[read.account]
        if there == read.value:
            return position
    raise ViolationError(f"{read} is explained by no position of {low} to {high}")
