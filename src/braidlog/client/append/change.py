"""What is under way when the streams of a log change: nothing is lost or stored twice.

*Theory of operation.* The change ended the epochs in which the appenders of the client
sent. What they sent is stored up to where these epochs ended, or never will be. So the
streams are read, from where the log ended when the first of it was sent: a batch has
its producer and sequence with it. What is there is settled with its position; all the
rest is put anew, by keys, to the streams that take them now. Whatever the program
appends meanwhile waits behind that, so the records of one key keep their order.

*Invariants.* A record goes to a stream anew only when it is known that its former one
does not have it. Records are put in the order in which they were appended to a stream,
and those that waited come last.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from braidlog._native import Entry, settle
from braidlog.client.append.byte_budget import ByteBudget
from braidlog.client.append.producer import Outgoing
from braidlog.client.retry import Backoff, Verdict, verdict_of
from braidlog.errors import DeadlineError, LogError
from braidlog.types import Producer

Waiter: TypeAlias = "asyncio.Future[int]"
Records: TypeAlias = "Entry[Waiter]"
Origin: TypeAlias = tuple[Producer, int]
"""Who sent a batch, and the sequence of its first record."""
Stored: TypeAlias = dict[Origin, int]
"""Positions of batches, by where they come from."""
Search: TypeAlias = Callable[[int, int], Awaitable[Stored]]
"""Reads a stream from a position on, up to where its epoch ended at least."""


@dataclass(slots=True)
class Left:
    """What an appender had not settled."""

    stream: int
    batches: list[Outgoing[Waiter]]
    """What was sent, in order."""
    waiting: list[Records]
    """What was not, and came behind it."""

    @property
    def open(self) -> list[Outgoing[Waiter]]:
        """Return the batches that may be stored."""
        return [batch for batch in self.batches if batch.unknown]

    def entries(self) -> list[Records]:
        """Return all records that are not settled, in order."""
        sent = [entry for batch in self.batches for entry in batch.entries]
        return sent + self.waiting


@dataclass(slots=True)
class Moved:
    """Records to be put anew, and the stream that they were for."""

    entry: Records
    stream: int | None
    """None of what came during the change: it goes where its key says."""


class StreamChange:
    """One change, from when the client hears of it until all is put anew."""

    def __init__(
        self,
        left: Sequence[Left],
        search: Search,
        budget: ByteBudget,
        backoff: Backoff,
        share: Callable[[], float],
        done: Callable[[list[Moved]], None],
    ) -> None:
        """Begin; ``done`` gets what is to be put anew, in order."""
        self._left = list(left)
        self._search = search
        self._budget = budget
        self._backoff = backoff
        self._share = share
        self._done = done
        self._held: list[Moved] = []
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due = float("inf")
        for each in self._left:
            for entry in each.entries():
                self._watch(entry)
        self._task = self._loop.create_task(self._run())

    def hold(self, entry: Records, stream: int | None = None) -> None:
        """Let records wait that were appended meanwhile."""
        self._held.append(Moved(entry, stream))
        self._watch(entry)

    def withdraw(self, entry: Records) -> bool | None:
        """Take records back; False if they may be stored, None if they are not here."""
        for moved in self._held:
            if moved.entry is entry:
                self._held.remove(moved)
                self._budget.give(entry.size)
                return True
        for left in self._left:
            for batch in left.batches:
                if any(each is entry for each in batch.entries):
                    entry.expired = True
                    return not batch.unknown
            if any(each is entry for each in left.waiting):
                left.waiting = [each for each in left.waiting if each is not entry]
                self._budget.give(entry.size)
                return True
        return None

    def close(self, error: LogError) -> None:
        """Fail everything."""
        self._task.cancel()
        self._stop_timer()
        for left in self._left:
            for batch in left.batches:
                self._fail(batch.entries, error, unknown=batch.unknown)
            self._fail(left.waiting, error, unknown=False)
        self._fail([moved.entry for moved in self._held], error, unknown=False)
        self._left, self._held = [], []

    async def _run(self) -> None:
        await asyncio.gather(*(self._settle(left) for left in self._left))
        self._stop_timer()
        anew = [
            Moved(entry, left.stream) for left in self._left for entry in left.entries()
        ]
        anew += self._held
        self._left, self._held = [], []
        wanted = []
        for moved in anew:
            if moved.entry.waiter.done():
                # Nobody waits for it, and nothing behind it needs it any more.
                self._budget.give(moved.entry.size)
            else:
                wanted.append(moved)
        self._done(wanted)

    async def _settle(self, left: Left) -> None:
        """Find out which batches are stored; what remains of them is not."""
        while left.open:
            try:
                since = min(batch.since for batch in left.open)
                stored = await self._search(left.stream, since)
            except LogError as error:
                late = isinstance(error, DeadlineError)
                if late or verdict_of(error) is not Verdict.FINAL:
                    await asyncio.sleep(self._backoff.pause(self._share()))
                    continue
                self._give_up(left, error)
                return
            for batch in left.open:
                glsn = stored.get((batch.producer, batch.sequence))
                batch.unknown = False
                if glsn is not None:
                    left.batches.remove(batch)
                    settle(batch.entries, glsn, self._budget.core)
                    if self._budget.core.shut:
                        self._budget.serve()

    def _give_up(self, left: Left, error: LogError) -> None:
        for batch in left.open:
            left.batches.remove(batch)
            self._fail(batch.entries, error, unknown=True)

    def _fail(
        self, entries: Sequence[Records], error: LogError, *, unknown: bool
    ) -> None:
        for entry in entries:
            self._budget.give(entry.size)
            if not entry.waiter.done():
                told = copy.copy(error)
                told.outcome = "unknown" if unknown else "not_stored"
                entry.waiter.set_exception(told)

    # -- time --------------------------------------------------------------------

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due = None, float("inf")

    def _watch(self, entry: Records) -> None:
        if entry.deadline < self._due and not entry.waiter.done():
            self._stop_timer()
            self._due = entry.deadline
            self._timer = self._loop.call_at(entry.deadline, self._expire)

    def _expire(self) -> None:
        self._stop_timer()
        now = self._loop.time()
        open_ = {id(e) for x in self._left for b in x.open for e in b.entries}
        entries = [entry for left in self._left for entry in left.entries()]
        entries += [moved.entry for moved in self._held]
        for entry in entries:
            if entry.deadline > now or entry.waiter.done():
                self._watch(entry)
                continue
            error: LogError = DeadlineError(
                "the streams of the log were changed, and the append was not stored "
                "in time"
            )
            # What was sent may be found yet; the rest is left out when it is put anew.
            error.outcome = "unknown" if id(entry) in open_ else "not_stored"
            entry.expired = True
            entry.waiter.set_exception(error)
