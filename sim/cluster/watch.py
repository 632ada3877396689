"""Looks into the nodes while they run: what the repository decides, what replicas say.

Observations go to the checkers of cuts and epochs; nothing here changes what a node
does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from braidlog.errors import LogError
from braidlog.logstream.states import ReplicaState
from braidlog.wire.commands import Cut, decode_call
from braidlog.wire.messages import LogCut
from braidlog.wire.results import Committed
from sim.checkers import ClaimChecker, CutChecker, CutRun, EpochChecker
from sim.world import World

if TYPE_CHECKING:
    from braidlog.metarepo.machine.repository import Repository
    from braidlog.metarepo.machine.state import State
    from braidlog.node.node import ClusterNode
    from braidlog.store.node_store import NodeStore

__all__ = ["Live", "Watch"]


@dataclass(slots=True)
class Live:
    """One life of a node that serves."""

    name: str
    node: ClusterNode
    store: NodeStore
    number: int
    hooked: bool = False


class Watch:
    """All nodes as they are now, and what was seen of them."""

    def __init__(self, world: World) -> None:
        """Begin with nothing seen."""
        self._world = world
        self._live: dict[str, Live] = {}
        self.cuts: dict[bytes, CutChecker] = {}
        self.epochs = EpochChecker()
        self.claims = ClaimChecker()

    def up(self, name: str, node: ClusterNode, store: NodeStore) -> None:
        """Note that a node serves."""
        lives = self._world.nodes[name].lives
        live = self._live[name] = Live(name, node, store, lives)
        self._listen(live)
        self._hook(live)

    def _listen(self, live: Live) -> None:
        """Compare what the disk has with what was said, then hear what is said."""
        name, node, claims = live.name, live.node, self.claims
        replicas: Any = node.replicas
        for stream, hosted in replicas._hosted.items():
            state = hosted.storage.state()
            claims.found(name, stream, state.epoch, state.next)
            self._follow(name, stream, hosted.storage)
        reporting: Any = node._reporting
        make, drop, host = reporting._make, replicas._drop, replicas._host

        def hosts(stream: int) -> Any:
            hosted = host(stream)
            self._follow(name, stream, hosted.storage)
            return hosted

        def made(streams: Any, *, full: bool) -> Any:
            for report in streams:
                if report.state != ReplicaState.STARTING:
                    claims.claimed(name, report.stream, report.epoch, report.end)
            return make(streams, full=full)

        def dropped(stream: int) -> None:
            claims.dropped(name, stream)
            drop(stream)

        reporting._make = made
        replicas._drop = dropped
        replicas._host = hosts

    def _follow(self, name: str, stream: int, storage: Any) -> None:
        """Note what a replica takes back."""
        rollback, restart = storage.rollback, storage.restart

        def rolled_back(epoch: int, llsn: int) -> None:
            self.claims.cut(name, stream, llsn)
            rollback(epoch, llsn)

        def restarted(llsn: int, producers: bytes = b"") -> None:
            self.claims.cut(name, stream, 0)
            restart(llsn, producers)

        storage.rollback, storage.restart = rolled_back, restarted

    def living(self) -> Iterator[Live]:
        """Return the nodes whose process runs, or is paused."""
        for name, live in self._live.items():
            node = self._world.nodes[name]
            if node.alive and node.lives == live.number:
                yield live

    def disk_of(self, live: Live) -> Any:
        """Return the disk of a node."""
        return self._world.nodes[live.name].disk

    def state(self) -> State | None:
        """Return the newest state of the repository; None if nobody has any."""
        states = [
            live.node.member.group.repository.state
            for live in self.living()
            if live.node.member is not None
        ]
        return max(states, key=lambda state: state.index, default=None)

    def groups(self) -> list[list[str]]:
        """Return the replicas of each stream, as the newest state has them."""
        state = self.state()
        if state is None:
            return []
        names = {live.node.id: live.name for live in self.living()}
        found = [
            [names[node] for node in stream.replicas if node in names]
            for stream in state.streams.values()
        ]
        return [group for group in found if group]

    def look(self) -> None:
        """Take note of what all nodes say now."""
        for live in self.living():
            self._hook(live)
            for report in _reports(live):
                if report.epoch:
                    self.epochs.entered(live.name, report.stream, report.epoch)

    def _hook(self, live: Live) -> None:
        if live.hooked or live.node.member is None:
            return
        live.hooked = True
        repository: Any = live.node.member.group.repository
        apply, restore = repository.apply, repository.restore

        def applied(index: int, data: bytes) -> Any:
            result = apply(index, data)
            self._applied(live.name, repository, data, result)
            return result

        def restored(snapshot: bytes) -> None:
            restore(snapshot)
            self._began(live.name, repository)

        repository.apply, repository.restore = applied, restored
        self._began(live.name, repository)

    def _began(self, name: str, repository: Repository) -> None:
        for checker in self.cuts.values():
            checker.restarted(name, 0)
        for log in repository.state.logs.values():
            self._cuts(log.log).restarted(name, log.version)
            for cut in log.history:
                self._seen(name, cut)
        self._decided(repository)

    def _applied(
        self, name: str, repository: Repository, data: bytes, result: object
    ) -> None:
        try:
            command = decode_call(data).command
        except LogError:
            return
        if not isinstance(command, Cut):
            self._decided(repository)
        elif isinstance(result, Committed):
            for cut in command.cuts:
                self._seen(name, cut)
                self._cuts(cut.log).applied(name, cut.version)

    def _cuts(self, log: bytes) -> CutChecker:
        return self.cuts.setdefault(log, CutChecker())

    def _seen(self, name: str, cut: LogCut) -> None:
        runs = [
            CutRun(run.stream, run.llsn_begin, run.glsn_begin, run.length)
            for run in cut.runs
        ]
        self._cuts(cut.log).seen(name, cut.version, cut.high_watermark, runs)

    def _decided(self, repository: Repository) -> None:
        for stream in repository.state.streams.values():
            self.epochs.decided(
                stream.stream, stream.epoch, stream.replicas, stream.start
            )


def _reports(live: Live) -> Iterator[Any]:
    yield from live.node.replicas.reports()
