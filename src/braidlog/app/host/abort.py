"""Giving a command up: the log says so, then it ends in the same way on every host.

*Theory of operation.* The watchdog stops a command in the middle. The host takes back
what it has not committed and looks in the log behind the command for an ABORT entry.
The active host appends one if there is none; of several the first counts, and one that
a host wrote after another was made active does not (`epochs`). So whether this host is
the active one is asked of all of the log, and not of what was applied. A standby waits
for the entry of the active host, and now and then tries the command again with more
time: where the active host executed it to its end there will be no entry. What was read
on the way is kept, because a log is read in its order.

*Invariant.* No command is given up before an entry that says so is durable.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from braidlog.app.errors import GivenUpError
from braidlog.app.execution.entries import AbortEntry, pack, unpack
from braidlog.app.execution.epochs import Aborts, Terms
from braidlog.app.execution.record import RecordLike
from braidlog.app.host.role import Role
from braidlog.app.host.watchdog import WATCHDOG_S, Watchdog
from braidlog.app.log.source import CommandLog

_log = logging.getLogger(__name__)

_ROUND: Final = 1024
# How often a standby looks whether it is told to stop, or is made active.
_LOOK_S: Final = 0.2
# A standby gives a command up to so many times the time of the first try.
_PATIENCE_MAX: Final = 4


class ReadAhead:
    """The records of a log in their order, some of which were read ahead."""

    def __init__(self, log: CommandLog) -> None:
        """Read from a log; nobody else does."""
        self._log = log
        self._kept: deque[RecordLike] = deque()
        self._seen = Aborts()
        self._looked = 0  # Up to where `_seen` has what was kept.

    def read(self, begin: int, limit: int) -> list[RecordLike]:
        """Return records from ``begin`` on, as `CommandLog.read`."""
        while self._kept and self._kept[0].position < begin:
            self._kept.popleft()
        if not self._kept:
            return list(self._log.read(begin, limit))
        return [self._kept.popleft() for _ in range(min(limit, len(self._kept)))]

    def put_back(self, records: Iterable[RecordLike]) -> None:
        """Have records read again; they are those that were read last."""
        self._kept.extendleft(reversed(list(records)))

    def look(self, end: int, stop: Callable[[], bool]) -> None:
        """Read on until ``end``, unless ``stop`` says so, and keep what was read."""
        for record in self._kept:
            self._take(record)
        begin = max(self._looked + 1, self._kept[-1].position + 1 if self._kept else 0)
        while begin < end and not stop():
            if not self._log.wait(begin, _LOOK_S):
                continue
            records = list(self._log.read(begin, _ROUND))
            self._kept.extend(records)
            for record in records:
                self._take(record)
                begin = record.position + 1

    def _take(self, record: RecordLike) -> None:
        if record.position > self._looked:
            self._looked = record.position
            entry = unpack(record.value, record.position)
            self._seen.add(record.position, entry)

    def aborted(self, position: int, before: Terms) -> AbortEntry | None:
        """Return the first entry that counts and gives up ``position``."""
        return self._seen.find(position, before)

    def terms(self, before: Terms) -> Terms:
        """Return who was active when, up to where `look` came."""
        return self._seen.terms(before)


class Aborter:
    """Decides what becomes of the commands that the watchdog stopped."""

    def __init__(
        self,
        log: CommandLog,
        ahead: ReadAhead,
        seconds: float | None,
        closing: Callable[[], bool],
        ended: Callable[[], bool],
    ) -> None:
        """Watch commands, unless ``seconds`` is None.

        Nobody waits for others when the host is ``closing``, nor for the log when it
        has ``ended``.
        """
        self._log = log
        self._ahead = ahead
        self._closing = closing
        self._ended = ended
        # Without a watchdog a command may still run out of memory.
        self._seconds = WATCHDOG_S if seconds is None else seconds
        self.watchdog = Watchdog(seconds) if seconds is not None else None
        self._claiming = threading.Event()
        self.given_up: dict[int, str] = {}

    @contextlib.contextmanager
    def claiming(self, active: bool) -> Iterator[None]:  # noqa: FBT001, RUF100
        """Have this host append entries already: it is being made ``active``."""
        if active:
            self._claiming.set()
        try:
            yield
        finally:
            self._claiming.clear()

    def decide(self, stopped: GivenUpError, role: Role) -> None:
        """Return when the command may be tried again: given up, or with more time.

        Raises:
            GivenUpError: the host is being closed: it is tried again at the next start.
            LogError: the log could not be asked, or not be appended to.
        """
        position = stopped.position
        reason = stopped.reason or f"it took more than {self._seconds:g} s"
        _log.warning("the watchdog stopped the command at %d: %s", position, reason)
        found = self._look(position, role)
        entitled = found is None and self._entitled(role)
        if found is None and not entitled:
            found = self._wait(position, role)
            entitled = found is None and self._entitled(role)
        if entitled and not self._ended():
            at = self._log.append(pack(AbortEntry(position, reason, role.claimed)))
            # Another entry may have come before it, or another active host.
            self._ahead.look(at + 1, self._ended)
            found = self._ahead.aborted(position, role.terms)
        if found is None and (self._ended() or (self._closing() and not entitled)):
            raise stopped
        if found is not None:
            self.given_up[position] = found.reason
            self._allow(self._seconds)

    def _entitled(self, role: Role) -> bool:
        """Whether this host is the active one at the end of what was read."""
        terms = self._ahead.terms(role.terms)
        if role.holds(terms):
            return True
        if not self._claiming.is_set() or self._ended():
            return False
        # It is about to be the active one, but for this command: it says so first, and
        # in its term gives the command up.
        at = role.claim(terms.last.epoch)
        self._ahead.look(at + 1, self._ended)
        if role.holds(self._ahead.terms(role.terms)):
            return True
        self._claiming.clear()  # Another one was faster: it decides.
        return False

    def _look(self, position: int, role: Role) -> AbortEntry | None:
        self._ahead.look(self._log.latest(), self._ended)
        return self._ahead.aborted(position, role.terms)

    def _wait(self, position: int, role: Role) -> AbortEntry | None:
        """Wait for the active host, as long as the command had; then give it more."""
        allowed = self._seconds if self.watchdog is None else self.watchdog.seconds
        deadline = time.monotonic() + max(allowed, _LOOK_S)
        while time.monotonic() < deadline and not self._closing():
            if (found := self._look(position, role)) is not None:
                return found
            if self._claiming.wait(_LOOK_S):
                return None
        _log.warning(
            "no host aborted the command at %d; it is executed again", position
        )
        self._allow(min(self._seconds * _PATIENCE_MAX, allowed * 2))
        return None

    def _allow(self, seconds: float) -> None:
        if self.watchdog is not None:
            self.watchdog.seconds = seconds

    def close(self) -> None:
        """End the watchdog."""
        if self.watchdog is not None:
            self.watchdog.close()
