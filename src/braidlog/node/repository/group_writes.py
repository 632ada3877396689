"""Writes of a Raft group on their way to its log: in their order, and none left out.

A disk without room is a slow disk to Raft: what cannot be stored stays the first in the
queue and is tried again, so everything behind it waits too. To leave it out would leave
a hole, and what the next write is then refused for says nothing about the disk.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from braidlog.errors import ClosedError, LogError, UnavailableError
from braidlog.raft import Write
from braidlog.raft.errors import fail

_log = logging.getLogger(__name__)


class WriteLog(Protocol):
    """Where a group stores; see `GroupLog.write`."""

    def write(self, write: Write) -> int:
        """Store a write; return the ticket with which it is durable."""


class GroupWrites:
    """Stores in order; says what is durable."""

    def __init__(self, log: WriteLog, whose: str = "the metadata repository") -> None:
        """Store in `log`; ``whose`` it is the operator is told."""
        self._log = log
        self._whose = whose
        self._waiting: deque[Write] = deque()
        self.stored: deque[tuple[int, int]] = deque()
        """Tickets and numbers of the writes that are not durable yet."""
        self.lacks_room = False
        """Whether the system refused the first that waits, when it was last tried."""

    def put(self, writes: Iterable[Write]) -> None:
        """Store these behind those that wait, as far as there is room.

        Raises:
            ClosedError: the store has failed, or the log can never take a write.
        """
        self._waiting.extend(writes)
        while self._waiting:
            write = self._waiting[0]
            try:
                ticket = self._log.write(write)
            except ClosedError:
                raise
            except UnavailableError as error:
                self._complain(error)
                return
            except LogError as error:
                fail(
                    f"write {write.number} of the log of {self._whose} cannot be "
                    f"stored: {error}"
                )
            self._waiting.popleft()
            self.stored.append((ticket, write.number))
        self.lacks_room = False

    def durable(self, ticket: int) -> int:
        """Return the newest write that is durable now and was not before, or 0."""
        number = 0
        while self.stored and self.stored[0][0] <= ticket:
            number = self.stored.popleft()[1]
        return number

    def _complain(self, error: UnavailableError) -> None:
        if not self.lacks_room:
            _log.error("%s waits for disk space: %s", self._whose, error)
        self.lacks_room = True
