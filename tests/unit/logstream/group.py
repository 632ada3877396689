"""Replicas of one stream, their disks and the messages between them.

Node 0 is the metadata repository. Nothing arrives before it is delivered.
"""

from __future__ import annotations

from typing import Any

from braidlog.errors import LogError
from braidlog.logstream import Limits, Replica, ReplicaState
from braidlog.logstream.storage import Batch
from braidlog.wire.messages import (
    Appended,
    Entries,
    Fetch,
    LogCut,
    Replicate,
    StreamConfig,
    StreamReport,
)
from unit.logstream.memory import MemoryStorage
from unit.logstream.repository import STREAM, Repository

Letter = tuple[int, int, Any, tuple[Batch, ...]]
LIMITS = Limits(
    uncommitted_bytes_max=4096,
    fetch_bytes_max=100,
    fetch_timeout=2,
    poll_interval=1,
    probe_interval=2,
    asks_max=2,
)


class Group:
    """Replicas, a repository, and letters on their way."""

    def __init__(
        self,
        replicas: tuple[int, ...],
        learners: tuple[int, ...] = (),
        others: tuple[int, ...] = (),
        limits: Limits = LIMITS,
    ) -> None:
        self.limits = limits
        self.repository = Repository(replicas, learners)
        self.disks: dict[int, MemoryStorage] = {}
        self.replicas: dict[int, Replica] = {}
        self.letters: list[Letter] = []
        self.answers: list[tuple[Any, Appended | LogError]] = []
        self.now = 0.0
        for node in (*replicas, *learners, *others):
            self.start(node, MemoryStorage())

    # --- nodes

    def start(self, node: int, disk: MemoryStorage) -> None:
        self.disks[node] = disk
        self.replicas[node] = Replica(node, STREAM, disk, self.limits)
        self.take(node)

    def crash(self, node: int, kept: int = 0) -> None:
        del self.replicas[node]
        self.disks[node] = self.disks[node].crash(kept)

    def take(self, node: int) -> None:
        """Take the effects of a replica."""
        effects = self.replicas[node].effects()
        for peer, message, batches in effects.messages:
            self.letters.append((node, peer, message, batches))
        self.answers += effects.answers
        if effects.report is not None:
            self.letters.append((node, 0, effects.report, ()))

    def sync(self, node: int) -> None:
        self.replicas[node].synced(self.disks[node].sync())
        self.take(node)

    def tick(self, node: int, seconds: float = 1.0) -> None:
        self.now += seconds
        self.replicas[node].tick(self.now)
        self.take(node)

    def append(self, node: int, *group: tuple[Any, int, Batch]) -> None:
        self.replicas[node].append(group)
        self.take(node)

    # --- repository

    def configure(self, *nodes: int) -> None:
        """Send the configuration."""
        for node in nodes or tuple(self.replicas):
            self.letters.append((0, node, self.repository.config, ()))

    def publish(self, cut: LogCut | None, *nodes: int) -> None:
        for node in nodes or tuple(self.replicas):
            if cut is not None:
                self.letters.append((0, node, cut, ()))

    # --- letters

    def deliver(self, letter: Letter) -> None:
        sender, receiver, message, batches = letter
        if receiver == 0:
            assert isinstance(message, StreamReport)
            self.repository.reports[sender] = message
            return
        replica = self.replicas.get(receiver)
        if replica is None:
            return
        match message:
            case StreamConfig():
                replica.configure(message)
            case LogCut():
                replica.commit(message)
            case Replicate():
                replica.replicate(message, batches)
            case Fetch():
                replica.fetch(sender, message)
            case Entries():
                replica.entries(sender, message, batches)
            case _:
                raise AssertionError(message)
        self.take(receiver)

    def settle(self, *, sync: bool = True) -> None:
        """Deliver everything, sync everything, until nothing happens any more."""
        while True:
            while self.letters:
                self.deliver(self.letters.pop(0))
            for node in self.replicas if sync else ():
                self.sync(node)
            if not self.letters:
                return

    def open(self) -> None:
        """Bring everybody into the epoch of the repository."""
        self.configure()
        self.settle()

    def run(self, other: int = 0) -> None:
        """Cut until nothing is left to commit."""
        self.settle()
        while (cut := self.repository.cut(other)) is not None:
            other = 0
            self.publish(cut)
            self.settle()

    def state(self, node: int) -> ReplicaState:
        return self.replicas[node].state

    def log(self, node: int) -> list[tuple[int, int, str]]:
        return self.disks[node].log()
