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
        if known is not None and config.epoch < known.epoch:
            return
        if self.node in config.learners:
            if config.epoch > self.held.epoch:
                self._roll_back(config)
                self.held.epoch = config.epoch
                self.sync()
            self.state = ReplicaState.LEARNING
        elif config.epoch <= self.held.epoch and self.state is ReplicaState.STARTING:
            return
        elif known is None or config.epoch > known.epoch:
            if config.epoch > self.held.epoch:
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
        assert limit >= self.held.committed, "a committed record would be lost"
        del self.held.values[limit - 1 :]

    def enter(self) -> None:
        config = self.config
        if config is None or self.state is not ReplicaState.CATCHING_UP:
            return
        if self.held.epoch < config.epoch:
            self._roll_back(config)
            if self.held.committed < config.start:
                return
            assert self.held.committed == config.start, "more is committed than can be"
            self.held.epoch = config.epoch
            self.held.version = max(self.held.version, config.version)
            self.sync()
        sealed = config.status is StreamStatus.SEALED
        self.state = ReplicaState.SEALED if sealed else ReplicaState.RUNNING

    def commit(self, cut: LogCut) -> None:
        held = self.held
        if self.state is ReplicaState.STARTING or cut.version <= held.version:
            return
        if cut.version > held.version + 1:
            self.gap = True
            return
        for run in cut.runs:
            if run.stream != self.stream or run.llsn_begin < held.committed:
                continue
            end = run.llsn_begin + run.length
            if run.llsn_begin > held.committed or end > held.end:
                self.gap = True
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
            if other.epoch != mine.epoch or other.committed > mine.end:
                kept = []
            mine.values = other.values[: other.committed - 1] + kept
            mine.places = list(other.places)
            mine.version = other.version
            self.gap = False
        if source.primary and other.epoch == mine.epoch and mine.end < other.end:
            if self.state is ReplicaState.RUNNING:
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
