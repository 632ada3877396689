"""Connections that others made: clients and peers."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from braidlog.errors import (
    InternalError,
    LogError,
    NodeIdentityError,
    ProtocolError,
)
from braidlog.node.complaints import Connections
from braidlog.node.shares import UNREAD_MAX, WORK_MAX, Shares
from braidlog.node.transport import Outbox, Wire
from braidlog.wire.connection import State
from braidlog.wire.events import (
    Appends,
    Closing,
    Event,
    Greeted,
    Received,
    Refused,
    Requested,
)
from braidlog.wire.messages import Message, Read
from braidlog.wire.roles import Role
from braidlog.wire.server import ServerConnection, ServerSettings

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Handler", "Request", "Session", "Sessions", "told"]

_log = logging.getLogger(__name__)

GREETING_S: Final = 10.0
"""Who has not said by then who it is holds a place that others want."""


def told(error: Exception, what: str) -> LogError:
    """Return what a client is told of an error; one that nobody foresaw is logged."""
    if isinstance(error, LogError):
        return error
    _log.error("%s met a bug; the others are served", what, exc_info=error)
    return InternalError(f"{what} met a bug of this node: {type(error).__name__}")


class Request(Struct, frozen=True):
    """A request of a session: what an answer goes back to."""

    session: Session
    number: int
    began: float = 0.0
    """When it came in, of those that are measured; on the clock of `time.monotonic`."""

    def answer(self, message: Message, payload: Sequence[Buffer] = ()) -> None:
        """Answer it; nothing happens if who asked has gone."""
        self.session.answer(self.number, message, payload)

    def answer_encoded(self, kind: type[Message], head: bytes) -> None:
        """Answer it with a message that was encoded for many."""
        self.session.answer_encoded(self.number, kind, head)

    def fail(self, error: LogError) -> None:
        """Answer it with an error."""
        self.session.fail(self.number, error)

    def park(self) -> None:
        """Note that it waits for something new: it is no work until then."""
        self.session.settled(self.number)

    @property
    def gone(self) -> bool:
        """Whether nobody is there any more to be answered."""
        return self.session.gone

    @property
    def crowded(self) -> bool:
        """Whether who asked has so much to read that more should wait."""
        return self.session.crowded


class Handler(Protocol):
    """What the node does with what comes in."""

    def appends(self, session: Session, event: Appends) -> None:
        """Take the appends of one socket read to one stream."""

    def requested(self, request: Request, event: Requested, role: Role) -> None:
        """Take any other request; whatever it raises becomes the answer."""

    def received(self, node: int, event: Received) -> None:
        """Take a message of a peer."""

    def gone(self, session: Session) -> None:
        """Forget what a connection that ended waits for."""


class Session(Wire):
    """One connection."""

    connection: ServerConnection

    def __init__(self, sessions: Sessions) -> None:
        """Serve whoever connected."""
        super().__init__(ServerConnection(sessions.settings), sessions.outbox)
        self._sessions = sessions
        self._greeting: asyncio.TimerHandle | None = None
        self._other = "a connection"
        self.gone = False
        self.readers = 0
        """Reads of it that wait for something new."""
        self._shares = sessions.shares
        self._unread_max = min(sessions.settings.window_bytes, UNREAD_MAX)
        self._backlog: deque[Requested] = deque()
        """Requests that were read and wait for their turn."""
        self._working: set[int] = set()
        """Requests that were taken and are not answered."""

    @property
    def role(self) -> Role:
        """Return what the other side may do."""
        return self.connection.role or Role.READ

    @property
    def crowded(self) -> bool:
        """Whether so much waits to be read that more should wait."""
        full = self._shares is not None and self._shares.full
        return full or self.unread_bytes > self._unread_max

    @property
    def ready(self) -> bool:
        """Whether a request waits and may be served."""
        return bool(self._backlog) and self._has_room

    @property
    def paced(self) -> bool:
        """Return whether the request that is next counts for the rate."""
        return not isinstance(self._backlog[0].message, Read)

    @property
    def _has_room(self) -> bool:
        return len(self._working) < WORK_MAX and self.unread_bytes <= self._unread_max

    @property
    def unread_bytes(self) -> int:
        """Return the bytes of answers that the other side has not taken."""
        return self.unsent_bytes + self.connection.queued_bytes

    def took(self, event: Event) -> None:
        """Hand an event to the node."""
        handler = self._sessions.handler
        if isinstance(event, Appends):
            handler.appends(self, event)
        elif isinstance(event, Received):
            handler.received(self.connection.peer, event)
        elif isinstance(event, Requested):
            self._take(event)
        elif isinstance(event, Refused):
            # Of nodes that are not who they say the operator is told elsewhere.
            if isinstance(event.error, NodeIdentityError):
                _log.debug("%s: refused: %s", self._other, event.error)
            else:
                self._fails(f"refused: {event.error}")
        elif isinstance(event, Greeted):
            self._sessions.complaints.works(self._other)
        elif isinstance(event, Closing):
            _log.debug("a connection closes: %s", event.reason)

    def _take(self, event: Requested) -> None:
        """Serve a request now, or when it is its turn; read no more until then."""
        shares = self._shares
        if shares is None or self.role is Role.PEER:
            self._serve(event)
        elif (
            not self._backlog
            and self._has_room
            and not shares.full
            and shares.takes(paced=not isinstance(event.message, Read))
        ):
            self._working.add(event.request)
            self._serve(event)
        else:
            self._backlog.append(event)
            self.hold(held=True)
            shares.look(self)

    def serve_one(self) -> None:
        """Serve the request that has waited longest."""
        event = self._backlog.popleft()
        self._working.add(event.request)
        self._serve(event)
        if not self._backlog:
            self.hold(held=False)

    def settled(self, request: int) -> None:
        """Count a request as work no more."""
        self._working.discard(request)
        self._look()

    def _look(self) -> None:
        if self._backlog and self._shares is not None and not self.gone:
            self._shares.look(self)

    def _serve(self, event: Requested) -> None:
        """Hand a request to the node; what goes wrong ends the request alone."""
        request = Request(self, event.request)
        try:
            self._sessions.handler.requested(request, event, self.role)
        except Exception as error:
            # Else it was answered before it went wrong.
            if self.connection.is_open(event.request):
                request.fail(told(error, type(event.message).__name__))

    def answer(
        self, request: int, message: Message, payload: Sequence[Buffer] = ()
    ) -> None:
        """Answer a request; with why not, if that does not work."""
        send = partial(self.connection.answer, request, message, payload)
        self._answer(request, type(message), send)

    def answer_encoded(self, request: int, kind: type[Message], head: bytes) -> None:
        """Answer a request with a message that was encoded for many."""
        send = partial(self.connection.answer_encoded, request, kind, head)
        self._answer(request, kind, send)

    def _answer(
        self, request: int, kind: type[Message], send: Callable[[], None]
    ) -> None:
        before = self.connection.queued_bytes
        try:
            send()
        except Exception as error:
            self.connection.fail(request, told(error, kind.__name__))
        if self._shares is not None:
            self._shares.answered(self.connection.queued_bytes - before)
        self.settled(request)
        self.flush_soon()

    def fail(self, request: int, error: LogError) -> None:
        """Answer a request with an error."""
        self.connection.fail(request, error)
        self.settled(request)
        self.flush_soon()

    def flush(self) -> None:
        """Write what is outgoing; there may be room for more then."""
        super().flush()
        self._look()

    def pause_writing(self) -> None:
        """Note that answers are not taken."""
        super().pause_writing()
        if self._shares is not None and self.role is not Role.PEER:
            self._shares.unread(self, asyncio.get_running_loop().time())

    def resume_writing(self) -> None:
        """Note that they are taken again."""
        super().resume_writing()
        if self._shares is not None:
            self._shares.read(self)
        self._look()

    def stalls(self) -> None:
        """Close the connection: its answers fill the memory."""
        self._fails("closed: it does not take its answers")
        self.abort()

    def broken(self, error: ProtocolError) -> None:
        """Say why the connection is closed."""
        self._fails(f"closed: {error}")

    def _fails(self, why: str) -> None:
        self._sessions.complaints.fails(self._other, why)

    def connection_made(self, transport: object) -> None:
        """Be counted, or be sent away if there are too many."""
        super().connection_made(transport)  # type: ignore[arg-type]
        if self._transport is not None:
            host, *_ = self._transport.get_extra_info("peername") or ("nowhere",)
            self._other = f"a connection from {host}"
        self._sessions.add(self)
        loop = asyncio.get_running_loop()
        self._greeting = loop.call_later(GREETING_S, self._give_up)

    def _give_up(self) -> None:
        if self.connection.state is State.HANDSHAKE:
            self._fails("closed: it sent no greeting")
            self.abort()

    def lost(self) -> None:
        """Be counted no more."""
        self.gone = True
        if self._greeting is not None:
            self._greeting.cancel()
        self._backlog.clear()
        self._working.clear()
        self._sessions.remove(self)


class Sessions:
    """All connections that others made."""

    def __init__(
        self,
        settings: ServerSettings,
        handler: Handler,
        connections_max: int,
        outbox: Outbox,
        *,
        shares: bool = False,
    ) -> None:
        """Let in up to `connections_max`; with `shares` none gets more than its own."""
        self.settings = settings
        self.outbox = outbox
        self.handler = handler
        self.complaints = Connections(_log)
        self._connections_max = connections_max
        self.refused = 0
        """Connections that were sent away for want of room."""
        self.shares = Shares() if shares else None
        # A dict, for its order.
        self._sessions: dict[Session, None] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._sessions)

    @property
    def factory(self) -> Callable[[], Session]:
        """Return what a server calls for each connection."""
        return lambda: Session(self)

    @property
    def unanswered(self) -> int:
        """Return how many requests are open, of all."""
        return sum(each.connection.unanswered for each in self._sessions)

    @property
    def unread_bytes(self) -> int:
        """Return the bytes of answers that the other sides have not taken."""
        return sum(each.unread_bytes for each in self._sessions)

    def add(self, session: Session) -> None:
        """Count one in."""
        if len(self._sessions) >= self._connections_max:
            self.refused += 1
            _log.warning("more than %d connections", self._connections_max)
            session.abort()
            return
        self._sessions[session] = None

    def remove(self, session: Session) -> None:
        """Count one out."""
        self._sessions.pop(session, None)
        if self.shares is not None:
            self.shares.gone(session)
        self.handler.gone(session)

    @property
    def full(self) -> bool:
        """Whether clients have not taken as many answers as there is room for."""
        return self.shares is not None and self.shares.full

    def tick(self, now: float) -> None:
        """Let time pass."""
        if self.shares is not None:
            self.shares.tick(now)

    def recheck(self, holds: Callable[[int, bytes, int], bool]) -> None:
        """Close the connections of nodes that are not who they are known to be."""
        for session in list(self._sessions):
            connection = session.connection
            peer = connection.peer
            if peer and not holds(peer, *connection.peer_identity):
                session.abort()

    def goodbye(self, reason: str) -> None:
        """Tell all that the node stops; what is open may be sent elsewhere."""
        for session in self._sessions:
            session.connection.goodbye(reason)
            session.flush()
