"""A real node in the simulated world, from its start to its end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from braidlog.errors import ClosedError, CorruptionError, LogError
from braidlog.logstream.errors import ReplicaInvariantError
from braidlog.metarepo.machine.errors import RepositoryInvariantError
from braidlog.node.config import (
    ClusterSettings,
    LimitSettings,
    NodeConfig,
    NodeSettings,
    TimingSettings,
)
from braidlog.node.node import ClusterNode
from braidlog.node.server import NodeServer
from braidlog.node.tables.tables import TableWork
from braidlog.raft.errors import RaftInvariantError
from braidlog.serving.settings import SecuritySettings
from braidlog.store.node_store import NodeStore
from sim.cluster.disk import ClusterDisk, VirtualSyncer
from sim.cluster.strangers import (
    CONNECTIONS_MAX,
    FILES_MAX,
    INCOMING_BYTES_MAX,
    SHARES,
)
from sim.world import Life

__all__ = ["PORT", "StoppedError", "Up", "address", "config_of", "name_of", "run_node"]

PORT = 7400
_WAL_BYTES_MAX = 256 << 20
_FETCH_BYTES_MAX = 4 << 10
_SCRUB_BYTES = 16 << 20
# Broken promises of the code itself, whatever the disk did.
_BROKEN = (
    CorruptionError,
    RaftInvariantError,
    ReplicaInvariantError,
    RepositoryInvariantError,
)

Up = Callable[[str, ClusterNode, NodeStore], None]


class StoppedError(Exception):
    """The node ended because its disk failed; it will be started again."""


def name_of(node: int) -> str:
    """Return the host of a node."""
    return f"n{node}"


def address(node: int) -> str:
    """Return where a node listens."""
    return f"{name_of(node)}:{PORT}"


def config_of(
    node: int,
    voters: Sequence[int],
    segment_bytes: int,
    scrub_ms: int = TimingSettings().scrub_ms,
    *,
    strangers: bool = False,
) -> NodeConfig:
    """Return the settings of a node: the default times, small files.

    With `strangers` what connections may take is small too.
    """
    usual = LimitSettings()
    connections_max = CONNECTIONS_MAX if strangers else usual.connections_max
    incoming_bytes_max = INCOMING_BYTES_MAX if strangers else usual.incoming_bytes_max
    known: Mapping[int, str] = {voter: address(voter) for voter in voters}
    return NodeConfig(
        node=NodeSettings(id=node, data="/node", listen=address(node)),
        cluster=ClusterSettings(name="sim", voters=known),
        security=SecuritySettings(insecure=True),
        timing=TimingSettings(drain_ms=2000, scrub_ms=scrub_ms),
        limits=LimitSettings(
            segment_bytes=segment_bytes,
            wal_bytes_max=_WAL_BYTES_MAX,
            fetch_bytes_max=_FETCH_BYTES_MAX,
            scrub_bytes=_SCRUB_BYTES,
            connections_max=connections_max,
            incoming_bytes_max=incoming_bytes_max,
        ),
    )


async def run_node(
    life: Life,
    config: NodeConfig,
    up: Up,
    limits: Mapping[str, int] = MappingProxyType({}),
    *,
    strangers: bool = False,
    tables: TableWork | None = None,
) -> None:
    """Run one life of a node; `up` gets it as soon as it serves.

    ``limits`` are those of its store that no setting has. With `strangers` its clients
    have small shares. With ``tables`` it keeps tables.

    Raises:
        StoppedError: its disk failed.
        LogError: it ended without such an excuse.
    """
    disk: ClusterDisk = life.disk
    disk.start()
    try:
        await _serve(life, disk, config, up, limits, strangers=strangers, tables=tables)
    except LogError as error:
        unforeseen = type(error) is ClosedError and "unforeseen" in error.message
        if not disk.hurt or unforeseen or isinstance(error, _BROKEN):
            raise
        raise StoppedError(str(error)) from error


async def _serve(
    life: Life,
    disk: ClusterDisk,
    config: NodeConfig,
    up: Up,
    limits: Mapping[str, int],
    *,
    strangers: bool,
    tables: TableWork | None,
) -> None:
    store = NodeStore(
        config.node.data,
        entropy=life.random.getrandbits(64),
        disk=disk.native,
        now=lambda: int(life.wall_s() * 1e6),
        segment_bytes=config.limits.segment_bytes,
        wal_bytes_max=config.limits.wal_bytes_max,
        **limits,
    )
    server = NodeServer(
        config,
        store=store,
        syncer=VirtualSyncer(store, disk),
        seed=life.random.getrandbits(64),
        shares=SHARES if strangers else None,
        files_max=FILES_MAX if strangers else 0,
        tables=tables,
        clock=asyncio.get_running_loop().time,
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with server:
        up(life.name, server.node, store)
        await server.serve(stop)
