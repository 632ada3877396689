"""The scenario: a cluster, hosts of a bank over its log, callers, and the judgement."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from braidlog.app.caller.caller import Caller
from braidlog.app.execution.entries import Outcomes, unpack
from braidlog.app.snapshots.policy import SnapshotSettings
from braidlog.app.state.sqlite import SqliteState
from braidlog.client.client import AsyncClient
from braidlog.client.connection.sockets import socket_connector
from braidlog.client.settings import ClientSettings
from braidlog.errors import CorruptionError, LogError
from sim.applications.bank import make_bank
from sim.applications.callers import Callers, operate, run_caller
from sim.applications.disk import HostDisk
from sim.applications.hosts import HostWatch, address, run_host
from sim.applications.installed import install
from sim.applications.judge import check_accounts, check_snapshots, replayed
from sim.applications.ledger import Ledger, Model
from sim.applications.raw import ORDER_BYTES_MAX, check_raw, images
from sim.cluster.node import StoppedError
from sim.cluster.rest import read_log
from sim.cluster.scenario import ClusterScenario
from sim.errors import ViolationError
from sim.faults import Storm
from sim.threads import Threads
from sim.world import Life, World

if TYPE_CHECKING:
    from braidlog.store.merge import Figures
    from braidlog.wire.messages import AppStatus, LogInfo

__all__ = ["ApplicationScenario"]

_LOG: Final = "log"
_MEMORY: Final = Path("/dev/shm")
_ACTIONS: Final = ("seal", "drain", "move", "restart")
_REST_S: Final = 60.0
_PATIENCE_S: Final = 0.3
_QUIET_LOOKS: Final = 3


@dataclass(frozen=True, slots=True)
class Deployment:
    """One application and its hosts."""

    hosts: tuple[str, ...]
    partitions: int
    results_kept: int
    snapshots: SnapshotSettings
    # Mean seconds between two changes of the active host.
    promoted_s: float
    # Whether the storm begins before the hosts serve.
    early: bool
    # Partitions of a command that each store what the others need.
    copies_max: int


def draw_deployment(random: Random) -> Deployment:
    """Draw an application; its snapshots are many, so that the log is trimmed often."""
    return Deployment(
        hosts=tuple(f"h{number + 1}" for number in range(random.choice([2, 2, 3]))),
        partitions=random.randint(1, 3),
        results_kept=random.choice([24, 100, 100_000]),
        snapshots=SnapshotSettings(
            soft_bytes=random.choice([1500, 4000, 12000]),
            hard_bytes=1 << 20,
            kept=random.choice([1, 2]),
            snapshots_min=random.choice([1, 1, 2]),
            reserve_bytes=4096,
            pause_seconds=random.choice([0.01, 0.2]),
        ),
        promoted_s=random.choice([0.5, 1.5]),
        early=random.random() < 0.2,
        copies_max=random.choice([1, 8, 8]),
    )


class ApplicationScenario(ClusterScenario):
    """One cluster, one log, one application; see the module."""

    limits = MappingProxyType({"order_bytes_max": ORDER_BYTES_MAX})

    def __init__(self, *, apart: bool | None = None) -> None:
        """Begin with nothing."""
        super().__init__(apart=apart, actions=_ACTIONS)
        self._created = asyncio.Event()
        self._serving = asyncio.Event()
        self._waited_for: dict[str, None] = {}
        self._model = Model()
        self._found: Sequence[bytes] = ()

    def build(self, world: World, storm: Storm) -> None:
        """Start the nodes, and hosts that wait for the log."""
        self._directory = self._make_directory(world)
        self.hidden = f"{self._directory}/"
        self._deployment = draw_deployment(world.random("deployment"))
        world.note("world", f"{self._deployment}")
        names = self._deployment.hosts
        self._waited_for = dict.fromkeys(names)
        threads = Threads(world.loop, world.random("threads"))
        self._disks = {
            name: HostDisk(
                threads, self._directory / name, world.random(f"disk {name}")
            )
            for name in names
        }
        self.ledger = Ledger()
        self.bank = make_bank(
            self._deployment.partitions, self._deployment.results_kept
        )
        self.hosts = HostWatch(world, self.ledger, self._disks, _hash_of)
        self.hosts.install()
        seeds = [address(name) for name in names]
        self.callers = Callers(world, seeds, self.ledger)
        install(
            threads,
            list(self._disks.values()),
            self.callers.wall_s,
            copies_max=self._deployment.copies_max,
        )
        super().build(world, storm)
        for name in names:
            self._start_host(world, name)

    def _make_directory(self, world: World) -> Path:
        parent = _MEMORY if _MEMORY.is_dir() else None
        found = Path(tempfile.mkdtemp(prefix="braidlog-sim-", dir=parent))
        world.loop.on_close.append(lambda: shutil.rmtree(found, ignore_errors=True))
        return found

    def _start_host(self, world: World, name: str) -> None:
        async def host(life: Life) -> None:
            await self._created.wait()
            try:
                await run_host(
                    life,
                    self.bank,
                    lambda: self._client(life),
                    _LOG,
                    others=lambda: self._others(life),
                    up=lambda: self._up(name),
                    active=self._is_first(life) or life.random.random() < 0.2,
                    settings=self._deployment.snapshots,
                )
            finally:
                # Not after a crash: then nothing runs any more.
                self._ended[name] = world.now

        disk = self._disks[name]
        world.start(name, host, disk=disk, tolerated=(StoppedError,))

    def _up(self, name: str) -> None:
        self._waited_for.pop(name, None)
        if not self._waited_for:
            self._serving.set()

    async def begun(self) -> None:
        """Wait until all hosts serve, or let the storm come over their start."""
        if not self._deployment.early:
            await self._serving.wait()

    def _is_first(self, life: Life) -> bool:
        return life.number == 1 and life.name == self._deployment.hosts[0]

    def _client(self, life: Life) -> AsyncClient:
        seeds = self.shared.seeds
        settings = ClientSettings(
            timeout_s=6.0,
            attempt_timeout_s=1.5,
            connect_timeout_s=1.0,
            poll_s=2.0,
            entropy=life.random.randbytes,
            clock=lambda: int(self.callers.wall_s() * 1e6),
        )
        return AsyncClient(
            life.random.sample(list(seeds), len(seeds)),
            connector=socket_connector(),
            settings=settings,
        )

    def _others(self, life: Life) -> Caller:
        """Return a caller of all other hosts, for one that has no state."""
        hosts = [name for name in self._deployment.hosts if name != life.name]
        seeds = [address(each) for each in hosts]
        return Caller(self.callers.opened(life, seeds, timeout_s=1.0))

    def targets(self) -> Sequence[str]:
        """Return nodes and hosts."""
        return [*super().targets(), *self._deployment.hosts]

    def groups(self) -> Sequence[Sequence[str]]:
        """Return the replicas of each stream, and the hosts."""
        return [*super().groups(), self._deployment.hosts]

    def others(self) -> Sequence[str]:
        """Return the callers and who operates the hosts."""
        return [*super().others(), "operator"]

    def _begin_clients(self, world: World) -> list[asyncio.Event]:
        self._created.set()
        every_s = self._deployment.promoted_s

        async def operator(life: Life) -> None:
            self.hosts.promotions += await operate(life, self.callers, every_s)

        async def caller(life: Life) -> None:
            await run_caller(life, self.callers)
            self.shared.appending -= 1

        ended = [self._run(world, "operator", operator)]
        return ended + [self._run(world, name, caller) for name in self._clients]

    # The judgement.

    async def _rest(self, world: World, client: AsyncClient) -> None:
        """Wait until the hosts have executed all, then until the cluster rests."""
        since, quiet, before = world.now, 0, ""
        while quiet < _QUIET_LOOKS:
            await asyncio.sleep(_PATIENCE_S)
            found, restless = await self._look_at_hosts()
            if self.shared.appending:
                restless = f"{self.shared.appending} callers call; {restless}"
            quiet = 0 if restless or found != before else quiet + 1
            before = found
            if world.now - since > _REST_S:
                raise ViolationError(f"no rest after {_REST_S} s: {restless or found}")
        await super()._rest(world, client)

    async def _look_at_hosts(self) -> tuple[str, str]:
        """Return what all hosts agree on, and what they do not."""
        statuses: list[AppStatus] = []
        for name in self._deployment.hosts:
            caller = self.callers.opened(self._admin_life, [address(name)])
            try:
                statuses.append(await caller.status(hashes=True))
            except LogError as error:
                return "", f"{name}: {error.message}"
            finally:
                await caller.close()
        self._compare(statuses)
        at = {status.applied for status in statuses}
        if len(at) > 1 or any(status.waiting for status in statuses):
            return "", f"hosts are at {sorted(at)}"
        if len({status.hashes for status in statuses}) > 1:
            raise ViolationError(f"hosts differ at {at}")
        self._found = statuses[0].hashes
        return f"{at}", ""

    def _compare(self, statuses: Sequence[AppStatus]) -> None:
        for status in statuses:
            if status.mismatches or status.stopped:
                raise ViolationError(f"a host differs from the log: {status}")
        active = [status.host for status in statuses if status.active]
        epochs = {status.epoch for status in statuses if status.active}
        if len(active) > 1 and len(epochs) == 1:
            raise ViolationError(f"{len(active)} hosts are active in epoch {epochs}")

    def _judge(self, info: LogInfo) -> None:
        """Compare the log of the cluster with what hosts executed and callers know."""
        model = self._model = self.ledger.finish()
        stored = {seen.glsn: seen.payload for seen in read_log(self.watch, info)}
        end = len(self.ledger.records)
        for position, value in stored.items():
            if position > end and isinstance(unpack(value, position), Outcomes):
                continue  # Of an idle host, since all were looked at: nobody read it.
            known = self.ledger.records.get(position)
            if known is None or known.value != value:
                raise ViolationError(f"hosts executed something else at {position}")
        if info.high_watermark < end:
            raise ViolationError(f"{end} were executed of {info.high_watermark}")
        self._positions = range(max(1, info.trim), end + 1)
        self._images = images(self.watch)
        assert self.shared.end is not None
        self.shared.end.set_result(model.epoch)

    def check(self, world: World) -> None:
        """Judge every state that is left."""
        super().check(world)
        records, scratch = self.ledger.in_order(), self._directory / "judge"
        expected = replayed(self.bank, records, scratch / "zero")
        if list(self._found) != expected:
            raise ViolationError("a replay from zero gives another state")
        check_accounts(scratch / "zero", self.bank.partitions, self._model)
        snapshots = sum(
            check_snapshots(self.bank, records, name, disk, expected, scratch)
            for name, disk in self._disks.items()
        )
        known, raw = self.ledger.records, scratch / "raw"
        figures = check_raw(self._images, known, self._positions, raw)
        world.note("world", f"{self.counts(snapshots)}, {_said(figures)}")

    def counts(self, snapshots: int = 0) -> str:
        """Return what happened, for the trace."""
        model, hosts = self._model, self.hosts
        rotten = sum(disk.rotten for disk in self._disks.values())
        return (
            f"{len(self.ledger.records)} records, {len(model.answers)} calls,"
            f" {model.repeated} repeated, {model.expired} expired, {model.void} void,"
            f" {len(self.ledger.reads)} reads, epoch {model.epoch},"
            f" {hosts.promotions} promotions, {hosts.trims} trims,"
            f" {snapshots} snapshots left, {rotten} rotten, {self.callers.errors}"
        )


def _said(figures: Figures) -> str:
    peak = max(source.pending_bytes_peak for source in figures.sources)
    late = sum(source.late_bytes for source in figures.sources)
    return f"{figures.records} merged, {peak} bytes pending at most, {late} late"


def _hash_of(path: Path, content: bytes) -> bytes:
    """Return the state hash of a database, or nothing if it is none."""
    path.write_bytes(content)
    try:
        return SqliteState.hash_of(SqliteState.__new__(SqliteState), path)
    except CorruptionError:
        return b""
