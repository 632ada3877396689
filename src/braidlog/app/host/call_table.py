"""Calls on their way: who waits for the outcome of which command."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from braidlog.app.errors import BusyError, OutcomeUnknownError
from braidlog.app.execution.answers import answer
from braidlog.app.execution.entries import CallId
from braidlog.app.execution.outcome import Outcome
from braidlog.errors import DeadlineError
from braidlog.store.arguments import checked_timeout


class Waiter(Protocol):
    """Somebody who waits for an outcome."""

    def settle(self, outcome: Outcome | Exception) -> None:
        """Hear of the outcome, or of why there will be none. Must not block."""


class PendingCall:
    """A call that was appended and may not be answered yet. Any thread can wait.

    A thread waits on a lock: a condition or an event costs several times as much, and
    there is one of these for each call.
    """

    __slots__ = ("_lock", "_outcome", "call_id")

    def __init__(self, call_id: CallId) -> None:
        """Made by `Host.submit`."""
        self.call_id = call_id
        self._outcome: Outcome | Exception | None = None
        self._lock = threading.Lock()
        self._lock.acquire()

    def settle(self, outcome: Outcome | Exception) -> None:
        """Take the outcome; called once, by the host."""
        self._outcome = outcome
        self._lock.release()

    def done(self) -> bool:
        """Return whether the answer has come."""
        return self._outcome is not None

    def outcome(self, timeout: float | None = None) -> Outcome:
        """Wait for the outcome as the log records it; None waits without limit.

        Raises:
            OutcomeUnknownError: the host failed; repeat with the same call id.
            DeadlineError: no outcome within ``timeout`` seconds; it may still come.
        """
        if self._outcome is None:
            left = checked_timeout(timeout)
            if not self._lock.acquire(timeout=-1 if left is None else max(left, 0)):
                raise late(self.call_id, timeout)
            self._lock.release()  # For others who wait for the same call.
        if isinstance(self._outcome, Exception):
            raise self._outcome
        assert self._outcome is not None, "settled before it was released"
        return self._outcome

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the answer, and return what the procedure returned.

        On return the call and its changes are durable.

        Raises:
            ProcedureError: the procedure raised an exception; `Abort` if it refused.
            OutcomeUnknownError: the host failed; repeat with the same call id.
            DeadlineError: no answer within ``timeout`` seconds; it may still come.
        """
        return answer(self.outcome(timeout))


class CallTable:
    """Who waits for the outcome of which call, and how many calls each partition has.

    Not safe by itself: `Calls` holds its lock around every call.
    """

    def __init__(self, partitions: int) -> None:
        """Begin with no call, and room for none."""
        self.limit = 0
        """How many calls may wait at a time."""
        self._waiters: dict[bytes, list[tuple[Waiter, Sequence[int]]]] = {}
        self.on_their_way = 0
        self.by_partition = [0] * partitions

    def grow(self, partitions: int) -> None:
        """Have room for so many partitions; calls of others may still be there."""
        more = partitions - len(self.by_partition)
        self.by_partition.extend([0] * max(0, more))

    def add(self, call: bytes, waiter: Waiter, numbers: Sequence[int]) -> None:
        """Remember who waits for a call.

        Raises:
            BusyError: too many calls are on their way.
        """
        if self.on_their_way >= self.limit:
            msg = f"{self.limit} calls are waiting for an answer, which is the limit"
            raise BusyError(msg)
        self.on_their_way += 1
        for number in numbers:
            self.by_partition[number] += 1
        self._waiters.setdefault(call, []).append((waiter, numbers))

    def pop(self, call: bytes) -> list[Waiter]:
        """Return who waits for a call; they do so no more."""
        found = self._waiters.pop(call, None)
        if found is None:
            return []
        self.on_their_way -= len(found)
        for _, numbers in found:
            for number in numbers:
                self.by_partition[number] -= 1
        return [waiter for waiter, _ in found]

    def remove(self, call: bytes, waiter: Waiter) -> None:
        """Forget one who waits, whose record did not get into the log."""
        others = self._waiters.pop(call, [])
        for each, numbers in others:
            if each is not waiter:
                self._waiters.setdefault(call, []).append((each, numbers))
                continue
            self.on_their_way -= 1
            for number in numbers:
                self.by_partition[number] -= 1

    def all(self) -> Iterable[bytes]:
        """Return all calls that have no outcome."""
        return list(self._waiters)


def late(call: bytes, timeout: float | None) -> DeadlineError:
    """Return what a call gets that has no answer yet; it may still come."""
    return DeadlineError(f"the call {call.hex()} was not answered within {timeout} s")


def unknown(call: bytes, error: Exception) -> OutcomeUnknownError:
    """Return what a call gets whose host failed before it answered."""
    msg = f"the host failed before it answered the call {call.hex()}: {error}"
    found = OutcomeUnknownError(msg)
    found.__cause__ = error
    return found
