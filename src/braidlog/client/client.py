"""A client of a cluster: its logs, and the calls with which operators manage it."""
# One file: the calls of one class and their contracts; what they do is elsewhere.

from __future__ import annotations

import asyncio
import contextlib
import ssl as tls
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from braidlog.client.batches import BatchCodec, NativeCodec
from braidlog.client.connection.cluster import Cluster
from braidlog.client.connection.link import Connector
from braidlog.client.connection.look import Look
from braidlog.client.connection.routing import KEY_STREAMS, Routes, parse_seeds
from braidlog.client.ingest import AsyncIngest
from braidlog.client.log import AsyncClusterLog
from braidlog.client.read.scan import AsyncScan
from braidlog.client.settings import ClientSettings
from braidlog.client.tables.calls import TableCalls
from braidlog.client.tables.catalog import table_named
from braidlog.client.tables.change import AsyncClusterDdl
from braidlog.client.tables.hosts import TableHosts
from braidlog.client.tables.table import AsyncClusterTable
from braidlog.closable import AsyncClosable
from braidlog.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    LogError,
    LogInUseError,
    NotFoundError,
    OlderNodesError,
    RemoteProtocolError,
)
from braidlog.names import checked_name, checked_new_name
from braidlog.store.arguments import (
    checked_count,
    checked_int,
)
from braidlog.store.catalog import LogOptions
from braidlog.store.retention import retention_of
from braidlog.types import Compression
from braidlog.wire import commands, results
from braidlog.wire.messages import (
    Feature,
    GetTimestamps,
    LogKind,
    Metadata,
    NodeInfo,
    Reload,
    Reloaded,
    StreamInfo,
    Timestamps,
)

if TYPE_CHECKING:
    from braidlog.backup.directory import Progress
    from braidlog.backup.layout import Backup
    from braidlog.backup.place import PlaceLike
    from braidlog.client.description import ClusterLogDescription

_LOG_BYTES: Final = 16
LOOK_S: Final = 1.5
"""How long a look takes where nobody leads; with the rest of a command below 2 s."""

_TIMESTAMPS_MAX: Final = 1 << 20
"""Of one call."""


class AsyncClient(AsyncClosable):
    """A connection to a cluster. Use `braidlog.connect_async`, with ``async with``."""

    def __init__(
        self,
        seeds: str | Iterable[str],
        *,
        connector: Connector,
        settings: ClientSettings | None = None,
        codec: BatchCodec | None = None,
    ) -> None:
        """Remember where the cluster is; entering connects."""
        self._settings = _settings(settings)
        self._codec = codec or NativeCodec()
        self._cluster = Cluster(parse_seeds(seeds), connector, self._settings)
        self._logs: dict[bytes, AsyncClusterLog] = {}
        self._tables = TableCalls(self._cluster)

    def __repr__(self) -> str:
        """Show where it looks for the cluster."""
        return f"<Client {','.join(self._cluster.seeds)!r}>"

    async def __aenter__(self) -> Self:
        """Find the cluster."""
        try:
            await self._cluster.open()
        except BaseException:
            await self._cluster.close()
            raise
        return self

    async def close(self) -> None:
        """Close all connections. Idempotent.

        Unacknowledged appends fail; those that were sent may still be stored.
        """
        if not self._cluster.closed:
            for log in self._logs.values():
                log._close()
        await self._cluster.close()
        await self._tables.close()

    @property
    def cluster(self) -> str:
        """Name of the cluster."""
        return self._cluster.routes.metadata.cluster

    # -- logs --------------------------------------------------------------------

    async def logs(self) -> list[str]:
        """Return the names of all logs, sorted."""
        return (await self._cluster.linearize()).names()

    async def log(self, name: str) -> AsyncClusterLog:
        """Return an existing log.

        Raises:
            NotFoundError: there is no log of that name.
        """
        info = (await self._cluster.linearize()).named(name)
        log = self._logs.get(info.log)
        if log is None:
            log = self._logs[info.log] = AsyncClusterLog(
                self._cluster, info, self._codec
            )
        return log

    async def create_log(
        self,
        name: str,
        *,
        exist_ok: bool = False,
        streams: int = 1,
        replication: int | None = None,
        min_replicas: int | None = None,
        allow_missing: bool = False,
        compression: Compression = "none",
        retention_ms: int | timedelta | None = None,
        retention_bytes: int | None = None,
        kind: str = "streams",
    ) -> AsyncClusterLog:
        """Create a log; durable on return.

        The log has ``streams`` streams, each with ``replication`` replicas (None:
        three, or one per node if there are fewer). A stream takes appends while it has
        ``min_replicas`` replicas (None: a majority). Other arguments are those of
        `Store.create_log`.

        A log of ``kind`` "shard" is one Raft group with ``replication`` members: a
        majority acknowledges, and one writer may own it (`AsyncClusterLog.acquire`).
        It has one stream.

        A cluster with fewer than ``replication`` nodes refuses. With ``allow_missing``
        it creates the log if there are at least ``min_replicas`` nodes, and adds
        replicas when nodes join; `describe` says how many are missing.

        Raises:
            TypeError: an argument has the wrong type.
            AlreadyExistsError: the log exists, and ``exist_ok`` is not set.
            InvalidArgumentError: there are too few nodes, or a new log cannot have this
                name; see `Store.create_log`.
        """
        name = checked_name(name, "log")
        streams = checked_int(streams, "streams")
        kinds = {each.name.lower(): each for each in LogKind}
        if kind not in kinds:
            msg = f"kind must be one of {', '.join(kinds)}, got {kind!r}"
            raise InvalidArgumentError(msg)
        if replication is not None:
            replication = checked_int(replication, "replication")
        if min_replicas is not None:
            min_replicas = checked_int(min_replicas, "min_replicas")
        if replication is None:
            staying = [each for each in self._cluster.routes.nodes if not each.draining]
            replication = min(3, max(1, len(staying)))
        if min_replicas is None:
            min_replicas = replication // 2 + 1
        if streams < 1 or replication < 1:
            what = "streams" if streams < 1 else "replication"
            msg = f"{what} must be at least 1, got {min(streams, replication)}"
            raise InvalidArgumentError(msg)
        if not 0 < min_replicas <= replication:
            raise InvalidArgumentError(
                f"min_replicas must be from 1 to the {replication} of replication, "
                f"got {min_replicas}"
            )
        extra: dict[str, Any] = {KEY_STREAMS: streams}
        age = retention_of(retention_ms)
        if kinds[kind] is LogKind.SHARD:
            _check_shard(streams)
        options = LogOptions(compression, age, retention_bytes, extra)
        command = commands.CreateLog(
            self._settings.entropy(_LOG_BYTES),
            name,
            streams,
            replication,
            min_replicas,
            options.encode(),
            self._settings.clock(),
            allow_missing=allow_missing,
            kind=kinds[kind],
        )
        if exist_ok and name in await self.logs():
            return await self.log(name)
        checked_new_name(name, "log")
        try:
            await self._cluster.execute(command)
        except AlreadyExistsError:
            if not exist_ok:
                raise
        return await self.log(name)

    async def delete_log(self, name: str) -> None:
        """Delete a log with everything in it; durable on return. Cannot be undone.

        Raises:
            NotFoundError: there is no log of that name.
            LogInUseError: tables follow it.
        """
        routes = await self._cluster.linearize()
        info = routes.named(name)
        try:
            await self._cluster.execute(commands.DeleteLog(info.log))
        except LogInUseError as error:
            # An answer has no room for any number of names.
            followers = (t.name for t in routes.metadata.tables if t.log == info.log)
            error.tables = tuple(sorted(followers))
            raise
        if (log := self._logs.pop(info.log, None)) is not None:
            log._close(NotFoundError(f"log {name!r} was deleted"))

    async def describe(self, name: str) -> ClusterLogDescription:
        """Return settings and state of a log."""
        return await (await self.log(name)).describe()

    async def scan(self, name: str, *, node: int = 0) -> AsyncScan:
        """Return a reader of single streams of a log, for many processes at once.

        With ``node``, only that node is asked, for streams of which it has a replica.

        Raises:
            NotFoundError: there is no log of that name.
        """
        info = (await self._cluster.linearize()).named(name)
        return AsyncScan(self._cluster, info, self._codec, node)

    async def ingest(self, name: str) -> AsyncIngest:
        """Return a writer to single streams of a log, for loads that may be repeated.

        Raises:
            NotFoundError: there is no log of that name.
        """
        log, scan = await self.log(name), await self.scan(name)
        return AsyncIngest(self._cluster, log, scan, self._codec)

    async def backup(
        self,
        place: PlaceLike,
        *,
        base: str | None = None,
        progress: Progress | None = None,
    ) -> Backup:
        """Back up all logs and tables while the cluster runs, each log at one cut.

        What was acknowledged before the call is in it: records with their positions,
        options, cursors, and tables as of the cut of their log. Of producers it has
        what the records say. Everything else is as with `Store.backup`; ``base`` is a
        backup of the same cluster.

        Raises:
            UnauthorizedError: there are tables, and the token has not the role `admin`.
            CorruptionError: no host has the files of a table without damage.
            NotFoundError: there is no backup ``base``, or nothing to make ``place`` in.
            InvalidArgumentError: ``base`` is of something else, or the cluster was put
                back to an earlier state since; ``place`` is no place.
            UnavailableError: the system refuses, for instance because the disk is full.
            DeadlineError: a log lets go of records, or tables change, faster than the
                place takes them, or no replica of a stream answers.
        """
        from braidlog.backup.place import place_of
        from braidlog.backup.run import LEASE_S
        from braidlog.client.backup import back_up_cluster

        return await back_up_cluster(
            self._cluster,
            self._codec,
            place_of(place),
            base=base,
            lease_s=LEASE_S,
            progress=progress,
        )

    # -- tables ------------------------------------------------------------------

    async def tables(self) -> list[str]:
        """Return the names of all tables, sorted."""
        routes = await self._tables.newest()
        return sorted(table.name for table in routes.metadata.tables)

    async def table(self, name: str) -> AsyncClusterTable:
        """Return an existing table.

        Raises:
            NotFoundError: there is no table of that name.
        """
        routes = await self._tables.newest()
        info = table_named(routes.metadata.tables, name)
        return AsyncClusterTable(TableHosts(self._tables, info))

    async def create_table(
        self,
        name: str,
        *,
        log: str,
        indexes: Mapping[str, str] | None = None,
        begin: int | None = None,
        history: int = 0,
        memory_bytes: int | None = None,
        deletes: str = "null",
        replicas: int | None = None,
        exist_ok: bool = False,
    ) -> AsyncClusterTable:
        """Create a table of a log: the latest record of each key; durable on return.

        It is kept by ``replicas`` nodes (None: as many as keep a stream of the log).
        The other arguments are those of `Store.create_table`.

        Raises:
            InvalidArgumentError: an option is wrong, or a new table cannot have this
                name.
            OlderNodesError: some node is of a version that knows no tables, or none
                that begin behind the first record of their log.
            AlreadyExistsError: the table exists, and ``exist_ok`` is not set.
            NotFoundError: there is no such log.
            TrimmedError: ``begin`` is below the first position of the log.
            BeyondEndError: ``begin`` is above the next position of the log.
        """
        if exist_ok and name in await self.tables():
            return await self.table(name)
        with contextlib.ExitStack() as stack:
            if exist_ok:  # Another client may just be creating it.
                stack.enter_context(contextlib.suppress(AlreadyExistsError))
            async with self.ddl() as change:
                change.create(
                    name,
                    log=log,
                    indexes=indexes,
                    begin=begin,
                    history=history,
                    memory_bytes=memory_bytes,
                    deletes=deletes,
                    replicas=replicas,
                )
        return await self.table(name)

    async def drop_table(self, name: str) -> None:
        """Drop a table with its indexes; durable on return. The log keeps its records.

        Raises:
            NotFoundError: there is no table of that name.
        """
        async with self.ddl() as change:
            change.drop(name)

    def ddl(self) -> AsyncClusterDdl:
        """Change any tables together: ``async with client.ddl() as change:``.

        All changes are made when the block ends, by one command: all of them, or none.
        """
        return AsyncClusterDdl(self._tables)

    async def metadata(self) -> Metadata:
        """Return nodes, leader, logs and streams as of one moment.

        The leader of the metadata repository answers, because only it knows which nodes
        are alive and which replicas are in sync.
        """
        return await self._cluster.judged()

    async def look(self, within: float | None = None) -> Look:
        """Return the state of the cluster within 1.5 seconds, even without a leader.

        The leader answers. Without a leader, every reachable node reports what it
        knows. Works without `__aenter__`, which needs a node that serves.

        Raises:
            UnauthorizedError: the token is refused.
        """
        return await self._cluster.look(LOOK_S if within is None else within)

    # -- nodes -------------------------------------------------------------------

    async def nodes(self) -> tuple[NodeInfo, ...]:
        """Return the nodes of the cluster."""
        return (await self._cluster.judged()).nodes

    async def drain_node(self, node: int, *, draining: bool = True) -> None:
        """Start to move all replicas off a node, or cancel that."""
        await self._cluster.execute(commands.DrainNode(node, draining))

    async def timestamps(
        self, shard: str, count: int = 1, *, wall: bool = False
    ) -> range:
        """Return timestamps that nobody else got or gets: a range of ``count``.

        They are positive integers, and greater than all that this shard gave, to any
        client, before this call began: over all leaders, restarts and failures. Numbers
        may be left out. Nothing is stored but a reservation now and then, so a shard
        can give millions in a second, also one that is a log beside that.

        Args:
            shard: the name of a log of kind "shard".
            count: from 1 to 2^20.
            wall: let the first one not be less than the microseconds since the epoch
                on the clock of the shard's leader. A clock that goes back makes them
                no smaller; one that is wrong and far ahead leaves them far ahead.

        Raises:
            NotFoundError: there is no such log.
            InvalidArgumentError: it is no shard, or the count is wrong.
            OlderNodesError: some node is of a version that gives none.
            DeadlineError: no leader answered in time.
        """
        if not 1 <= checked_count(count, "count") <= _TIMESTAMPS_MAX:
            msg = f"count must be from 1 to {_TIMESTAMPS_MAX}, got {count}"
            raise InvalidArgumentError(msg)
        routes = self._cluster.routes
        try:
            info = routes.named(shard)
        except NotFoundError:
            routes = await self._cluster.linearize()
            info = routes.named(shard)
        if older := routes.older(Feature.TIMESTAMPS):
            msg = f"nodes {older} are of a version that gives no timestamps"
            raise OlderNodesError(msg, nodes=older)
        if info.kind is not LogKind.SHARD:
            msg = f"log {shard!r} is no shard: it gives no timestamps"
            raise InvalidArgumentError(msg)
        asked = GetTimestamps(info.streams[0].stream, count, bool(wall))
        answer, _ = await self._cluster.ask_shard(info.log, asked)
        if not isinstance(answer, Timestamps):
            msg = f"{type(answer).__name__} is no answer to GetTimestamps"
            raise RemoteProtocolError(msg)
        return range(answer.first, answer.first + count)

    async def remove_node(self, node: int) -> None:
        """Forget an empty node; its id is never used again."""
        await self._cluster.execute(commands.RemoveNode(node))

    async def set_voter(self, node: int, *, voter: bool = True) -> None:
        """Make a node a voter of the metadata repository, or remove its vote."""
        await self._cluster.execute(commands.SetVoter(node, voter))

    async def readmit_node(self, node: int) -> None:
        """Give up the lost directory of a node, so that its id can return empty.

        The node's replicas and its vote are removed first, which continues after the
        return. The lost directory never counts again, even if it turns up.

        Raises:
            InvalidArgumentError: the node is alive, or only it holds all records of a
                stream.
        """
        await self._cluster.execute(commands.ReadmitNode(node))

    async def reload(
        self, nodes: Iterable[int] | None = None
    ) -> dict[int, Reloaded | LogError]:
        """Have nodes read their settings, tokens and certificates again; all, or some.

        Returns what each of them says: what has changed, or the error. A node that
        finds something wrong changes nothing, and the others go on.
        """
        routes = await self._cluster.refresh()
        wanted = [each.node for each in routes.metadata.nodes]
        if nodes is not None:
            wanted = list(dict.fromkeys(nodes))
        answers = await asyncio.gather(*(self._reload(node) for node in wanted))
        return dict(zip(wanted, answers, strict=True))

    async def _reload(self, node: int) -> Reloaded | LogError:
        cluster = self._cluster
        known = {each.node: each for each in cluster.routes.metadata.nodes}
        if node not in known:
            return NotFoundError(f"node {node} is not part of the cluster")
        if not known[node].features & Feature.RELOADS:
            return InvalidArgumentError(
                f"node {node} is of a version that cannot reload: restart it"
            )
        within = cluster.settings.attempt_timeout_s
        try:
            answer, _ = await cluster.ask_node(node, Reload(), within=within)
        except LogError as error:
            return error
        if isinstance(answer, Reloaded):
            return answer
        msg = f"{type(answer).__name__} is no answer to Reload"
        return RemoteProtocolError(msg)

    # -- streams -----------------------------------------------------------------

    async def streams(self, name: str) -> tuple[StreamInfo, ...]:
        """Return the streams of a log."""
        return Routes(await self._cluster.judged()).named(name).streams

    async def seal(self, stream: int, *, expect: int | None = None) -> int:
        """Stop appends to a stream; return the epoch it is sealed in.

        With ``expect``, here and below, a stream in another epoch is not changed.

        Raises:
            FencedError: the epoch is another one.
        """
        return await self._epoch(commands.Seal(stream, expect))

    async def unseal(self, stream: int, *, expect: int | None = None) -> int:
        """Allow appends to a stream again; return its epoch.

        Raises:
            InvalidArgumentError: it was removed, so it is sealed for good.
        """
        return await self._epoch(commands.Unseal(stream, expect))

    async def _epoch(self, command: commands.Seal | commands.Unseal) -> int:
        result = await self._cluster.execute(command)
        if not isinstance(result, results.Epoch):
            msg = f"{type(result).__name__} is no answer to {type(command).__name__}"
            raise RemoteProtocolError(msg)
        return result.epoch

    async def move_replica(
        self, stream: int, source: int, target: int, *, expect: int | None = None
    ) -> None:
        """Start to move a replica to another node."""
        command = commands.MoveReplica(stream, source, target, expect)
        await self._cluster.execute(command)

    async def add_learner(
        self, stream: int, node: int, *, expect: int | None = None
    ) -> None:
        """Start to copy a stream to a node."""
        await self._cluster.execute(commands.AddLearner(stream, node, expect))

    async def drop_learner(
        self, stream: int, node: int, *, expect: int | None = None
    ) -> None:
        """Stop the copying of a stream to a node; this cancels a move to it."""
        await self._cluster.execute(commands.DropLearner(stream, node, expect))


def _settings(given: object) -> ClientSettings:
    if given is None:
        return ClientSettings()
    if not isinstance(given, ClientSettings):
        kind = type(given).__name__
        msg = f"settings must be a braidlog.client.ClientSettings, not {kind}"
        raise TypeError(msg)
    return given


def connect_async(
    seeds: str | Iterable[str],
    *,
    token: str = "",
    ssl: tls.SSLContext | None = None,
    cluster: str = "",
    settings: ClientSettings | None = None,
) -> AsyncClient:
    """Connect to a cluster, with ``async with``; `connect` is for blocking code.

    ``seeds`` are addresses of some nodes; the client finds the others through them.
    ``ssl`` is a context such as `ssl.create_default_context` returns. ``token`` decides
    what the client may do. If ``cluster`` is given, nodes of another cluster are
    refused.
    """
    from braidlog.client.connection.sockets import socket_connector

    connector = socket_connector(token=token, context=ssl, cluster=cluster)
    return AsyncClient(seeds, connector=connector, settings=settings)


def _check_shard(streams: int) -> None:
    """Refuse what a shard cannot have.

    Raises:
        InvalidArgumentError: it is one of these.
    """
    if streams != 1:
        msg = f"a shard has one stream, got {streams}"
        raise InvalidArgumentError(msg)
