"""Snapshots of a running host: when they are taken, and what follows from them.

*Theory of operation.* `Runner.mark` opens a view of each partition between two
commands; everything else happens beside the writers. `SnapshotFiles.write` stores,
reads back and lists. Only then the host says in the log how far its snapshots reach
(a named cursor), and trims: to the position that `snapshots_min` hosts have, not beyond
what a pin holds, and not before the files were read once more. Older snapshots go last.
Of hosts that share a log each takes its own; the active one alone trims, or one that is
only not active because the log has no room to say so.

*Invariants.* The log and any snapshot that is kept have no gap. A failure of any step
is the failure of the snapshot: nothing makes a success of it later. Whatever fails here
never stops the host.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from braidlog.app.errors import (
    LogBoundError,
    SnapshotDamagedError,
    SnapshotFailedError,
)
from braidlog.app.execution.executor import Executor
from braidlog.app.execution.outcome import Outcome
from braidlog.app.execution.record import RecordLike
from braidlog.app.execution.state import State
from braidlog.app.log.cursors import SNAPSHOT
from braidlog.app.log.source import TrimmableLog
from braidlog.app.snapshots.files import Progress, Snapshot, SnapshotFiles, close_all
from braidlog.app.snapshots.live_state import LiveState
from braidlog.app.snapshots.policy import (
    Level,
    Meter,
    Schedule,
    SnapshotSettings,
    judge,
    reach,
)
from braidlog.app.snapshots.restore import usable
from braidlog.errors import ClosedError, LogError
from braidlog.store.threads import start_thread

_log = logging.getLogger(__name__)

# What a record has in the log beside its value, about.
_RECORD_BYTES: Final = 40
# How often a trim that somebody held up is tried again.
_IDLE_S: Final = 1.0


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class SnapshotStatus:
    """How far the log has grown, and what is wrong, if anything is."""

    level: Level
    bytes_since: int
    """Bytes of log since the newest snapshot."""
    seconds_since: float
    """Estimated seconds to replay them."""
    bytes_kept: int
    """Bytes of log that were not trimmed."""
    snapshots: int
    """Snapshots that can be used."""
    taken: int
    """Snapshots taken since the host was opened."""
    refused: int
    """Calls refused at the hard mark since the host was opened."""
    failures: int
    """Attempts that failed since the last that did not."""
    alarms: tuple[str, ...]
    """What an operator has to look at."""


class Gauge(Protocol):
    """Who watches how far the log has grown."""

    def admit(self) -> None:
        """Let a call pass to the log, or raise a `BusyError`."""

    def feed(self, executor: Executor, records: Iterable[RecordLike]) -> list[Outcome]:
        """Execute records, and note how large they were and how long they took."""


class Snapshotter:
    """Takes snapshots, trims the log, and refuses calls at the hard mark."""

    def __init__(
        self,
        log: TrimmableLog,
        state: State,
        files: SnapshotFiles,
        settings: SnapshotSettings,
        position: int,
        *,
        unpin: Callable[[], None] = _nothing,
        patience_s: float = 0.0,
        lease_s: float | None = None,
    ) -> None:
        """Take over the directory; ``position`` is that of the state.

        ``unpin`` lets go of what this host itself keeps of the log and needs no more.
        Others may hold the log for ``patience_s`` before that is an alarm. What this
        host says of its snapshots counts for ``lease_s`` from each `renew` on.
        """
        self._log, self._state, self._files = log, state, files
        self._settings = settings.within(log.capacity)
        self._unpin, self._patience_s = unpin, patience_s
        self._lease_s = lease_s
        self._cursor = f"{SNAPSHOT}{files.host}"
        self._held: tuple[float, str] | None = None
        self._said = 0
        self._runner: LiveState | None = None
        self._active = True
        self._behind = False  # The log would go further if others had a newer one.
        self._taking = threading.Lock()
        self._lock = threading.Lock()  # Of the level and of what it follows from.
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._schedule = Schedule(self._settings.pause_seconds)
        self._alarms: dict[str, str] = {}
        self._taken = self._refused = 0
        self._first = log.first
        sound = [each for each in files.listed() if each.number not in files.damaged]
        self._usable = usable(sound, self._first, log.latest())[::-1]
        if files.damaged:
            self._alarms["damaged"] = f"snapshots {sorted(files.damaged)} are damaged"
        self._meter = Meter(self._first - 1)
        rate = self._usable[-1].rate if self._usable else 0.0
        size = log.size(self._first, position + 1)
        if position >= self._first:
            self._meter.add(position, size, rate * (position - self._first + 1))
        self._records, self._spent = 0, 0.0
        self._rate = rate
        self._level = Level.OPEN
        self._judge()

    # -- what the runner tells and asks ------------------------------------------

    def admit(self) -> None:
        """Let a call pass to the log.

        Raises:
            LogBoundError: the log is at the hard mark.
        """
        if self._level < Level.FULL:
            return
        self._refused += 1
        self._wake.set()
        status = self.status()
        raise LogBoundError(
            f"the log has {status.bytes_kept} bytes and {status.seconds_since:.1f} s of"
            f" replay; the hard marks are {self._settings.hard_bytes} bytes and"
            f" {self._settings.hard_seconds} s"
        )

    def feed(self, executor: Executor, records: Iterable[RecordLike]) -> list[Outcome]:
        """Execute records, and count them. Used by one thread at a time."""
        batch = list(records)
        began = time.monotonic()
        outcomes = executor.feed(batch)
        seconds = time.monotonic() - began
        size = sum([len(record.value or b"") for record in batch])
        self._executed(executor.position, size, len(batch), seconds)
        return outcomes

    def _executed(self, position: int, size: int, count: int, seconds: float) -> None:
        self._records += count
        self._spent += seconds
        with self._lock:
            self._meter.add(position, size + _RECORD_BYTES * count, seconds)
            before, level = self._level, self._judge()
        if level > before:
            self._wake.set()

    def _judge(self) -> Level:
        newest = self._usable[-1].position if self._usable else 0
        self._level = judge(self._settings, self._meter, newest, self._first)
        return self._level

    # -- snapshots ---------------------------------------------------------------

    def start(self, runner: LiveState) -> None:
        """Begin to take snapshots of what ``runner`` executes."""
        self._runner = runner
        self._try("reserve", self._reserve)
        if self._settings.automatic:
            self._thread = start_thread("braidlog-snapshots", self._serve)

    def take(self, progress: Progress | None = None) -> Snapshot:
        """Take a snapshot, and trim the log as far as it allows.

        Raises:
            SnapshotFailedError: it was not taken; nothing was trimmed.
        """
        with self._taking:
            self._check_open()
            self._schedule.begin(time.monotonic())
            try:
                snapshot = self._write(progress)
            except Exception as error:
                self._schedule.fail(time.monotonic())
                # SQLite says of a copy only by the type what was wrong.
                msg = f"the snapshot failed: {type(error).__name__}: {error}"
                self._alarm("snapshot", msg)
                self._try("trash", self._files.collect)
                self._try("reserve", self._reserve)
                raise SnapshotFailedError(msg) from error
            self._alarm("snapshot", None)
            self._taken += 1
            with self._lock:
                self._usable = [*self._usable, snapshot]
                self._judge()
            self._try("trim", self._let_go)
            self._try("reserve", self._reserve)
            self._schedule.succeed(time.monotonic(), self._level)
            loop = "snapshots follow one another without a pause: raise the soft marks"
            self._alarm("loop", loop if self._schedule.looping else None)
            return snapshot

    def _check_open(self) -> None:
        if self._closing or self._runner is None:
            raise ClosedError("the host is closed")

    def _write(self, progress: Progress | None) -> Snapshot:
        assert self._runner is not None, "checked by the caller"
        self._files.collect()
        rate = self._spent / self._records if self._records else self._rate
        self._files.step("mark")
        image = self._runner.mark()
        with close_all(image.views):
            image.facts["log"] = self._log.identity
            return self._files.write(image, self._state, rate, progress)

    def snapshots(self) -> list[Snapshot]:
        """Return those that can be used, the oldest first."""
        with self._lock:
            return list(self._usable)

    # -- trimming ----------------------------------------------------------------

    def _let_go(self) -> None:
        """Trim the log to the snapshots that are kept, then remove the others."""
        with self._lock:
            positions = [each.position for each in self._usable]
            target = reach(self._settings, self._meter, positions)
            if self._waiting() and positions:
                target = positions[-1]  # The log is full, whatever the meter says.
        if target is None:
            return
        kept = [each for each in self._usable if each.position >= target]
        first = self._log.first
        reaching = [each for each in kept if each.position + 1 >= first]
        if reaching:
            self._say(target, reaching)
            self._trim(target, reaching)
        self._files.remove(
            [
                each.number
                for each in self._files.listed()
                if each.number not in {one.number for one in kept}
            ]
        )
        self._alarm("damaged", None)
        with self._lock:
            self._usable = kept
            self._follow()

    def _follow(self) -> None:
        """Note where the log begins now: another host may have trimmed it."""
        self._first = self._log.first
        self._usable = [e for e in self._usable if e.position + 1 >= self._first]
        self._meter.forget(self._first - 1)
        self._judge()

    def _say(self, target: int, kept: list[Snapshot]) -> None:
        """Say in the log up to where this host has snapshots, when they were read."""
        if self._log.cursors().get(self._cursor) == target + 1:
            return
        self._verify(kept)
        self._said = target + 1
        self._files.step("cursor")
        self._log.set_cursor(self._cursor, target + 1, self._lease_s)
        self._unpin()

    def renew(self) -> None:
        """Have the snapshots of this host count for another lease.

        Raises:
            LogError: that could not be stored.
        """
        at = self._log.cursors().get(self._cursor)
        newest = max((each.position for each in self.snapshots()), default=0)
        if at is not None and newest + 1 >= at:
            self._log.set_cursor(self._cursor, at, self._lease_s)
        elif newest and self._runner is not None and self._taking.acquire(False):
            # It was away for longer than that: its files are read, then it says so.
            try:
                if not self._closing:
                    self._try("trim", self._let_go)
            finally:
                self._taking.release()

    def _trim(self, target: int, kept: list[Snapshot]) -> None:
        if not self._trims():
            self._hold(None)
            self._behind = False
            return
        cursors = self._log.cursors()
        hosts = sorted(at for each, at in cursors.items() if each.startswith(SNAPSHOT))
        wanted = self._settings.snapshots_min
        if len(hosts) < wanted:
            had = f"{len(hosts)} of {wanted} hosts have a snapshot: the log is kept"
            self._hold(had)
            return
        before = min(target + 1, hosts[-wanted])
        first, pin = self._log.first, self._log.pinned()
        if first < (before if pin is None else min(before, pin)):
            if self._said != target + 1:
                self._verify(kept)  # It may be long since.
            self._said = 0
            self._files.step("trim")
            first = self._log.trim(before)
            self._files.step("trimmed")
        held = f"the log is kept from {first} on for others, {before} was asked for"
        self._hold(held if first < before else None)
        self._behind = first <= target

    def _trims(self) -> bool:
        assert self._runner is not None, "nothing is taken before it starts"
        role = self._runner.role
        return role.active or role.waiting

    def _hold(self, why: str | None) -> None:
        """Note that others hold the log; an alarm if it lasts."""
        now = time.monotonic()
        since = self._held[0] if self._held is not None else now
        self._held = None if why is None else (since, why)
        self._alarm("held", why if now - since >= self._patience_s else None)

    def _verify(self, kept: list[Snapshot]) -> None:
        for snapshot in kept:
            self._verify_one(snapshot)

    def _verify_one(self, snapshot: Snapshot) -> None:
        try:
            self._files.verify(snapshot)
        except SnapshotDamagedError as error:
            # Not believed any more, nor removed: it may be all that there is.
            with self._lock:
                self._usable = [each for each in self._usable if each != snapshot]
                self._judge()
            self._alarm("damaged", f"snapshot {snapshot.number} is damaged: {error}")
            raise

    # -- the thread --------------------------------------------------------------

    def _serve(self) -> None:
        while not self._closing:
            self._wake.wait(_IDLE_S)
            self._wake.clear()
            pause = self._schedule.wait(time.monotonic())
            self._look()
            if not self._asked():
                self._retry_trim()
            elif pause > 0:
                # Throttled: the calls go on up to the hard mark.
                self._stop.wait(min(pause, _IDLE_S))
                self._wake.set()
            else:
                self._automatic()

    def _waiting(self) -> bool:
        return self._runner is not None and self._runner.role.waiting

    def _asked(self) -> bool:
        """Whether a snapshot is asked for, and would change anything."""
        with self._lock:
            newest = self._usable[-1].position if self._usable else 0
            if self._meter.position <= newest:
                return False
            size, seconds = self._meter.since(max(newest, self._first - 1))
            soft = (self._settings.soft_bytes, self._settings.soft_seconds)
            if size >= soft[0] or seconds >= soft[1] or "damaged" in self._alarms:
                return True
            # Full of what others hold: another snapshot would give nothing back.
            full = self._level == Level.FULL or self._waiting()
            return full and self._held is None

    def _automatic(self) -> None:
        try:
            self.take()
        except (SnapshotFailedError, ClosedError):
            return  # It was said, and the schedule says when to try again.
        if self._asked():
            self._wake.set()

    def _look(self) -> None:
        """Notice what other hosts did: a trim, or that this one is active now."""
        assert self._runner is not None, "the thread begins with it"
        with self._lock:
            if self._log.first != self._first:
                self._follow()
        active = self._trims()
        if active and not self._active and self._usable:
            self._behind = True
        self._active = active

    def _retry_trim(self) -> None:
        held = self._held is not None or self._behind or "trim" in self._alarms
        if held or self._waiting():
            with self._taking:
                if not self._closing:
                    self._try("trim", self._let_go)

    # -- what is wrong -----------------------------------------------------------

    def _try(self, what: str, action: Callable[[], None]) -> None:
        """Do what may fail without consequence for the snapshot; say so if it does."""
        try:
            action()
        except (OSError, LogError) as error:
            self._alarm(what, f"{what}: {error}")
        else:
            self._alarm(what, None)

    def _alarm(self, what: str, message: str | None) -> None:
        with self._lock:
            before = self._alarms.pop(what, None)
            if message is not None:
                self._alarms[what] = message
        if message is not None and message != before:
            _log.warning("%s", message)

    def _reserve(self) -> None:
        last = self._usable[-1].size if self._usable else 0
        self._files.reserve(max(2 * last, self._settings.reserve_bytes))

    def status(self) -> SnapshotStatus:
        """Return how far the log has grown, and what is wrong."""
        with self._lock:
            newest = self._usable[-1].position if self._usable else 0
            since = self._meter.since(max(newest, self._first - 1))
            return SnapshotStatus(
                level=self._level,
                bytes_since=since[0],
                seconds_since=since[1],
                bytes_kept=self._meter.since(self._first - 1)[0],
                snapshots=len(self._usable),
                taken=self._taken,
                refused=self._refused,
                failures=self._schedule.failures,
                alarms=tuple(self._alarms.values()),
            )

    def close(self) -> None:
        """Let a snapshot that is being taken end, and take no more."""
        self._closing = True
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        with self._taking:
            self._files.close()
