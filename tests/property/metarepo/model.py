"""Dumb replicas on a disk that forgets what was not synced."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

from braidlog.logstream.states import ReplicaState
from braidlog.wire.messages import (
    LogCut,
    StreamConfig,
    StreamReport,
    StreamStatus,
)


@dataclass
class Held:
    """What is on the disk of a replica, or in its memory."""

    log: bytes
    epoch: int = 0
    values: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    """GLSN of each committed value."""
    version: int = 0

    @property
    def committed(self) -> int:
        return len(self.places) + 1

    @property
    def end(self) -> int:
        return len(self.values) + 1


class Replica:
    """One replica: `held` is memory, `disk` what survives a crash."""

    def __init__(self, node: int, stream: int, log: bytes) -> None:
        self.node = node
        self.stream = stream
        self.held = Held(log)
        self.disk = Held(log)
        self.state = ReplicaState.STARTING
        self.config: StreamConfig | None = None
        self.gap = False

    def sync(self) -> None:
        self.disk = deepcopy(self.held)

    def restart(self) -> None:
        self.held = deepcopy(self.disk)
        self.state = ReplicaState.STARTING
        self.config = None
        self.gap = False

    @property
    def primary(self) -> bool:
        config = self.config
        return (
            config is not None
            and config.replicas[0] == self.node
            and self.state is ReplicaState.RUNNING
            and self.held.epoch == config.epoch
        )

    def configure(self, config: StreamConfig) -> None:
        known = self.config
        if config.epoch < max(self.held.epoch, known.epoch if known else 0):
            return
        if self.node in config.learners:
            if config.epoch > self.held.epoch:
                self._roll_back(config)
                self.held.epoch = config.epoch
                self.sync()
            self.state = ReplicaState.LEARNING
        elif config.epoch <= self.held.epoch and self.state is ReplicaState.STARTING:
            return
        elif config.epoch > self.held.epoch:
            self.state = ReplicaState.CATCHING_UP
        self.config = config
        self.enter()

    def _roll_back(self, config: StreamConfig) -> None:
        """Drop what an epoch that was missed did not keep."""
        starts = dict(config.epochs) | {config.epoch: config.start}
        if self.held.epoch and self.held.epoch not in starts:
            limit = self.held.committed
        else:
            later = [
                start for epoch, start in starts.items() if epoch > self.held.epoch
            ]
            limit = min(later)
        # What is known to be committed stays: it may be of an epoch not heard of.
        del self.held.values[max(limit, self.held.committed) - 1 :]

    def enter(self) -> None:
        config = self.config
        if config is None or self.state is not ReplicaState.CATCHING_UP:
            return
        if self.held.epoch < config.epoch:
            self._roll_back(config)
            # Behind: fetch first. Ahead: there is a newer epoch to hear of.
            if self.held.committed != config.start:
                return
            self.held.epoch = config.epoch
            self.held.version = max(self.held.version, config.version)
            self.sync()
        sealed = config.status is StreamStatus.SEALED
        self.state = ReplicaState.SEALED if sealed else ReplicaState.RUNNING

    def commit(self, cut: LogCut) -> None:
        held = self.held
        if self.state is ReplicaState.STARTING or cut.version <= held.version:
            return
        run = next((run for run in cut.runs if run.stream == self.stream), None)
        if run is None:
            self.gap = cut.version > held.version + 1
            if self.gap:
                return
        elif run.llsn_begin + run.length > held.committed:
            end = run.llsn_begin + run.length
            fits = run.llsn_begin == held.committed and end <= held.end
            self.gap = not fits or run.epoch != held.epoch
            if self.gap:
                return
            held.places += range(run.glsn_begin, run.glsn_begin + run.length)
        held.version = cut.version
        self.enter()

    def fetch(self, source: Replica) -> None:
        """Take what is committed at another replica, and the tail of the primary."""
        mine, other = self.held, source.held
        if source.state is ReplicaState.STARTING or self.config is None:
            return
        if other.version >= mine.version and other.committed >= mine.committed:
            kept = mine.values[other.committed - 1 :]
            if other.epoch > mine.epoch:
                kept = []
            mine.values = other.values[: other.committed - 1] + kept
            mine.places = list(other.places)
            mine.version = other.version
            self.gap = False
        same = source.primary and other.epoch == mine.epoch
        if same and self.state is ReplicaState.RUNNING and mine.end < other.end:
            mine.values += other.values[mine.end - 1 :]
        self.enter()

    def report(self) -> StreamReport:
        return StreamReport(
            stream=self.stream,
            epoch=self.disk.epoch,
            version=self.disk.version,
            committed=self.held.committed,
            end=min(self.disk.end, self.held.end),
            state=self.state,
        )
