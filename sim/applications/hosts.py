"""One host in the simulated world, from its start to its end."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from braidlog.app.application import Application
from braidlog.app.caller.caller import Caller
from braidlog.app.determinism.codec import decode
from braidlog.app.errors import DivergedError, SnapshotDamagedError
from braidlog.app.host.cluster_host import ClusterHost, open_cluster_host
from braidlog.app.host.host import Host
from braidlog.app.log.clustered import ClusteredLog
from braidlog.app.log.stop import Stop
from braidlog.app.serve import process
from braidlog.app.serve.process import ServeSettings
from braidlog.app.snapshots.policy import SnapshotSettings
from braidlog.client.client import AsyncClient
from braidlog.errors import (
    CorruptionError,
    LogError,
    ProtocolError,
    TrimmedError,
)
from braidlog.serving.settings import SecuritySettings
from sim.applications.disk import HostDisk
from sim.applications.ledger import Ledger, Record
from sim.cluster.node import StoppedError
from sim.errors import ViolationError
from sim.process import CURRENT
from sim.world import Life, World

__all__ = ["PORT", "HostWatch", "address", "run_host"]

PORT: Final = 7500
# Broken promises, whatever failed around the host.
_BROKEN: Final = (
    CorruptionError,
    DivergedError,
    ProtocolError,
    SnapshotDamagedError,
    TrimmedError,
)


def address(host: str) -> str:
    """Return where a host listens."""
    return f"{host}:{PORT}"


@dataclass(slots=True)
class HostWatch:
    """What is seen of all hosts: what they read, and what they ask to be trimmed."""

    world: World
    ledger: Ledger
    disks: dict[str, HostDisk]
    hash_of: Callable[[Path, bytes], bytes]
    trims: int = 0
    snapshots: int = 0
    promotions: int = 0

    def install(self) -> None:
        """Listen to the logs of all hosts until the world is closed."""
        owner: Any = ClusteredLog
        read, trim = owner.read, owner.trim

        def reads(log: ClusteredLog, begin: int, limit: int) -> Any:
            records = read(log, begin, limit)
            for each in records:
                self._seen(Record(each.position, each.timestamp, each.value))
            return records

        def trims(log: ClusteredLog, before: int) -> int:
            self._trimmed(before)
            first: int = trim(log, before)
            return first

        def put_back() -> None:
            owner.read, owner.trim = read, trim

        owner.read, owner.trim = reads, trims
        self.world.loop.on_close.append(put_back)

    def _seen(self, record: Record) -> None:
        try:
            self.ledger.seen(record, self.world.now)
        except ViolationError as error:
            self.world.loop.fail("records differ", error)

    def _trimmed(self, before: int) -> None:
        """Make sure that the host has what it takes away, whatever happens to it."""
        self.trims += 1
        name = CURRENT.get(self.world.loop.world).name
        if self._sound(self.disks[name], before):
            return
        text = f"{name} trims below {before} and has no durable snapshot there"
        self.world.loop.fail("a trim takes too much", ViolationError(text))

    def _sound(self, disk: HostDisk, before: int) -> bool:
        snapshots = disk.path / "snapshots"
        for each in sorted(snapshots.iterdir()):
            if not each.name.isdigit():
                continue
            files = disk.durable(each)
            if "snapshot.cbor" not in files or not files["snapshot.cbor"]:
                continue
            facts = decode(files["snapshot.cbor"])
            if facts["position"] + 1 >= before and all(
                self._is(files.get(name, b""), digest, state)
                for name, _, digest, state in facts["files"]
            ):
                return True
        return False

    def _is(self, content: bytes, digest: bytes, state: bytes) -> bool:
        if hashlib.blake2b(content, digest_size=16).digest() != digest:
            return False
        return self.hash_of(self.world_file(), content) == state

    def world_file(self) -> Path:
        """Return where a file may be written that belongs to no host."""
        disk = next(iter(self.disks.values()))
        return disk.path.parent.parent / "looked-at.db"


async def run_host(
    life: Life,
    bank: Application,
    make: Callable[[], AsyncClient],
    log: str,
    *,
    others: Callable[[], Caller],
    up: Callable[[], None],
    active: bool,
    settings: SnapshotSettings,
) -> None:
    """Run one life of a host.

    Raises:
        StoppedError: it could not go on, for a reason that may go away.
        LogError: it ended without such an excuse.
    """
    life.process.blocking = True
    disk: HostDisk = life.disk
    disk.start()

    # Who has a state is never left behind by a trim; who has none may be.
    fresh = not (disk.path / "state").exists()

    def open_host(stop: Stop) -> Host:
        host: ClusterHost = open_cluster_host(
            bank,
            make,
            disk.path,
            log=log,
            active=active,
            others=others() if fresh and life.number > 1 else None,
            snapshots=settings,
            watchdog=None,
            stop=stop,
        )
        up()
        return host

    serving = ServeSettings(
        listen=address(life.name), security=SecuritySettings(insecure=True)
    )
    try:
        await process._run(open_host, serving)
    except LogError as error:
        late = fresh and isinstance(error, TrimmedError)
        broken = isinstance(error, _BROKEN) or not (error.retryable or disk.hurt)
        if broken and not late:
            raise
        raise StoppedError(str(error)) from error
