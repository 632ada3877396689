"""The connections of a client and its view of the metadata.

Two tasks ask two nodes for newer metadata by long poll; whoever meets a node that is
not what the routes say asks at once, and all who wait share that request.
"""
# One file: what a client knows of its cluster, and every way to ask for more.

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from braidlog.client.connection.attempts import UNREACHED, Said, first_of, shared
from braidlog.client.connection.link import Answer, Connector, Link
from braidlog.client.connection.links import Links
from braidlog.client.connection.look import Look, look
from braidlog.client.connection.routing import Routes
from braidlog.client.retry import Backoff, Verdict, is_unknown, late, verdict_of
from braidlog.client.settings import ClientSettings
from braidlog.errors import (
    ClosedError,
    DeadlineError,
    LogError,
    NotFoundError,
    NotPrimaryError,
    NotReadyError,
    RemoteProtocolError,
)
from braidlog.raft import NotLeaderError
from braidlog.wire.commands import Command, encode_checked
from braidlog.wire.messages import (
    Execute,
    Executed,
    Feature,
    GetLogEnd,
    GetMetadata,
    GetShardEnd,
    GetTimestamps,
    LogEnd,
    LogInfo,
    LogKind,
    Message,
    Metadata,
    ShardEnd,
)
from braidlog.wire.results import Refused, Result, decode_result

_CALL_BYTES: Final = 16
_WATCHERS: Final = 2
"""Nodes that are asked for news at a time: one of them may hang."""

_METADATA: Final = "the metadata"
_LOG_END: Final = "the end of a log"
_FIX: Final = (
    "Fix what the nodes report (`braidlog cluster status` shows which are missing), "
    "then run it again"
)

_T = TypeVar("_T")


class Cluster:
    """Nodes as one client reaches them."""

    def __init__(
        self, seeds: tuple[str, ...], connector: Connector, settings: ClientSettings
    ) -> None:
        """Remember where to begin; `open` connects."""
        self.settings = settings
        self.closed = False
        self.seeds = seeds
        self._links = Links(connector, settings.connect_timeout_s, settings.share)
        self._routes: Routes | None = None
        self._ends: dict[bytes, int] = {}
        """Where shards end at least, by log: the metadata hears of it later."""
        self._said: dict[bytes, int] = {}
        """Where they end as the metadata said last."""
        self._refreshing: asyncio.Task[Routes] | None = None
        self._watchers: list[asyncio.Task[None]] = []
        self._watched: set[str] = set()
        """Addresses at which a watcher asks."""
        self._changed = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []

    # -- life --------------------------------------------------------------------

    async def open(self) -> None:
        """Find the cluster through its seeds.

        Raises:
            ConnectionLostError: every seed refuses connections.
            DeadlineError: no seed answered in time.
            UnauthorizedError: the token is refused.
        """
        await self.refresh()
        self._watchers = [asyncio.create_task(self._watch(n)) for n in range(_WATCHERS)]

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        self.closed = True
        self._changed.set()
        tasks: list[asyncio.Task[Any]] = [*self._watchers]
        tasks += [self._refreshing] if self._refreshing else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._links.close()

    def check_open(self) -> None:
        """Raise `ClosedError` after `close`."""
        if self.closed:
            raise ClosedError("the client is closed")

    @property
    def routes(self) -> Routes:
        """The newest metadata that is known."""
        self.check_open()
        if self._routes is None:
            raise NotReadyError(
                "the client is not connected yet: use it in `with "
                "braidlog.connect(...)` or `async with braidlog.connect_async(...)`"
            )
        return self._routes

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever the routes have changed."""
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Call it no more."""
        self._listeners.remove(listener)

    def backoff(self) -> Backoff:
        """Return pauses as configured."""
        return Backoff(self.settings.retry_first_s, self.settings.retry_max_s)

    # -- connections -------------------------------------------------------------

    async def link(self, address: str) -> Link:
        """Return the connection to an address; see `Links.link`."""
        self.check_open()
        return await self._links.link(address)

    async def ask(
        self, address: str, message: Message, payload: bytes = b"", *, within: float
    ) -> Answer:
        """Send one request and return the answer; see `Links.ask`."""
        self.check_open()
        return await self._links.ask(address, message, payload, within=within)

    async def ask_node(
        self, node: int, message: Message, payload: bytes = b"", *, within: float
    ) -> Answer:
        """Send one request to a node; see `ask`."""
        address = self.routes.address(node)
        if address is None:
            raise NotReadyError(f"node {node} is not part of the cluster")
        try:
            return await self.ask(address, message, payload, within=within)
        except NotFoundError as error:
            # The replica may have moved; whether the log is gone the routes say.
            raise NotReadyError(f"node {node}: {error.message}") from error

    # -- metadata ----------------------------------------------------------------

    def _addresses(self) -> list[str]:
        known: list[str | None] = []
        if self._routes is not None:
            known = [self._routes.address(node) for node in self._routes.anyone()]
        found = dict.fromkeys([*known, *self.seeds])
        return [address for address in found if address is not None]

    async def refresh(self) -> Routes:
        """Ask for the metadata now and return the newest that is known."""
        self.check_open()
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._any_metadata(GetMetadata()))
        return await shared(self._refreshing, self.check_open)

    async def linearize(self, log: bytes | None = None) -> Routes:
        """Return the metadata as it is now or later, never as it was before.

        Where shards end they themselves know alone: one is asked if it is the ``log``.
        """
        self.check_open()
        routes = await self._any_metadata(GetMetadata(linearizable=True))
        if log is None or routes.log(log).kind is not LogKind.SHARD:
            return routes
        end = await self.shard_end(log)
        self.reached(log, end.next)
        return self.routes

    async def shard_end(self, log: bytes, writer: int = 0) -> ShardEnd:
        """Return where a shard begins and ends now or later, and whose it is.

        With the epoch of a ``writer`` that one is noted to be there.

        Raises:
            NotFoundError: it was deleted.
            FencedError: the shard does not belong to that writer.
        """
        stream = self.routes.log(log).streams[0].stream
        answer, _ = await self.ask_shard(log, GetShardEnd(stream, writer))
        if not isinstance(answer, ShardEnd):
            msg = f"{type(answer).__name__} is no answer to GetShardEnd"
            raise RemoteProtocolError(msg)
        return answer

    async def ask_shard(
        self,
        log: bytes,
        message: Message,
        payload: bytes = b"",
        until: float | None = None,
    ) -> Answer:
        """Have the leader of a shard carry out a request.

        An attempt whose outcome is not known is not repeated unless it only asks. There
        are attempts ``until`` a time of the loop.

        Raises:
            DeadlineError: nobody carried it out in time.
            QuotaExceededError: the same, because of a quota.
        """
        loop, settings = asyncio.get_running_loop(), self.settings
        deadline = loop.time() + settings.timeout_s if until is None else until
        backoff = self.backoff()
        hint = 0
        while True:
            stream = self.routes.log(log).streams[0]
            node = hint or stream.replicas[0]
            within = min(deadline - loop.time(), settings.attempt_timeout_s)
            within = max(within, 0.0)
            try:
                return await self.ask_node(node, message, payload, within=within)
            except LogError as error:
                self.check_open()
                asks = isinstance(message, GetShardEnd | GetTimestamps)
                unknown = is_unknown(error) and not asks
                if unknown or verdict_of(error) is Verdict.FINAL:
                    raise
                if loop.time() >= deadline:
                    msg = f"stream {stream.stream} did not answer in time: {error}"
                    raise late(msg, error) from error
                hint = error.leader if isinstance(error, NotLeaderError) else 0
                if not hint:
                    # Any member may know who leads by now.
                    at = int(settings.share() * len(stream.replicas))
                    hint = stream.replicas[at % len(stream.replicas)]
            await asyncio.sleep(backoff.pause(settings.share()))

    async def told(self, log: bytes) -> None:
        """Wait until the repository knows of a shard where it ends now.

        Raises:
            DeadlineError: it did not hear of it in time.
        """
        if self.routes.log(log).kind is not LogKind.SHARD:
            return
        loop, settings = asyncio.get_running_loop(), self.settings
        deadline = loop.time() + settings.timeout_s
        backoff = self.backoff()
        end = (await self.shard_end(log)).next
        while True:
            await self._any_metadata(GetMetadata(linearizable=True))
            if self._said.get(log, 1) >= end:
                return
            if loop.time() >= deadline:
                name = self.routes.log(log).name
                msg = f"the metadata does not say yet that {name!r} ends at {end}"
                raise DeadlineError(msg)
            await asyncio.sleep(backoff.pause(settings.share()))

    async def told_all(self) -> Routes:
        """Wait until the repository knows of all shards where they end now.

        One that nobody leads must not keep others waiting: it is left as it is known.
        """
        logs = self.routes.metadata.logs
        shards = [each.log for each in logs if each.kind is LogKind.SHARD]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.attempt_timeout_s):
                asked = map(self.told, shards)
                await asyncio.gather(*asked, return_exceptions=True)
        self.check_open()
        return self.routes

    def reached(self, log: bytes, end: int) -> None:
        """Note that a shard ends there at least."""
        known = self._routes
        if known is None or end <= self._ends.get(log, 0):
            return
        self._ends[log] = end
        if end - 1 > known.log(log).high_watermark:
            self._routes = Routes(self._overlaid(known.metadata))

    def _overlaid(self, metadata: Metadata) -> Metadata:
        """Return metadata in which no shard ends before where it is known to end."""
        ends = self._ends
        if not ends:
            return metadata
        logs = tuple(
            _ending(info, ends[info.log]) if info.log in ends else info
            for info in metadata.logs
        )
        return msgspec.structs.replace(metadata, logs=logs)

    async def log_end(self, log: bytes) -> LogEnd:
        """Return where a log ends now or later, and its tables if they have changed.

        Raises:
            NotFoundError: it was deleted.
        """
        routes = self.routes
        shard = routes.log(log).kind is LogKind.SHARD
        if shard or not routes.features & Feature.LOG_ENDS:
            routes = await self.linearize(log)
            return LogEnd(routes.index, routes.log(log).high_watermark)
        request = GetLogEnd(log, routes.index)

        async def attempt(address: str, within: float) -> LogEnd:
            answer, _ = await self.ask(address, request, within=within)
            if not isinstance(answer, LogEnd):
                msg = f"{type(answer).__name__} is no answer to GetLogEnd"
                raise RemoteProtocolError(msg)
            return answer

        return await self._anywhere(attempt, _LOG_END)

    async def look(self, within: float) -> Look:
        """Return what there is to see of the cluster, whatever is left of it."""
        self.check_open()
        return await look(self._links, self._addresses(), within)

    async def judged(self) -> Metadata:
        """Return the metadata with what only the leader knows of nodes and replicas."""
        self.check_open()
        request = GetMetadata(linearizable=True, by_leader=True)

        async def attempt(address: str, within: float) -> Metadata:
            # The routes stay: of what they have nothing depends on who is in sync.
            answer, _ = await self.ask(address, request, within=within)
            return _metadata(answer)

        return await self._anywhere(attempt, _METADATA)

    async def _any_metadata(self, request: GetMetadata) -> Routes:
        async def attempt(address: str, within: float) -> Routes:
            answer, _ = await self.ask(address, request, within=within)
            return self._accept(answer)

        return await self._anywhere(attempt, _METADATA)

    async def _anywhere(
        self, attempt: Callable[[str, float], Coroutine[Any, Any, _T]], what: str
    ) -> _T:
        """Make an attempt at the nodes, again and again, until one succeeds.

        Who was never there is not waited for as long as who is away.
        """
        loop = asyncio.get_running_loop()
        settings = self.settings
        deadline = loop.time() + settings.timeout_s
        refused_until = min(deadline, loop.time() + settings.refused_s)
        backoff = self.backoff()
        first: list[str] = []
        said = Said()
        unknown = False
        """Whether an attempt may have been carried out."""

        async def tried(address: str) -> _T:
            nonlocal unknown
            within = min(deadline - loop.time(), settings.attempt_timeout_s)
            try:
                return await attempt(address, max(0.0, within))
            except LogError as error:
                said.note(address, error, whole=within == settings.attempt_timeout_s)
                unknown = unknown or is_unknown(error)
                if (found := self._hint(error)) is not None:
                    first[:] = [found]
                raise

        while True:
            pause = backoff.pause(settings.share())
            if strangers := self._routes is None and said.all_refused:
                pause = min(pause, max(0.0, refused_until - loop.time()))
            await asyncio.sleep(pause)
            addresses = dict.fromkeys([*first, *self._addresses()])
            try:
                return await first_of(
                    [partial(tried, each) for each in addresses], settings.hedge_s
                )
            except LogError as error:
                self.check_open()
                if verdict_of(error) is Verdict.FINAL:
                    raise
                if strangers and said.all_refused and loop.time() >= refused_until:
                    raise said.unreached("node") from error
                if loop.time() >= deadline:
                    msg = (
                        f"no node carried out the request for {what} within "
                        f"{settings.timeout_s:g} seconds"
                    )
                    failed = late(f"{msg}: {said}", said.quota)
                    if unknown:
                        failed.outcome = "unknown"
                    # That of the class is for appends.
                    asked = what in {_METADATA, _LOG_END}
                    done = "" if asked else "; completed steps are skipped"
                    strange = self._routes is None
                    failed.hint = UNREACHED if strange else f"{_FIX}{done}"
                    raise failed from error

    def _hint(self, error: LogError) -> str | None:
        if not isinstance(error, NotPrimaryError) or self._routes is None:
            return None
        return self._routes.address(error.primary)

    def _accept(self, answer: Message) -> Routes:
        answer = _metadata(answer)
        self._said |= {
            info.log: max(info.high_watermark + 1, self._said.get(info.log, 1))
            for info in answer.logs
            if info.kind is LogKind.SHARD
        }
        answer = self._overlaid(answer)
        known = self._routes
        if known is not None and answer.cluster != known.metadata.cluster:
            raise RemoteProtocolError(
                f"the address belongs to cluster {answer.cluster!r}, not to "
                f"{known.metadata.cluster!r}"
            )
        # The index counts decisions; who is alive may change without one.
        if known is not None and (
            answer.index < known.index or answer == known.metadata
        ):
            return known
        self._routes = Routes(answer)
        self._changed.set()
        self._changed = asyncio.Event()
        for listener in list(self._listeners):
            listener()
        return self._routes

    async def change(self, within: float) -> None:
        """Wait until the routes change, at most ``within`` seconds."""
        changed = self._changed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await changed.wait()

    async def _watch(self, number: int) -> None:
        """Ask one node for what is newer; each watcher asks another one.

        A node lets one question of a connection wait: a second would end the first.
        """
        settings = self.settings
        backoff = self.backoff()
        loop = asyncio.get_running_loop()
        answered = -math.inf
        while True:
            addresses = self._addresses()
            tried = False
            for address in (*addresses[number:], *addresses[:number]):
                if address in self._watched:
                    continue
                tried = True
                if await self._watch_at(address):
                    backoff.reset()
                    # Of two decisions in a row, the second may be what is waited for.
                    before, answered = answered, loop.time()
                    if answered - before < settings.metadata_pause_s:
                        await asyncio.sleep(settings.metadata_pause_s)
                    break
                # The next node may know; those who need an answer get the error.
                await asyncio.sleep(backoff.pause(settings.share()))
            if not tried:
                await asyncio.sleep(settings.poll_s)

    async def _watch_at(self, address: str) -> bool:
        """Ask a node for what is newer; tell whether it answered."""
        settings = self.settings
        request = GetMetadata(self.routes.index, int(settings.poll_s * 1000))
        within = settings.poll_s + settings.attempt_timeout_s
        self._watched.add(address)
        try:
            answer, _ = await self.ask(address, request, within=within)
            self._accept(answer)
        except LogError:
            self.check_open()
            return False
        finally:
            self._watched.discard(address)
        return True

    # -- commands ----------------------------------------------------------------

    async def execute(self, command: Command) -> Result:
        """Execute a command once, however often it has to be sent.

        The routes are at least as new as the command when this returns.

        Raises:
            DeadlineError: the outcome is not known.
            LogError: the command was refused.
        """
        self.check_open()
        request = Execute(self.settings.entropy(_CALL_BYTES))
        payload = encode_checked(command)

        async def attempt(address: str, within: float) -> tuple[int, Result]:
            answer, body = await self.ask(address, request, payload, within=within)
            if not isinstance(answer, Executed):
                msg = f"{type(answer).__name__} is no answer to Execute"
                raise RemoteProtocolError(msg)
            return answer.index, decode_result(bytes(body))

        index, result = await self._anywhere(attempt, type(command).__name__)
        if isinstance(result, Refused):
            raise result.error()
        if self.routes.index < index:
            await self.linearize()
        return result

    def streams_of(self, log: bytes) -> Iterable[int]:
        """Return the streams of a log."""
        return (info.stream for info in self.routes.log(log).streams)


def _ending(info: LogInfo, end: int) -> LogInfo:
    if info.kind is not LogKind.SHARD or end - 1 <= info.high_watermark:
        return info
    stream = msgspec.structs.replace(info.streams[0], committed=end)
    return msgspec.structs.replace(info, streams=(stream,), high_watermark=end - 1)


def _metadata(answer: Message) -> Metadata:
    if not isinstance(answer, Metadata):
        msg = f"{type(answer).__name__} is no answer to GetMetadata"
        raise RemoteProtocolError(msg)
    return answer
