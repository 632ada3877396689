"""Metrics, health and readiness over HTTP, from a thread of its own.

The thread never touches the node: it asks for a snapshot on the node's loop and waits
for it, so a loop that hangs makes the health check fail, as it should.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import TimeoutError as FutureTimeoutError
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final, Generic, Protocol, Self, TypeVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from braidlog.errors import UnavailableError
from braidlog.serving.settings import host_and_port
from braidlog.store.threads import close_in_thread, start_thread

_log = logging.getLogger(__name__)

_WAIT_S: Final = 2.0
_PATIENCE_S: Final = 10.0
"""A connection has so long for its request and for taking the answer."""
_CONNECTIONS_MAX: Final = 16
_OPEN_MAX: Final = 64
"""Those whose threads have not ended yet included."""
_PAUSE_S: Final = 0.1

Environment = dict[str, Any]
Start = Callable[..., Any]


class _Quiet(WSGIRequestHandler):
    timeout = _PATIENCE_S
    """A thread waits for what a client sends, and no longer."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: a scrape every few seconds is not news."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection, of which there are few, for a short time.

    A newcomer always gets a place: the connection that was there longest gives up its
    own. So somebody who opens connections and sends nothing hides no health check.
    """

    daemon_threads = True
    # With five, which is usual, a crowd makes everybody wait a second and more.
    request_queue_size = 128

    def __init__(self, host: str, port: int) -> None:
        """Listen on an address of any family."""
        self._lock = threading.Lock()
        # When each was accepted, oldest first.
        self._open: dict[socket.socket, float] = {}
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self.address_family = found[0][0]
        super().__init__((host, port), _Quiet)

    def server_bind(self) -> None:
        """Bind the address, without asking the network for its name."""
        TCPServer.server_bind(self)
        name, self.server_port = self.socket.getsockname()[:2]
        self.server_name = str(name)
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; pause where the system gives no descriptor."""
        try:
            return super().get_request()
        except OSError:
            # The socket stays readable, and the caller would ask again at once.
            time.sleep(_PAUSE_S)
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002, RUF100
        """Count a connection in; refuse it if those before it do not end."""
        with self._lock:
            room = len(self._open) < _OPEN_MAX
            if room:
                self._open[request] = time.monotonic()
            excess = len(self._open) - _CONNECTIONS_MAX
            ends = list(self._open)[: max(excess, 0)]
        _end(ends)
        return room

    def service_actions(self) -> None:
        """End the connections that take too long, every half second."""
        since = time.monotonic() - _PATIENCE_S
        with self._lock:
            ends = [each for each, begun in self._open.items() if begun < since]
        _end(ends)

    def close_request(self, request: Any) -> None:
        """Count a connection out."""
        with self._lock:
            self._open.pop(request, None)
        super().close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write no traceback because somebody did not go on with a request."""
        _log.debug("an HTTP request from %s ended early", client_address)


def _end(sockets: Iterable[socket.socket]) -> None:
    """Let the threads of these see their end."""
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


class Status(Protocol):
    """What somebody says of itself; a `NodeStatus`, or that of a host."""

    @property
    def healthy(self) -> bool:
        """Whether it works."""

    @property
    def ready(self) -> bool:
        """Whether it serves."""

    def as_json(self) -> dict[str, Any]:
        """Return all of it as JSON objects."""


S = TypeVar("S", bound=Status)
T = TypeVar("T")


class LoopCall(Protocol):
    """Has a call made where the state is, and returns what it gives."""

    def __call__(self, call: Callable[[], T], /) -> T:
        """Wait for the call."""


class StatusServer(Generic[S]):
    """Serves `/metrics`, `/health`, `/ready` and `/status` of one process."""

    def __init__(
        self,
        address: str,
        status: Callable[[], S],
        collector: Callable[[LoopCall], Collector],
        setting: str = "[node] http",
    ) -> None:
        """Bind the address; `status` is called on the loop.

        `collector` gets what has a call made on the loop and returns what it gives.

        Raises:
            UnavailableError: the address cannot be listened on.
        """
        self._loop = asyncio.get_running_loop()
        self._status = status
        self._registry = CollectorRegistry()
        self._registry.register(collector(self._on_loop))
        host, port = host_and_port(address, setting)
        try:
            self._server = _Server(host, port)
        except OSError as error:
            msg = f"cannot listen for HTTP on {address} ({setting}): {error}"
            raise UnavailableError(msg) from error
        self._server.set_app(self._answer)
        try:
            start_thread("braidlog-http", self._server.serve_forever)
        except BaseException:
            self._server.server_close()
            raise

    async def __aenter__(self) -> Self:
        """Serve until the block ends."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening."""
        try:
            await close_in_thread(self._server.shutdown)
        finally:
            self._server.server_close()

    def _on_loop(self, call: Callable[[], T]) -> T:
        async def called() -> T:
            return call()

        future = asyncio.run_coroutine_threadsafe(called(), self._loop)
        return future.result(_WAIT_S)

    def _answer(self, environment: Environment, start: Start) -> Iterable[bytes]:
        try:
            code, kind, body = self._page(environment)
        except (FutureTimeoutError, RuntimeError) as error:
            text = f"the node did not answer in time: {error!r}\n"
            code, kind, body = "503 Service Unavailable", "text/plain", text.encode()
        start(code, [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [body]

    def _page(self, environment: Environment) -> tuple[str, str, bytes]:
        path = environment["PATH_INFO"]
        if path == "/metrics":
            encode, kind = choose_encoder(environment.get("HTTP_ACCEPT", ""))
            return "200 OK", kind, encode(self._registry)
        if path not in {"/health", "/ready", "/status"}:
            text = b"there are /metrics, /health, /ready and /status\n"
            return "404 Not Found", "text/plain", text
        status = self._on_loop(self._status)
        wanted = {"/health": status.healthy, "/ready": status.ready}.get(path, True)
        code = "200 OK" if wanted else "503 Service Unavailable"
        body = json.dumps(status.as_json(), indent=2).encode() + b"\n"
        return code, "application/json", body
