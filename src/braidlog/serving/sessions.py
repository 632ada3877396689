"""Connections that others made: clients and peers.

A socket is counted when it is accepted, before TLS. From then on it has `GREETING_S` to
get through TLS and say who it is (`braidlog.serving.admission`). Memory for what is not
whole yet is shared by all (`braidlog.serving.intake`).
"""
# One file: a session and the table of all sessions call each other.

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from braidlog.errors import (
    InternalError,
    LogError,
    NodeIdentityError,
    NotReadyError,
    ProtocolError,
    QuotaExceededError,
    UnavailableError,
)
from braidlog.serving.admission import Capacity, ConnectionAdmission
from braidlog.serving.intake import SMALL_BYTES, Intake
from braidlog.serving.listener import Listener, bind, has_descriptors
from braidlog.serving.log_once import Connections
from braidlog.serving.places import origin_of
from braidlog.serving.quotas import Meter, Meters
from braidlog.serving.settings import host_and_port
from braidlog.serving.shares import Shares
from braidlog.serving.transport import Outbox, Takers, Wire
from braidlog.wire.connection import State
from braidlog.wire.events import (
    Appends,
    Closing,
    Greeted,
    Received,
    Refused,
    Requested,
    Taken,
)
from braidlog.wire.messages import Message, Read
from braidlog.wire.proof import Challenger
from braidlog.wire.quotas import Quotas
from braidlog.wire.rights import Rights
from braidlog.wire.roles import Role
from braidlog.wire.server import AppendRow, ServerConnection, ServerSettings

if TYPE_CHECKING:
    from typing_extensions import Buffer

_log = logging.getLogger(__name__)

GREETING_S: Final = 10.0
"""Who has not said by then who it is holds a place that others want."""
LINGER_S: Final = 2.0
"""Who was sent away, or does not end TLS, has a descriptor for so long."""
_SWEEP_S: Final = 0.5
"""Between looks at frames that are not whole."""


def told(error: Exception, what: str) -> LogError:
    """Return what a client is told of an error; one that nobody foresaw is logged."""
    if isinstance(error, LogError):
        return error
    _log.error(
        "an error that is a bug of this node ended %s; other requests go on",
        what,
        exc_info=error,
    )
    return InternalError(
        f"the node failed at {what} because of a bug: {type(error).__name__}"
    )


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

    def received(self, wire: Wire, event: Received) -> None:
        """Take a message of a peer."""

    def taken(self, wire: Wire, event: Taken) -> None:
        """Go on after the lane took what a peer said."""

    def requested(self, request: Request, event: Requested, role: Role) -> None:
        """Take any other request; whatever it raises becomes the answer."""

    def gone(self, session: Session) -> None:
        """Forget what a connection that ended waits for."""


class Listening(Protocol):
    """What takes connections until it is closed."""

    def close(self) -> None:
        """Take no more."""


class Session(Wire):
    """One connection."""

    connection: ServerConnection

    def __init__(self, sessions: Sessions) -> None:
        """Serve whoever connected."""
        connection = ServerConnection(sessions.settings, self._let_in)
        super().__init__(connection, sessions.outbox, sessions.takers)
        self._sessions = sessions
        self._greeting: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None
        # As they were when it was accepted: proofs are bound to this certificate.
        self._tls = sessions.tls
        self._socket: socket.socket | None = None
        """What was accepted, unless the loop did that."""
        self.origin = self._other = "a connection"
        self.gone = False
        self.readers = 0
        """Reads of it that wait for something new."""
        self._shares = sessions.shares
        self._unread_max = sessions.settings.window_bytes
        self._work_max: float = float("inf")
        if self._shares is not None:
            bounds = self._shares.bounds
            self._unread_max = min(self._unread_max, bounds.unread_max)
            self._work_max = bounds.work_max
        self._working: set[int] = set()
        """Requests that were taken and are not answered."""
        self.token: Meter | None = None
        """Counts the connections of its token; None of a node, or without a token."""
        self._meter: Meter | None = None
        """Counts requests and bytes, if the token has quotas of them."""

    @property
    def role(self) -> Role:
        """Return what the other side may do."""
        role = self.connection.role
        return Role.READ if role is None else role

    @property
    def rights(self) -> Rights:
        """Return all that it may do."""
        return self.connection.rights or Rights(Role.NONE)

    @property
    def crowded(self) -> bool:
        """Whether so much waits to be read that more should wait."""
        full = self._shares is not None and self._shares.full
        return full or self.unread_bytes > self._unread_max

    @property
    def ready(self) -> bool:
        """Whether a request waits and may be served."""
        return bool(self.backlog) and self._has_room

    @property
    def paced(self) -> bool:
        """Return whether the request that is next counts for the rate."""
        return not isinstance(self.backlog[0].message, Read)

    @property
    def _has_room(self) -> bool:
        return (
            len(self._working) < self._work_max
            and self.unread_bytes <= self._unread_max
        )

    @property
    def unread_bytes(self) -> int:
        """Return the bytes of answers that the other side has not taken."""
        return self.unsent_bytes() + self.connection.queued_bytes

    def greeted(self, event: Greeted) -> None:
        """Note who is on the other side."""
        self.node = event.hello.node
        self._sessions.complaints.works(self._other)
        self._measure()

    def change_quotas(self) -> None:
        """Go on with the quotas that its token has now."""
        if self.token is not None and self.connection.rights is not None:
            self.connection.change_quotas(self.token.quotas)
            self._measure()

    def _measure(self) -> None:
        """Count what it asks for and gets, if somebody has to.

        The appends of everybody else go to the node as they come.
        """
        counts = self.token is not None and self.token.quotas.rates
        self._meter = self.token if counts else None
        sessions = self._sessions
        self._takers = sessions.metered_takers if counts else sessions.takers

    def appends(self, event: Appends) -> None:
        """Hand appends to the node, as far as the quotas of the token allow it."""
        requests, payloads = [], []
        for request, payload in zip(event.requests, event.payloads, strict=True):
            if self._admits(request, len(payload)):
                requests.append(request)
                payloads.append(payload)
        if requests:
            taken = Appends(event.stream, event.epoch, requests, payloads, event.repeat)
            self._sessions.handler.appends(self, taken)

    def _admits(self, request: int, size: int) -> bool:
        """Tell whether a request passes; if not, it is answered with the error."""
        if self._meter is not None:
            try:
                self._meter.admit(size, self._sessions.now())
            except QuotaExceededError as error:
                self.fail(request, error)
                return False
        return True

    def refused(self, event: Refused) -> None:
        """Tell the operator that somebody was refused."""
        # Of nodes that are not who they say it is told elsewhere.
        if isinstance(event.error, NodeIdentityError):
            _log.debug("%s: the node refused it: %s", self._other, event.error)
        else:
            self._fails(f"the node refused it: {event.error}")

    def closing(self, event: Closing) -> None:
        """Note why the other side leaves."""
        _log.debug("a connection is closing: %s", event.reason)

    def requested(self, event: Requested) -> None:
        """Serve a request now, or when it is its turn; read no more until then."""
        shares = self._shares
        if shares is None or self.role is Role.PEER:
            self._serve(event)
        elif (
            not self.backlog
            and self._has_room
            and not shares.full
            and shares.takes(paced=not isinstance(event.message, Read))
        ):
            self._working.add(event.request)
            self._serve(event)
        else:
            self.backlog.append(event)
            self.hold(held=True)
            shares.look(self)

    def serve_one(self) -> None:
        """Serve the request that has waited longest."""
        event = self.backlog.popleft()
        self._working.add(event.request)
        self._serve(event)
        if not self.backlog:
            self.hold(held=False)

    def settled(self, request: int) -> None:
        """Count a request as work no more."""
        self._working.discard(request)
        self._look()

    def _look(self) -> None:
        if self.backlog and self._shares is not None and not self.gone:
            self._shares.look(self)

    def _serve(self, event: Requested) -> None:
        """Hand a request to the node; what goes wrong ends the request alone."""
        # When it is its turn, so that many refusals are no more work than answers.
        counts = self._meter is not None
        if counts and not self._admits(event.request, len(event.payload)):
            return
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
        if self._meter is not None and payload:
            size = sum(memoryview(part).nbytes for part in payload)
            self._meter.charge(size, self._sessions.now())
        send = partial(self.connection.answer, request, message, payload)
        self._answer(request, type(message), send)

    def answer_encoded(self, request: int, kind: type[Message], head: bytes) -> None:
        """Answer a request with a message that was encoded for many."""
        send = partial(self.connection.answer_encoded, request, kind, head)
        self._answer(request, kind, send)

    def answer_appends(self, answers: Sequence[AppendRow]) -> None:
        """Answer appends that were committed together."""
        core = self.connection.core
        before = core.queued_bytes
        self.connection.answer_appends(answers)
        if self._shares is not None:
            self._shares.answered(core.queued_bytes - before)
        if self.backlog:
            self._look()
        self.outbox.add(self)

    def answered(self, size: int) -> None:
        """Count answers that the poll gave."""
        if self._shares is not None:
            self._shares.answered(size)

    def unasked(self, requests: Sequence[int]) -> None:
        """Refuse to answer what was not asked.

        Raises:
            LocalProtocolError: always.
        """
        self.connection.answer_appends([(each, 0, 0, 0, 0) for each in requests])

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
        self.outbox.add(self)

    def fail(self, request: int, error: LogError) -> None:
        """Answer a request with an error."""
        self.connection.fail(request, error)
        self.settled(request)
        self.outbox.add(self)

    def written(self) -> None:
        """Look whether there is room for more."""
        self._look()

    def room_changed(self, *, full: bool) -> None:
        """Note that answers are not taken, or are taken again."""
        if not full:
            if self._shares is not None:
                self._shares.read(self)
            self._look()
        elif self._shares is not None and self.role is not Role.PEER:
            self._shares.unread(self, asyncio.get_running_loop().time())

    def stalls(self) -> None:
        """Close the connection: its answers fill the memory."""
        self._fails("closed, because it does not read its answers")
        self.abort()

    def broken(self, error: ProtocolError) -> None:
        """Say why the connection is closed."""
        self._fails(f"closed, because of a protocol error: {error}")

    def _fails(self, why: str) -> None:
        self._sessions.complaints.fails(self._other, why)

    def accepted(self, accepted: socket.socket, host: str) -> None:
        """Be counted, then get the transport, through TLS if there is any."""
        self._socket = accepted
        self._begin(host)
        if self.gone:
            accepted.close()
        else:
            self._opening = asyncio.get_running_loop().create_task(self._open())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be counted, unless that was done at accept, and wait for the greeting."""
        super().connection_made(transport)
        if self._socket is None:
            host, *_ = transport.get_extra_info("peername") or ("nowhere",)
            self._begin(host)
        elif self.gone:
            self.abort()

    def _begin(self, host: str) -> None:
        self.origin = origin_of(host)
        self._other = f"a connection from {host}"
        loop = asyncio.get_running_loop()
        self._greeting = loop.call_later(GREETING_S, self._give_up)
        self._sessions.add(self)

    async def _open(self) -> None:
        """Get the transport, through TLS if there is any; `connection_made` has it."""
        accepted = self._socket
        assert accepted is not None, "accepted"
        loop = asyncio.get_running_loop()
        tls = self._tls
        # Without TLS these must not be given.
        handshake = GREETING_S if tls is not None else None
        shutdown = LINGER_S if tls is not None else None
        try:
            await loop.connect_accepted_socket(
                lambda: self,
                accepted,
                ssl=tls,
                ssl_handshake_timeout=handshake,
                ssl_shutdown_timeout=shutdown,
            )
        except ssl.SSLError as error:
            self._fails(f"closed, because the TLS handshake failed: {error}")
            self.lost()
        except OSError as error:
            _log.debug("%s ended before it was open: %s", self._other, error)
            self.lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go: few while memory is short."""
        buffer = self._incoming
        return buffer[:SMALL_BYTES] if self._sessions.intake.waiting else buffer

    def look_at_frame(self) -> None:
        """Wait for memory if the frame that is not whole is large."""
        size = self.connection.unfinished_bytes
        self.core.unfinished = bool(size)
        self._sessions.take_in(self, size)

    def _let_in(self, node: int, rights: Rights) -> None:
        self._sessions.greet(self, node, rights)

    def make_way(self, why: str) -> None:
        """Give the place up to somebody else."""
        if self.connection.state is State.OPEN:
            self.connection.goodbye(why)
            self.flush()
            asyncio.get_running_loop().call_later(LINGER_S, self.abort)
        else:
            self.abort()

    def overdue(self) -> None:
        """Be closed for a frame that does not end."""
        self._fails("closed, because a frame was not complete in time")
        self.abort()

    def _give_up(self) -> None:
        if self.connection.state is State.HANDSHAKE:
            self._fails("closed, because it sent no greeting in time")
            self._sessions.admission.counters.strangers_dropped += 1
            self.abort()

    def abort(self) -> None:
        """Close the socket now, whatever is unsent and however far TLS is."""
        if self._transport is not None:
            super().abort()
            return
        if self._socket is not None:
            # The loop has it, sees its end, and closes it.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self.lost()

    def lost(self) -> None:
        """Be counted no more."""
        if self.gone:
            return
        self.gone = True
        if self._greeting is not None:
            self._greeting.cancel()
        self.backlog.clear()
        self._working.clear()
        self._sessions.remove(self)
        # What it has read must not wait until a collector finds the circle.
        self.connection.release()


class Sessions:
    """All connections that others made."""

    def __init__(
        self,
        settings: ServerSettings,
        handler: Handler,
        places: Capacity,
        incoming_bytes_max: int,
        outbox: Outbox,
        *,
        shares: Shares | None = None,
    ) -> None:
        """Let in as many as there are `places`.

        What is not whole of all frames takes up to `incoming_bytes_max`. With `shares`
        no client gets more than its own.
        """
        self.settings = settings
        self.outbox = outbox
        self.handler = handler
        self.takers: Takers = {
            Appends: handler.appends,
            Received: handler.received,
            Taken: handler.taken,
            Requested: Session.requested,
            Refused: Session.refused,
            Greeted: Session.greeted,
            Closing: Session.closing,
        }
        self.metered_takers: Takers = {**self.takers, Appends: Session.appends}
        self.meters = Meters()
        self.now = asyncio.get_running_loop().time
        self.tls: ssl.SSLContext | None = None
        self.complaints = Connections(_log)
        self.admission = ConnectionAdmission[Session](places)
        self.intake = Intake[Session](incoming_bytes_max)
        self._sweep: asyncio.TimerHandle | None = None
        self._refuses = False
        self.shares = shares
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

    async def listen(
        self, address: str, setting: str, tls: ssl.SSLContext | None
    ) -> Listening:
        """Take connections at host:port, which `setting` says.

        Raises:
            UnavailableError: the address cannot be listened on.
        """
        self.tls = tls
        host, port = host_and_port(address, setting)
        loop = asyncio.get_running_loop()
        try:
            if has_descriptors(loop):
                return Listener(await bind(host, port), self._accepted)
            return await loop.create_server(self.factory, host, port, backlog=1024)
        except OSError as error:
            raise UnavailableError(f"cannot listen on {address}: {error}") from error

    def _accepted(self, accepted: socket.socket, host: str) -> None:
        self.factory().accepted(accepted, host)

    def add(self, session: Session) -> None:
        """Count one in that was accepted."""
        self._sessions[session] = None
        goes = self.admission.arrive(session, session.origin)
        if goes is not None:
            goes.abort()

    def greet(self, session: Session, node: int, rights: Rights) -> None:
        """Give one that has said who it is a place.

        Raises:
            NotReadyError: there is none for another client.
            QuotaExceededError: its token has as many as it may have.
        """
        token = None if node else self.meters.find(rights, self.now())
        try:
            goes = self.admission.greet(session, session.origin, node, _is_busy)
        except NotReadyError as error:
            if not self._refuses:
                _log.warning("new client connections are refused: %s", error.message)
            self._refuses = True
            raise
        if token is not None:
            session.token = token
            self.meters.enter(rights, token)
        if goes is not None:
            goes.make_way("a client of another machine needs the place")

    def remove(self, session: Session) -> None:
        """Count one out."""
        self._sessions.pop(session, None)
        self.admission.leave(session)
        if session.token is not None:
            self.meters.leave(session.rights, session.token)
        self._refuses = self._refuses and not self.admission.has_room
        self.take_in(session, 0)
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

    def take_in(self, session: Session, size: int) -> None:
        """Note the frame of a session that is not whole; 0: there is none."""
        intake = self.intake
        if size and not session.gone:
            now = asyncio.get_running_loop().time()
            number, peer = session.connection.frames, bool(session.connection.peer)
            reads = intake.begin(
                session, number, size, now, origin=session.origin, exempt=peer
            )
            if not reads:
                session.wait_for_memory(waits=True)
            if self._sweep is None:
                self._sweep_later()
        else:
            intake.end(session)
            self._resume()
        if (poll := self.outbox.poll) is not None:
            poll.scarce = bool(intake.waiting)

    def _resume(self) -> None:
        if not self.intake.waiting:
            return
        for session in self.intake.ready(asyncio.get_running_loop().time()):
            session.wait_for_memory(waits=False)

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = loop.call_later(_SWEEP_S, self._look_at_frames)

    def _look_at_frames(self) -> None:
        """Close those whose frame should be whole by now."""
        self._sweep = None
        now = asyncio.get_running_loop().time()
        for session in self.intake.overdue(now):
            if session.reads:
                self.admission.counters.frames_overdue += 1
                session.overdue()
            else:
                # The node does not read it, until its answers are taken.
                self.intake.restart(session, now)
        if len(self.intake):
            self._sweep_later()

    def close(self) -> None:
        """Look at nothing any more, and let go of who is on the way in."""
        if self._sweep is not None:
            self._sweep.cancel()
        for session in list(self._sessions):
            if session.connection.state is State.HANDSHAKE:
                session.abort()

    def recheck(self, holds: Callable[[int, bytes, int], bool]) -> None:
        """Close the connections of nodes that are not who they are known to be."""
        for session in list(self._sessions):
            connection = session.connection
            peer = connection.peer
            if peer and not holds(peer, *connection.peer_identity):
                session.abort()

    def protect(
        self, challenger: Challenger | None, tls: ssl.SSLContext | None
    ) -> None:
        """Let connections that begin from now on prove and encrypt with these."""
        self.settings = replace(self.settings, challenger=challenger)
        self.tls = tls

    def change_quotas(self, quotas_of: Callable[[str], Quotas]) -> None:
        """Go on with the quotas that are said of the hash of each token.

        Open connections have them at once. None is closed for being one too many, and
        none is let in before there are fewer than there may be.
        """
        self.meters.change(quotas_of, self.now())
        for session in self._sessions:
            session.change_quotas()

    def ending(self, ends: Callable[[Rights], str]) -> dict[Session, str]:
        """Return the connections that have to end, as `ends` says of their rights."""
        found = {}
        for session in self._sessions:
            rights = session.connection.rights
            if rights is not None and (why := ends(rights)):
                found[session] = why
        return found

    def goodbye(self, reason: str) -> None:
        """Tell all that the node stops; what is open may be sent elsewhere."""
        for session in list(self._sessions):
            session.make_way(reason)


def _is_busy(session: Session) -> bool:
    return session.connection.unanswered > 0
