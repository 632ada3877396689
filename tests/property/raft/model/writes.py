"""Numbered writes, and the messages that wait for them.

*Theory of operation.* What has to be stored leaves as a write with the next number.
Storage is one ordered queue, so "durable up to number n" says everything. A message
that promises something waits for the last write that existed when it was made, so it
vouches for the term, the vote and the whole log of that moment. Numbers never repeat
while a node runs: a late report of a write whose entries were replaced meanwhile can
not be taken for its successor (the ABA race on record for etcd raft).

*Invariants.* `log.durable` counts only entries that are still the ones in memory.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from braidlog.raft.effects import Write
from braidlog.raft.errors import check
from braidlog.raft.messages import Message
from braidlog.raft.state import Entry, HardState
from property.raft.model.log import RaftLog

__all__ = ["Writes"]

# What is not stored is not committed here, and the tail has a bound.
_UNBOUNDED: Final = 1 << 62


class Writes:
    """Writes of one node that are on their way."""

    def __init__(self, log: RaftLog, stored: HardState, commit_lag: int = 1) -> None:
        """Begin with everything in `log` stored; see `RaftConfig.commit_lag`."""
        self._commit_lag = commit_lag
        self._log = log
        self._stored = stored
        self._written = log.last
        self._base = False
        self._reset = False
        self.number = 0
        self.durable_number = 0
        # Number and last index of each write; an index that was replaced is clipped.
        self._pending: deque[tuple[int, int]] = deque()
        self._untagged: list[Message] = []
        self._promises: deque[tuple[int, Message]] = deque()

    def promise(self, message: Message) -> None:
        """Hold a message until all that was decided so far is durable."""
        self._untagged.append(message)

    def cut(self, begin: int) -> None:
        """Note that the entries from `begin` on were replaced in memory."""
        self._written = min(self._written, begin - 1)
        self._pending = deque((n, min(i, begin - 1)) for n, i in self._pending)

    def base_changed(self, *, reset: bool) -> None:
        """Note that the base has to be stored; with `reset` it replaces the log."""
        self._base = True
        if reset:
            self._reset = True
            self._written = self._log.base.index
            self._pending = deque((number, 0) for number, _ in self._pending)

    def take(self, hard_state: HardState) -> Write | None:
        """Return what has to be stored now, if anything has."""
        log = self._log
        entries: tuple[Entry, ...] = ()
        if log.last > self._written:
            entries = log.read(self._written + 1, log.last + 1, _UNBOUNDED)
        write = None
        vital = _differs(hard_state, self._stored)
        if entries or self._base or vital:
            self.number += 1
            behind = hard_state.commit - self._stored.commit
            told = vital or self._base or behind >= self._commit_lag
            write = Write(
                self.number,
                hard_state if told and hard_state != self._stored else None,
                log.base if self._base else None,
                self._reset,
                entries,
            )
            self._stored = write.hard_state or self._stored
            self._written = log.last
            self._base = self._reset = False
            self._pending.append((self.number, log.last))
        if self._untagged:
            self._promises += [(self.number, message) for message in self._untagged]
            self._untagged.clear()
        return write

    def durable(self, number: int) -> None:
        """Note that all writes up to `number` are stored."""
        check(number <= self.number, f"write {number} was never handed out")
        self.durable_number = max(self.durable_number, number)
        while self._pending and self._pending[0][0] <= number:
            _, last = self._pending.popleft()
            self._log.durable = max(self._log.durable, last)

    def release(self) -> list[Message]:
        """Return the messages whose promise is kept now."""
        kept = []
        while self._promises and self._promises[0][0] <= self.durable_number:
            kept.append(self._promises.popleft()[1])
        return kept


def _differs(state: HardState, stored: HardState) -> bool:
    """Tell whether it must be stored; a new commit index alone waits for company."""
    return (
        state.term != stored.term
        or state.vote != stored.vote
        or state.removed is not stored.removed
    )
