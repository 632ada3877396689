"""Drives a `Merge`: reads its streams from any replica, all at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from braidlog.client.connection.link import Answer
from braidlog.client.connection.routing import Routes
from braidlog.client.read.merge import Merge, MergeGapError, Span, Want
from braidlog.client.retry import Backoff, Verdict, verdict_of
from braidlog.client.settings import ClientSettings
from braidlog.closable import AsyncClosable
from braidlog.errors import (
    LogError,
    NotReadyError,
    RemoteProtocolError,
    TrimmedError,
)
from braidlog.wire.messages import Read, Records

_MILLISECONDS: Final = 1000


class MergeSource(Protocol):
    """What a reading needs of a cluster, as a client or a node reaches it."""

    @property
    def settings(self) -> ClientSettings:
        """Bounds and times."""

    @property
    def routes(self) -> Routes:
        """The newest metadata that is known."""

    def check_open(self) -> None:
        """Raise `ClosedError` when nothing can be asked any more."""

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever the routes have changed."""

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Call it no more."""

    def backoff(self) -> Backoff:
        """Return pauses as configured."""

    def streams_of(self, log: bytes) -> Iterable[int]:
        """Return the streams of a log."""

    async def ask_node(self, node: int, message: Read, *, within: float) -> Answer:
        """Send one request to a node."""

    async def refresh(self) -> Routes:
        """Ask for the metadata now and return the newest that is known."""

    async def linearize(self, log: bytes | None = None) -> Routes:
        """Return the metadata as it is now or later, never as it was before."""


class MergeReader(AsyncClosable):
    """Positions ``begin`` to ``end`` of a log; for ever without an ``end``."""

    def __init__(
        self,
        cluster: MergeSource,
        log: bytes,
        begin: int,
        end: int | None = None,
        *,
        prefetch_bytes: int | None = None,
        turn: int = 0,
    ) -> None:
        """Begin to read when `next` is called, with the replicas of a ``turn``."""
        self._cluster = cluster
        self._log = log
        credit = prefetch_bytes or cluster.settings.prefetch_bytes
        streams = list(cluster.streams_of(log))
        self._merge = Merge(streams, begin, end, credit_bytes=credit)
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: dict[asyncio.Task[Answer], tuple[int, int]] = {}
        self._fed = asyncio.Event()
        self._error: BaseException | None = None
        # Which of its replicas a stream is read from; goes on when that one is no help.
        self._turn = turn
        self._turns: dict[int, int] = {}
        cluster.listen(self._routes_changed)

    @property
    def position(self) -> int:
        """What comes next."""
        return self._merge.position

    async def __aenter__(self) -> MergeReader:
        """Return the reading."""
        return self

    async def close(self) -> None:
        """Stop all reads. Idempotent."""
        with contextlib.suppress(ValueError):
            self._cluster.unlisten(self._routes_changed)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _routes_changed(self) -> None:
        routes = self._cluster.routes
        try:
            self._take_streams()
            for asked, (stream, node) in self._asked.items():
                # It may hang, and would be waited for as long as a poll may take.
                if self._is_gone(stream) or node not in routes.readers(stream):
                    asked.cancel()
        except LogError as error:
            self._fail(error)
        self._fed.set()

    def _take_streams(self) -> bool:
        """Read the streams that the log has now; tell whether they are others."""
        there, known = set(self._cluster.streams_of(self._log)), self._merge.streams
        self._merge.extend(sorted(there - known))
        self._merge.forget(known - there)
        return there != known

    def _is_gone(self, stream: int) -> bool:
        return stream not in self._cluster.streams_of(self._log)

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
        self._fed.set()

    async def next(self, within: float | None = None) -> list[Span]:
        """Return the spans that come next; none at the end or after ``within`` seconds.

        Raises:
            TrimmedError: the position was trimmed.
            NotFoundError: the log was deleted.
            ClosedError: the client was closed.
        """
        try:
            async with asyncio.timeout(within):
                while not self._merge.done:
                    self._cluster.check_open()
                    if self._error is not None:
                        raise self._error
                    self._fed.clear()
                    try:
                        spans = self._merge.take()
                    except MergeGapError:
                        await self._find_streams()
                        continue
                    self._ask()
                    if spans:
                        return spans
                    await self._fed.wait()
        except TimeoutError as error:
            if isinstance(error, LogError):
                raise
        return []

    async def _find_streams(self) -> None:
        """Look for the stream that has the position: it may have been added.

        Raises:
            MergeGapError: there is no other stream.
            TrimmedError: the stream was removed, and all of it trimmed.
        """
        routes = await self._cluster.linearize()
        self._merge.extend(self._cluster.streams_of(self._log))
        try:
            self._merge.check_dense()
        except MergeGapError as error:
            first = max(1, routes.log(self._log).trim)
            if self.position >= first:
                raise
            msg = f"position {self.position} was trimmed"
            raise TrimmedError(msg, first=first) from error

    def _ask(self) -> None:
        for want in self._merge.wants():
            task = asyncio.create_task(self._fetch(want))
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    async def _fetch(self, want: Want) -> None:
        cluster = self._cluster
        settings = cluster.settings
        backoff = cluster.backoff()
        self._turns.setdefault(want.stream, self._turn)
        request = Read(
            want.stream,
            want.begin,
            want.by_glsn,
            want.bytes_max,
            int(settings.read_wait_s * _MILLISECONDS),
        )
        within = settings.read_wait_s + settings.attempt_timeout_s
        while True:
            if pause := backoff.pause(settings.share()):
                await asyncio.sleep(pause)
            try:
                nodes = self._readers(want.stream)
                node = nodes[self._turns[want.stream] % len(nodes)]
                answer, payload = await self._ask_node(node, request, within)
                if not isinstance(answer, Records) or answer.stream != want.stream:
                    msg = f"{type(answer).__name__} is no answer to Read"
                    raise RemoteProtocolError(msg)
            except TrimmedError as error:
                await self._trimmed(want, error)
                return
            except LogError as error:
                cluster.check_open()
                if self._is_gone(want.stream):
                    # It had nothing that is still to be read.
                    self._merge.lost(want.stream)
                    self._fed.set()
                    return
                if verdict_of(error) is Verdict.FINAL:
                    raise
                self._turns[want.stream] += 1
                await cluster.refresh()
                continue
            if answer.sizes or self._says_more(want, answer):
                self._merge.feed(answer, payload)
                self._ask()  # Before what came is taken.
                self._fed.set()
                return
            # Nothing yet; a replica that lags must not be asked for ever.
            self._turns[want.stream] += 1

    async def _ask_node(self, node: int, request: Read, within: float) -> Answer:
        """Ask a node, as long as it has the stream."""
        asking = asyncio.create_task(
            self._cluster.ask_node(node, request, within=within)
        )
        self._asked[asking] = request.stream, node
        try:
            await asyncio.wait([asking])
        finally:
            del self._asked[asking]
            asking.cancel()
        if asking.cancelled():
            msg = f"node {node} no longer has a replica of stream {request.stream}"
            raise NotReadyError(msg)
        return asking.result()

    def _readers(self, stream: int) -> tuple[int, ...]:
        """Return who can be asked, the best first."""
        nodes = self._cluster.routes.readers(stream)
        only = self._cluster.settings.read_node
        if only:
            nodes = tuple(node for node in nodes if node == only)
        if not nodes:
            where = f" on node {only}" if only else ""
            msg = f"no replica of stream {stream}{where} can serve reads now"
            raise NotReadyError(msg)
        return nodes

    def _says_more(self, want: Want, answer: Records) -> bool:
        """Return whether an answer without records brings the merge on."""
        end = None if want.by_glsn else self._merge.end
        return answer.complete >= (self.position if end is None else end - 1)

    async def _trimmed(self, want: Want, error: TrimmedError) -> None:
        routes = await self._cluster.linearize()
        first = max(1, routes.log(self._log).trim)
        if want.by_glsn:
            first = max(first, error.first)
        if self.position < first:
            raise TrimmedError(f"position {self.position} was trimmed", first=first)
        # Only what was passed on, or lies with another stream, is gone.
        self._merge.enter(want.stream)
        self._fed.set()
