"""The connections of a client and its view of the metadata.

Two tasks ask two nodes for newer metadata by long poll; whoever meets a node that is
not what the routes say asks at once, and all who wait share that request.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, TypeVar

from braidlog.client.connection.attempts import UNREACHED, Said, first_of, shared
from braidlog.client.connection.link import Answer, Connector, Link
from braidlog.client.connection.links import Links
from braidlog.client.connection.look import Look, look
from braidlog.client.connection.routing import Routes
from braidlog.client.retry import Backoff, Verdict, verdict_of
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
from braidlog.wire.commands import Command, encode_checked
from braidlog.wire.messages import (
    Execute,
    Executed,
    Feature,
    GetLogEnd,
    GetMetadata,
    LogEnd,
    Message,
    Metadata,
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
        self._links = Links(connector, settings.connect_timeout_s)
        self._routes: Routes | None = None
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

    async def linearize(self) -> Routes:
        """Return the metadata as it is now or later, never as it was before."""
        self.check_open()
        return await self._any_metadata(GetMetadata(linearizable=True))

    async def log_end(self, log: bytes) -> LogEnd:
        """Return where a log ends now or later, and its tables if they have changed.

        Raises:
            NotFoundError: it was deleted.
        """
        routes = self.routes
        if not routes.features & Feature.LOG_ENDS:
            routes = await self.linearize()
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

        async def tried(address: str) -> _T:
            within = min(deadline - loop.time(), settings.attempt_timeout_s)
            try:
                return await attempt(address, max(0.0, within))
            except LogError as error:
                said.note(address, error, whole=within == settings.attempt_timeout_s)
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
                    failed = DeadlineError(f"{msg}: {said}")
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


def _metadata(answer: Message) -> Metadata:
    if not isinstance(answer, Metadata):
        msg = f"{type(answer).__name__} is no answer to GetMetadata"
        raise RemoteProtocolError(msg)
    return answer
