"""A node with its sockets, its disk and its clock: from start to graceful stop."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Self

from braidlog.errors import (
    CorruptionError,
    ForeignFormatError,
    LogError,
    NotFoundError,
)
from braidlog.metarepo.events import Event, EventName, Value
from braidlog.node.config import TABLES, NodeConfig
from braidlog.node.errors import DamagedNodeError
from braidlog.node.metrics.event_log import tell
from braidlog.node.metrics.status import NodeStatus, Observed
from braidlog.node.node import ClusterNode
from braidlog.node.peers.identity import is_new
from braidlog.node.reload import Difference, compare
from braidlog.node.rescue.fault_log import FaultLog
from braidlog.node.rescue.ring import Ring
from braidlog.node.syncer import Syncer, ThreadSyncer
from braidlog.node.tables.native_engine import NativeEngine
from braidlog.node.tables.settings import TableSettings
from braidlog.node.tables.tables import TableWork
from braidlog.node.tables.worker import ThreadWorker
from braidlog.serving.credentials import Credentials, Keyring, read_credentials
from braidlog.serving.security import distrust
from braidlog.serving.sessions import Listening, Request, Session, told
from braidlog.serving.shares import ShareBounds
from braidlog.store.node_store import NodeStore
from braidlog.store.threads import in_thread
from braidlog.wire.connection import Poll
from braidlog.wire.messages import Reloaded

_log = logging.getLogger(__name__)

_POLL_S: Final = 0.02
_OWN_DIRECTORY: Final = (
    "Give the node its own directory in [node] data. To move the "
    "records, use `braidlog export` and `braidlog import`"
)


class NodeServer:
    """One node: `async with NodeServer(config) as server: await server.serve(stop)`."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        store: NodeStore | None = None,
        syncer: Syncer | None = None,
        seed: int | None = None,
        ring: Ring | None = None,
        shares: ShareBounds | None = None,
        files_max: int = 0,
        tables: TableWork | None = None,
        clock: Callable[[], float] = time.monotonic,
        poll: Poll | None = None,
        reread: Callable[[], NodeConfig] | None = None,
        set_level: Callable[[str], None] = lambda level: None,
    ) -> None:
        """Take the settings; a store, syncer and ring other than those of the disk.

        With a store and without a ring the node keeps no fault log. ``shares`` and
        ``files_max`` bound what connections get, where the usual ones are too large to
        be reached. ``tables`` is what tables are kept with; None: the native engine
        in the directory or, where another store is given, there are none. ``clock``
        measures how long syncs take. ``poll`` is that of the loop, if it has one.
        ``reread`` gives the settings as they are now, for reloads; None: they cannot
        have changed. ``set_level`` sets what is logged.
        """
        self._poll = poll
        self._clock = clock
        self._config = config
        self._reread = reread or (lambda: config)
        self._set_level = set_level
        self._keyring: Keyring
        self._reloading = asyncio.Lock()
        self._reloads: set[asyncio.Task[None]] = set()
        self._store = store
        self._syncer = syncer
        self._ring = ring
        self._shares = shares
        self._files_max = files_max
        self._tables = tables
        # The identity of a new directory comes from it too: 128 bits.
        self._seed = secrets.randbits(128) if seed is None else seed
        self._stack = AsyncExitStack()
        self._listener: Listening
        self.node: ClusterNode

    async def __aenter__(self) -> Self:
        """Open the store, listen, start.

        Raises:
            LogError: the directory cannot be opened, or a setting cannot serve.
            UnavailableError: the address cannot be listened on.
        """
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening, close everything."""
        await self._stack.aclose()

    async def _start(self, stack: AsyncExitStack) -> None:
        config = self._config
        credentials = read_credentials(config.security)
        self._keyring = keyring = Keyring(credentials)
        if refused := own_certificate(config, credentials):
            _log.warning("%s", refused)
        store = self._store or open_store(config)
        syncer = self._syncer or ThreadSyncer(store)
        stack.push_async_callback(syncer.close)
        if config.limits.wal_ready_bytes:
            await in_thread(store.provision, config.limits.wal_ready_bytes)
        with damage_explained(config):
            faults = self._open_faults(store)
            self.node = ClusterNode(
                config,
                store,
                syncer,
                authorize=keyring.authorize,
                tls=credentials.client,
                token=credentials.peer_token,
                challenger=keyring.challenger(),
                seed=self._seed,
                faults=faults,
                shares=self._shares,
                files_max=self._files_max,
                tables=self._tables or self._open_tables(),
                clock=self._clock,
                poll=self._poll,
            )
        stack.push_async_callback(self.node.close_faults)
        stack.push_async_callback(self.node.close_tables)
        await self.node.start()
        stack.callback(self.node.close)
        self.node.reload = self._take_reload
        stack.callback(self._end_reloads)
        listener = await self.node.sessions.listen(
            config.node.listen, "[node] listen", credentials.server
        )
        self._listener = listener
        stack.callback(listener.close)
        stack.callback(self.node.sessions.close)
        if config.node.http:
            await stack.enter_async_context(
                _http(config.node.http, self.node.status, self.node.observed)
            )
        _log.info(
            "node %d listens on %s",
            config.node.id,
            config.node.listen,
            extra={
                "event": "node_listens",
                "node": config.node.id,
                "address": config.node.listen,
                "incarnation": self.node.incarnation,
                "sockets": "loop" if self._poll is None else "core",
            },
        )

    def _end_reloads(self) -> None:
        for task in self._reloads:
            task.cancel()

    def _open_tables(self) -> TableWork | None:
        if self._store is not None:
            return None
        config = self._config
        settings = TableSettings(
            memory_bytes_max=config.limits.tables_memory_bytes,
            repair_s=config.timing.table_repair_ms / 1000,
        )
        return native_tables(Path(config.node.data) / TABLES, settings)

    def _open_faults(self, store: NodeStore) -> FaultLog | None:
        config = self._config
        if self._ring is not None:
            return FaultLog(self._ring, config.cluster.name, config.node.id)
        if self._store is not None:
            return None
        return FaultLog.open(
            config.node.data,
            config.cluster.name,
            config.node.id,
            create=is_new(store),
        )

    def _take_reload(self, request: Request) -> None:
        """Reload for who asks, in a task: files are read."""
        task = asyncio.create_task(self._answer_reload(request))
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _answer_reload(self, request: Request) -> None:
        try:
            await self.reload(request.answer)
        except Exception as error:
            request.fail(told(error, "Reload"))

    async def reload(
        self, answer: Callable[[Reloaded], None] = lambda reloaded: None
    ) -> Reloaded:
        """Read settings, tokens and certificates again, and use them.

        Connections stay, but for those whose token was removed or allows less: they are
        closed after ``answer`` was told what was done. What is logged says the same.

        Raises:
            InvalidArgumentError: something is wrong, so nothing was changed.
        """
        async with self._reloading:
            counters = self.node.reloads
            try:
                difference, credentials = await in_thread(self._read_again)
            except Exception as error:
                counters.reloads_refused += 1
                self._say_refused(told(error, "reading the settings again"))
                raise
            reloaded, ending = self._apply(difference, credentials)
            counters.reloads += 1
            counters.connections_revoked += len(ending)
            self._say_reloaded(reloaded)
            answer(reloaded)
            for session, why in ending.items():
                session.make_way(why)
            return reloaded

    def _read_again(self) -> tuple[Difference, Credentials]:
        difference = compare(self._config, self._reread())
        return difference, read_credentials(difference.config.security)

    def _apply(
        self, difference: Difference, credentials: Credentials
    ) -> tuple[Reloaded, dict[Session, str]]:
        """Put it in force, in one turn of the loop."""
        keyring, node = self._keyring, self.node
        changed = difference.changed + credentials.changes(keyring.credentials)
        self._config = difference.config
        keyring.credentials = credentials
        node.sessions.protect(keyring.challenger(), credentials.server)
        node.peers.protect(credentials.client, credentials.peer_token)
        self._set_level(difference.config.log.level)
        node.sessions.change_quotas(keyring.quotas_of)
        ending = node.sessions.ending(keyring.ends)
        doubt = own_certificate(difference.config, credentials)
        reloaded = Reloaded(
            tuple(changed),
            tuple(difference.ignored),
            (doubt,) if doubt else (),
            len(ending),
        )
        return reloaded, ending

    def _say_reloaded(self, done: Reloaded) -> None:
        changed = "; ".join(done.changed)
        text = f"the settings were read again: {changed or 'nothing has changed'}"
        if done.ignored:
            text += f"; after a restart also {', '.join(done.ignored)}"
        for doubt in done.warnings:
            text += f"; {doubt}"
        fields: dict[str, Value] = {
            "changed": changed,
            "ignored": ", ".join(done.ignored),
            "closed": done.closed,
        }
        warning = bool(done.ignored or done.warnings)
        event = Event("settings_reloaded", text, fields, warning=warning)
        tell(_log, self._config.node.id, event)

    def _say_refused(self, error: LogError) -> None:
        text = f"the settings were not read again, nothing has changed: {error}"
        event = Event("reload_refused", text, {"reason": error.message}, warning=True)
        tell(_log, self._config.node.id, event)

    async def serve(
        self, stop: asyncio.Event, hurry: asyncio.Event | None = None
    ) -> None:
        """Serve until `stop` is set, then end gracefully; at once if `hurry` is set.

        Raises:
            LogError: the node cannot go on: its store has failed, or an invariant is
                broken.
        """
        failed = self.node.failed
        failed.add_done_callback(lambda _: stop.set())
        await stop.wait()
        if failed.done():
            raise failed.result()
        await self._drain(hurry or asyncio.Event())

    async def _drain(self, hurry: asyncio.Event) -> None:
        """Hand leadership over, and answer what is open, as long as that takes."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.timing.drain_ms / 1000
        self._say("node_stops", "the node is shutting down")
        self.node.drain()
        while self.node.unanswered and loop.time() < deadline:
            if hurry.is_set():
                break
            await asyncio.sleep(_POLL_S)
        # First, or who is told would be back at once.
        self._listener.close()
        self.node.sessions.goodbye("the node is shutting down")
        self._say("node_stopped", "the node has stopped")

    def _say(self, name: EventName, text: str) -> None:
        tell(_log, self._config.node.id, Event(name, text))


def open_store(config: NodeConfig) -> NodeStore:
    """Open the directory of the node, or make it.

    Raises:
        DamagedNodeError: what is in it cannot be trusted.
        ForeignFormatError: it has the logs of an embedded log.
        LogError: see `braidlog.open`.
    """
    with damage_explained(config):
        store = NodeStore(
            Path(config.node.data),
            entropy=secrets.randbits(64),
            now=lambda: time.time_ns() // 1000,
            wal_bytes_max=config.limits.wal_bytes_max,
            segment_bytes=config.limits.segment_bytes,
        )
    try:
        if is_new(store):
            refuse_embedded(config, store.names())
    except BaseException:
        store.close()
        raise
    return store


def native_tables(directory: Path, settings: TableSettings | None = None) -> TableWork:
    """Return what tables are kept with in a directory, which may not be there yet."""
    settings = settings or TableSettings()
    return TableWork(
        NativeEngine(directory),
        ThreadWorker(settings.workers),
        ThreadWorker(settings.slow_workers),
        settings,
    )


def refuse_embedded(config: NodeConfig, names: Sequence[str]) -> None:
    """Refuse a directory that has logs, and in which no node was ever started.

    Raises:
        ForeignFormatError: there are ``names`` of logs.
    """
    if names:
        data = config.node.data
        msg = (
            f"{data} has the embedded log {names[0]!r}; it is not the directory "
            "of a cluster node"
        )
        foreign = ForeignFormatError(msg, path=data)
        foreign.hint = _OWN_DIRECTORY
        raise foreign


def own_certificate(config: NodeConfig, credentials: Credentials) -> str:
    """Return why the other nodes would not connect to this one, if so.

    It starts nevertheless: authorities are changed node by node.
    """
    server, client = credentials.server, credentials.client
    if server is None or client is None or len(config.cluster.voters) == 1:
        return ""
    return distrust(config.security, config.advertise, server, client)


@contextmanager
def damage_explained(config: NodeConfig) -> Iterator[None]:
    """Say of damage that is found in the block whose it is."""
    try:
        yield
    except NotFoundError as error:
        # It would go on as if nobody had failed: the record may say something else.
        msg = f"the fault log of node {config.node.id} is missing: {error.message}"
        raise DamagedNodeError(msg, path=config.node.data) from error
    except CorruptionError as error:
        msg = f"the directory of node {config.node.id} is damaged: {error.message}"
        raise DamagedNodeError(msg, path=error.path, offset=error.offset) from error


def _http(
    address: str,
    status: Callable[[], NodeStatus],
    observed: Callable[[], Observed],
) -> Any:
    # Late: a node without metrics needs no library for them.
    from braidlog.node.metrics.status_collector import StatusCollector
    from braidlog.serving.http import StatusServer

    return StatusServer(
        address,
        status,
        lambda ask: StatusCollector(lambda: ask(observed)),
    )
