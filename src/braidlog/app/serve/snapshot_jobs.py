"""Snapshots that somebody elsewhere asks a host for: one at a time, in a thread."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from braidlog.app.snapshots.files import Snapshot
from braidlog.errors import CorruptionError, LogError, NotFoundError
from braidlog.store.threads import start_thread
from braidlog.wire.messages import SnapshotProgress, TakeSnapshot

if TYPE_CHECKING:
    from braidlog.app.host.host import Host

# An answer comes after so long even if the snapshot is not there.
_WAIT_S: Final = 0.5


class _Job:
    """One snapshot, from when it was asked for."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ended = threading.Event()
        self.done = self.total = 0
        self.first = 0
        self.snapshot: Snapshot | None = None
        self.error: LogError | None = None

    def progress(self, done: int, total: int) -> None:
        self.done, self.total = done, total

    def said(self) -> SnapshotProgress:
        taken = self.snapshot
        if taken is None:
            return SnapshotProgress(self.number, self.done, self.total)
        return SnapshotProgress(
            self.number,
            self.total,
            self.total,
            number=taken.number,
            position=taken.position,
            bytes=taken.size,
            took_us=int(taken.seconds * 1_000_000),
            first=self.first,
        )


class SnapshotJobs:
    """Has a host take snapshots. Safe to use from many threads."""

    def __init__(self, host: Host) -> None:
        """Take none yet."""
        self._host = host
        self._lock = threading.Lock()
        self._job: _Job | None = None

    def ask(self, asked: TakeSnapshot) -> SnapshotProgress:
        """Begin a snapshot, or wait a moment for the one that was begun.

        Raises:
            NotFoundError: this is not the process that was asked before.
            SnapshotFailedError: it was not taken; nothing was trimmed.
            LogError: the host takes no snapshots.
        """
        job = self._found(asked.job)
        job.ended.wait(_WAIT_S)
        if job.error is not None:
            raise job.error
        return job.said()

    def _found(self, number: int) -> _Job:
        with self._lock:
            job = self._job
            if number == 0:
                if job is None or job.ended.is_set():
                    job = self._begin(1 if job is None else job.number + 1)
            elif job is None or job.number != number:
                raise NotFoundError(
                    f"the host knows no snapshot job {number}, perhaps because it was "
                    "restarted: ask for a snapshot again"
                )
            return job

    def _begin(self, number: int) -> _Job:
        self._host.snapshot_status()  # It may be a host that takes none.
        job = _Job(number)
        start_thread("braidlog-snapshot", partial(self._take, job))
        self._job = job
        return job

    def _take(self, job: _Job) -> None:
        try:
            job.snapshot = self._host.snapshot(job.progress)
            job.first = self._host.runner.known.start
        except LogError as error:
            job.error = error
        except Exception as error:  # Who asked hears of it; there is nobody else.
            job.error = CorruptionError(
                f"the host failed while it took a snapshot: {error!r}"
            )
        finally:
            job.ended.set()
