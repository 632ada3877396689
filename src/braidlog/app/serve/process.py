"""The process of `braidlog app run`: a host, its listener, signals, exit codes."""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from braidlog.app.host.host import Host
from braidlog.app.log.stop import Stop
from braidlog.app.serve.server import CallServer
from braidlog.app.serve.status import HostStatus, status_of
from braidlog.app.snapshots.transfer import StateCopies
from braidlog.client.background import new_loop
from braidlog.errors import ClosedError, LogError
from braidlog.serving.credentials import Keyring, read_credentials
from braidlog.serving.descriptors import allow_files, places
from braidlog.serving.json_logs import JsonFormatter
from braidlog.serving.sessions import Sessions
from braidlog.serving.settings import SecuritySettings, check_exposure
from braidlog.serving.signals import on_end, on_reload
from braidlog.serving.transport import Outbox
from braidlog.store.threads import close_in_thread, in_thread
from braidlog.wire.messages import AppStatus
from braidlog.wire.server import ServerSettings

_log = logging.getLogger(__name__)

_POLL_S: Final = 0.02
_FAILED: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """Where a host listens, and what it bears."""

    listen: str = ""
    """host:port for callers; none if empty."""
    http: str = ""
    """host:port of metrics, health and readiness; none if empty."""
    security: SecuritySettings = field(default_factory=SecuritySettings)
    window_bytes: int = 8 << 20
    """Unanswered calls of one connection."""
    frame_bytes_max: int = 4 << 20
    """Largest call or answer."""
    incoming_bytes_max: int = 64 << 20
    """Calls that are not whole yet, of all connections."""
    connections_max: int = 10_000
    """Callers at a time, if the limit of open files allows so many."""
    drain_s: float = 10.0
    """A graceful stop waits so long for calls in flight."""

    def __post_init__(self) -> None:
        """Refuse what would serve strangers.

        Raises:
            InvalidArgumentError: names the setting.
        """
        listens = {"--listen": self.listen, "--http": self.http}
        check_exposure(listens, self.security)


class HostServer:
    """A host that others call: ``async with HostServer(host, settings) as server``."""

    def __init__(self, host: Host, settings: ServeSettings) -> None:
        """Take an open host; it stays open when the server ends."""
        self._host = host
        self._settings = settings
        self._stack = AsyncExitStack()
        self._sessions: Sessions | None = None
        self._keyring: Keyring | None = None
        self._calls: CallServer | None = None

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            InvalidArgumentError: a file of certificates or tokens does not fit.
            UnavailableError: the address cannot be listened on.
        """
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening; `drain` before that lets calls end."""
        await self._stack.aclose()

    async def _start(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        credentials = read_credentials(settings.security)
        self._keyring = keyring = Keyring(credentials)
        self._calls = CallServer(self._host, self._said, self._copies(stack))
        stack.callback(self._calls.close)
        rules = ServerSettings(
            cluster=self._host.application.name,
            node=0,
            authorize=keyring.authorize,
            window_bytes=settings.window_bytes,
            frame_bytes_max=settings.frame_bytes_max,
            # A call that only reads has arguments too.
            request_bytes_max=settings.frame_bytes_max,
        )
        self._sessions = Sessions(
            rules,
            self._calls,
            places(settings.connections_max),
            settings.incoming_bytes_max,
            Outbox(),
        )
        stack.callback(self._sessions.close)
        if settings.listen:
            tls = credentials.server
            listener = await self._sessions.listen(settings.listen, "--listen", tls)
            stack.callback(listener.close)
        if settings.http:
            await stack.enter_async_context(self._http(settings.http))

    def _copies(self, stack: AsyncExitStack) -> StateCopies:
        copies: StateCopies | None = getattr(self._host, "copies", None)
        if copies is None:
            directory = tempfile.TemporaryDirectory(prefix="braidlog-copy-")
            where = Path(stack.enter_context(directory))
            copies = StateCopies(self._host.runner, where / "copy")
        return copies

    def _http(self, address: str) -> Any:
        # Late: a host without metrics needs no library for them.
        from braidlog.app.serve.metrics import HostCollector
        from braidlog.serving.http import StatusServer

        return StatusServer(
            address,
            self.status,
            lambda ask: HostCollector(lambda: ask(self.status)),
            "--http",
        )

    def _said(self, hashes: tuple[bytes, ...]) -> AppStatus:
        cursor = getattr(self._host, "cursor", None)
        return status_of(
            self._host.runner,
            connections=len(self._sessions) if self._sessions is not None else 0,
            kept=cursor.kept if cursor is not None else 0,
            snapshot=self._host.newest_snapshot,
            growth=self._host.growth,
            draining=self._calls is not None and self._calls.draining,
            hashes=hashes,
            alarms=self._host.alarms,
        )

    def status(self) -> HostStatus:
        """Return how the host is."""
        return HostStatus(self._said(()), self._host.runner.failure is None)

    async def reload(self) -> list[str]:
        """Read tokens and certificates again, use them, and return what has changed.

        Connections stay, but for those whose token was removed or allows less.

        Raises:
            InvalidArgumentError: a file is wrong, so nothing was changed.
        """
        assert self._sessions is not None, "entered"
        assert self._keyring is not None, "entered"
        keyring, sessions = self._keyring, self._sessions
        found = await in_thread(read_credentials, self._settings.security)
        changed = found.changes(keyring.credentials)
        keyring.credentials = found
        sessions.protect(keyring.challenger(), found.server)
        sessions.change_quotas(keyring.quotas_of)
        for session, why in sessions.ending(keyring.ends).items():
            session.make_way(why)
        return changed

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set, then let calls end.

        Raises:
            LogError: the host cannot go on.
        """
        while not stop.is_set():
            if (failure := self._host.runner.failure) is not None:
                raise failure
            try:
                async with asyncio.timeout(_POLL_S * 10):
                    await stop.wait()
            except TimeoutError:
                continue
        await self.drain()

    async def drain(self) -> None:
        """Take no more calls, and answer those that came, as long as that takes."""
        assert self._calls is not None, "entered"
        assert self._sessions is not None, "entered"
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.drain_s
        self._calls.draining = True
        while self._sessions.unanswered and loop.time() < deadline:  # noqa: ASYNC110, RUF100
            await asyncio.sleep(_POLL_S)
        self._sessions.goodbye("the host stops")


def run(
    open_host: Callable[[Stop], Host],
    settings: ServeSettings,
    code_of: Callable[[LogError], int] = lambda error: _FAILED,
) -> int:
    """Open a host and serve until SIGTERM or SIGINT; return the exit code.

    SIGHUP has it read its tokens and certificates again.
    That is ``code_of`` what the host could not be opened or not go on with. A signal
    ends the opening too, however much there is to be executed: the code is 0, and the
    next start goes on from there.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    allow_files()
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_run(open_host, settings))
    except LogError as error:
        _log.critical("the host stops: %s", error)
        return code_of(error)
    return 0


async def _reload(server: HostServer, asked: asyncio.Event) -> None:
    """Reload whenever somebody asks, once for all who ask meanwhile."""
    while True:
        await asked.wait()
        asked.clear()
        try:
            changed = "; ".join(await server.reload()) or "nothing has changed"
        except LogError as error:
            _log.warning("files were not read again, nothing has changed: %s", error)
        else:
            _log.info("tokens and certificates were read again: %s", changed)


async def _run(open_host: Callable[[Stop], Host], settings: ServeSettings) -> None:
    loop, stop, opening = asyncio.get_running_loop(), asyncio.Event(), Stop()
    asked = asyncio.Event()

    def end() -> None:
        stop.set()
        opening.set()

    on_end(loop, end)
    on_reload(loop, asked.set)
    try:
        host = await in_thread(open_host, opening)
    except ClosedError:
        if not opening.is_set():
            raise
        _log.info("the host was stopped before it was open")
        return
    try:
        async with HostServer(host, settings) as server:
            _log.info(
                "host of %s is ready for calls",
                host.application.name,
                extra={"listen": settings.listen, "applied": host.position},
            )
            reloading = loop.create_task(_reload(server, asked))
            try:
                await server.serve(stop)
            finally:
                reloading.cancel()
    finally:
        await close_in_thread(host.close)
