"""When a snapshot is asked for, and when calls have to wait for one. Pure.

*Theory of operation.* A `Meter` knows how many bytes of log and how many seconds of
execution lie behind a position. The soft mark is about what came since the newest
snapshot: what a replay would have to execute. The hard mark is about the same seconds,
and about the bytes of all of the log that is kept. A `Schedule` says when the next
attempt may begin: not at once after a failure, and not more than half of the time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from operator import itemgetter
from typing import Final

from braidlog.errors import InvalidArgumentError

# Samples of the meter are this many bytes apart: an error nobody minds.
_SAMPLE_BYTES: Final = 1 << 18
# A log that is bounded itself: when to ask, and when to refuse, as parts of its bound.
_SOFT_PART: Final = 8
_HARD_PART: Final = 3 / 4
# Pauses between attempts that fail double up to this.
_BACKOFF_MAX_S: Final = 60.0
# So many snapshots one after the other are a loop: the marks are too low for the load.
_LOOP: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSettings:
    """When snapshots are taken, how many are kept, and when calls are refused."""

    automatic: bool = True
    """Take a snapshot when the log passes a soft mark."""
    soft_bytes: int = 256 << 20
    """Bytes of log since the newest snapshot that ask for the next one."""
    hard_bytes: int = 1 << 30
    """Bytes of log kept at which calls are refused."""
    soft_seconds: float = 30.0
    """Seconds of estimated replay since the newest snapshot that ask for the next."""
    hard_seconds: float = 300.0
    """Seconds of estimated replay since the newest snapshot that refuse calls."""
    kept: int = 2
    """Snapshots that are kept, with the log from the oldest of them on."""
    snapshots_min: int = 1
    """Hosts that must have a snapshot before the log is trimmed up to it."""
    reserve_bytes: int = 16 << 20
    """Disk space to keep free for the next snapshot, at least."""
    pause_seconds: float = 1.0
    """Seconds between an automatic snapshot and the next one, at least."""

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            InvalidArgumentError: a hard mark is not above the soft one, or a number is
                out of range.
        """
        ordered = (
            0 < self.soft_bytes < self.hard_bytes
            and 0 < self.soft_seconds < self.hard_seconds
        )
        least = min(self.kept, self.snapshots_min)
        if not ordered or least < 1 or min(self.reserve_bytes, self.pause_seconds) < 0:
            msg = f"soft marks must be above 0 and below the hard marks, in {self}"
            raise InvalidArgumentError(msg)

    def within(self, capacity: int | None) -> SnapshotSettings:
        """Return marks that lie below the bound of the log itself."""
        if capacity is None:
            return self
        return replace(
            self,
            soft_bytes=max(1, min(self.soft_bytes, capacity // _SOFT_PART)),
            hard_bytes=max(2, min(self.hard_bytes, int(capacity * _HARD_PART))),
        )


class Level(IntEnum):
    """How far the log has grown."""

    OPEN = 0
    SNAPSHOT = 1
    """The soft mark: a snapshot is asked for."""
    FULL = 2
    """The hard mark: calls are refused before they get a position."""


class Meter:
    """Bytes of log and seconds of execution up to positions; between samples a line.

    One thread adds. Others may ask meanwhile: samples are only ever appended, or
    replaced as a whole.
    """

    def __init__(self, position: int) -> None:
        """Begin with nothing at ``position``."""
        self._samples: list[tuple[int, int, float]] = [(position, 0, 0.0)]
        self._now = self._samples[0]

    @property
    def position(self) -> int:
        """The last one that was added."""
        return self._now[0]

    def add(self, position: int, size: int, seconds: float) -> None:
        """Count what came since the last call, up to ``position``."""
        _, total, spent = self._now
        self._now = position, total + size, spent + seconds
        if self._now[1] - self._samples[-1][1] >= _SAMPLE_BYTES:
            self._samples.append(self._now)

    def forget(self, position: int) -> None:
        """Let go of what nobody asks about below ``position``."""
        index = bisect_left(self._samples, position, key=itemgetter(0))
        self._samples = self._samples[max(0, index - 1) :]

    def since(self, position: int) -> tuple[int, float]:
        """Return bytes and seconds above ``position``."""
        at, size, seconds = self._now
        if position >= at:
            return 0, 0.0
        low, high = self._around(position)
        part = 0.0 if high[0] == low[0] else (position - low[0]) / (high[0] - low[0])
        part = max(0.0, part)
        below = low[1] + part * (high[1] - low[1])
        spent = low[2] + part * (high[2] - low[2])
        return int(size - below), seconds - spent

    def _around(
        self, position: int
    ) -> tuple[tuple[int, int, float], tuple[int, int, float]]:
        samples = self._samples
        index = bisect_left(samples, position, key=itemgetter(0))
        high = samples[index] if index < len(samples) else self._now
        return samples[max(0, index - 1)], high


def judge(settings: SnapshotSettings, meter: Meter, newest: int, first: int) -> Level:
    """Return how far the log has grown.

    ``newest`` is the position of the newest snapshot (0 without one), ``first`` the
    first position that the log has.
    """
    kept, _ = meter.since(first - 1)
    size, seconds = meter.since(max(newest, first - 1))
    if kept >= settings.hard_bytes or seconds >= settings.hard_seconds:
        return Level.FULL
    if size >= settings.soft_bytes or seconds >= settings.soft_seconds:
        return Level.SNAPSHOT
    return Level.OPEN


def reach(
    settings: SnapshotSettings, meter: Meter, positions: Sequence[int]
) -> int | None:
    """Return the snapshot to which the log may go, of positions in rising order.

    The oldest of those that are kept, so that the others have the log that they need
    if the newest is damaged; a newer one where the log would stay full otherwise. None
    without a snapshot.
    """
    for position in positions[-settings.kept :]:
        if meter.since(position)[0] < settings.hard_bytes:
            return position
    return positions[-1] if positions else None


class Schedule:
    """When the next automatic snapshot may begin; the time is passed in."""

    def __init__(self, pause: float) -> None:
        """Begin without a pause."""
        self._pause = pause
        self._not_before = 0.0
        self._began = 0.0
        self._in_a_row = 0
        self.failures = 0
        """Attempts that failed since the last that did not."""

    def wait(self, now: float) -> float:
        """Return how many seconds an attempt has to wait."""
        return max(0.0, self._not_before - now)

    def begin(self, now: float) -> None:
        """Note that an attempt begins."""
        self._began = now

    def succeed(self, now: float, level: Level) -> None:
        """Note that a snapshot is there; ``level`` is that of now."""
        self.failures = 0
        self._in_a_row = self._in_a_row + 1 if level > Level.OPEN else 0
        self._not_before = now + max(self._pause, now - self._began)

    def fail(self, now: float) -> None:
        """Note that an attempt failed: the next one waits, longer each time."""
        self.failures += 1
        pause = max(self._pause, 0.1) * 2.0 ** min(self.failures - 1, 16)
        self._not_before = now + min(_BACKOFF_MAX_S, pause)

    @property
    def looping(self) -> bool:
        """Whether each snapshot was behind the soft mark when it was done."""
        return self._in_a_row >= _LOOP
