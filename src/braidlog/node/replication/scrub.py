"""Reads what is on the disk of a node before somebody needs it.

*Theory of operation.* A pass checks every sealed segment, in pieces, so that it takes a
bounded share of the disk and of the loop. Replicas that it finds damaged are repaired
by the others, as if a reader had come by it, and the log of the metadata repository by
a snapshot of what its entries did. A pass begins somewhere, by lot, and goes
around: a node that is often started does not always begin with the same.

The newest segment is left out: it is still being written. So is what the system has in
its page cache in place of the disk.

The idea is that of the scrub of ZFS and of the block scanner of HDFS.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from braidlog.errors import CorruptionError, UnavailableError
from braidlog.node.config import NodeConfig
from braidlog.node.replication.replicas import Replicas
from braidlog.store.node_store import NodeStore, ScrubPlace

_log = logging.getLogger(__name__)

_PIECE_BYTES: Final = (256 << 10, 4 << 20)
"""The least that is worth a call, and the most that the loop waits for."""
_OLDEST: Final[ScrubPlace] = (0, 0, 0)
_FIRST_S: Final = 600.0
"""After the start, when a node has other things to do."""
_AGAIN_S: Final = 60.0
"""After an error."""


@dataclass(slots=True)
class ScrubCounters:
    """Totals since the start."""

    scrubbed_bytes: int = 0
    scrub_passes: int = 0
    scrub_damages: int = 0


class Scrub:
    """Reads a piece from time to time."""

    def __init__(
        self,
        config: NodeConfig,
        store: NodeStore,
        replicas: Replicas,
        seed: str,
        mend: Callable[[set[int]], bool],
    ) -> None:
        """Prepare; nothing is read before the first tick.

        ``mend`` gets the damaged streams of the store that are no replicas, and tells
        whether it replaces what they have lost.
        """
        self._mend = mend
        self._store = store
        self._replicas = replicas
        self._rate = config.limits.scrub_bytes
        self._interval = config.timing.scrub_ms / 1000
        tick = config.timing.tick_ms / 1000
        least, most = _PIECE_BYTES
        self._piece = min(max(int(self._rate * tick), least), most)
        self._random = Random(seed)
        self._place: ScrubPlace | None = None
        self._begun = (0, 0.0)
        """The segment that the pass began with, and when."""
        self._around = False
        """Whether it has come to the newest segment and goes on with the oldest."""
        self._before = 0
        """The segment that it ends at, or turns around at."""
        self._told: set[tuple[str, int, frozenset[int]]] = set()
        self._due: float | None = None
        self.counters = ScrubCounters()

    def tick(self, now: float) -> None:
        """Let time pass: read the next piece if it is due."""
        if not self._rate:
            return
        if self._due is None:
            self._due = now + min(_FIRST_S, self._interval)
        if now < self._due:
            return
        self._due = now + _AGAIN_S
        try:
            self._read(now)
        except UnavailableError as error:
            _log.warning("the scrub of stored records cannot go on: %s", error)

    def _read(self, now: float) -> None:
        place = self._place or self._begin(now)
        seen = self._store.scrub(place, self._piece, before=self._before)
        if seen is None and not self._around:
            self._around, self._before = True, self._begun[0]
            seen = self._store.scrub(_OLDEST, self._piece, before=self._before)
        if seen is None:
            self._end(now)
            return
        self.counters.scrubbed_bytes += seen.bytes
        self._due = now + seen.bytes / self._rate
        self._place = seen.next
        if seen.damage is not None:
            self._tell(seen.damage, seen.lost)

    def _begin(self, now: float) -> ScrubPlace:
        stats = self._store.stats()
        newest = stats["newest_segment"]
        some = self._random.randrange(max(stats["segments"], 1))
        self._begun = max(newest - some, 0), now
        # What is written meanwhile is for the next pass, or this one might never end.
        self._around, self._before = False, newest
        return self._begun[0], 0, 0

    def _end(self, now: float) -> None:
        self.counters.scrub_passes += 1
        self._place = None
        self._due = max(now, self._begun[1] + self._interval)

    def _tell(self, damage: CorruptionError, lost: Mapping[int, int]) -> None:
        others = self._replicas.damaged(damage, lost)
        mends = bool(others) and self._mend(others)
        # It stays where it is until the segment is used again.
        place = damage.path, damage.offset, frozenset(others)
        if place in self._told:
            return
        self._told.add(place)
        self.counters.scrub_damages += 1
        if not lost:
            _log.error(
                "the scrub found damage in bytes that are no longer needed: %s",
                damage.message,
            )
        elif mends:
            _log.error(
                "the log of a Raft group on this node is damaged, and is replaced: %s",
                damage.message,
            )
        elif others:
            msg = (
                "the log of the metadata repository on this node is damaged; "
                "replace the node before it has to restart: %s"
            )
            _log.critical(msg, damage.message)
