"""What both ends of a connection have in common: frames in, frames out, the end.

*Theory of operation.* No sockets. The shell gives `receive` what it read and handles
the events; it writes what `outgoing` returns, after every call. The core
(`native/core/src/lane`) has the frames, the open requests and their window, and takes
the frames of appends by itself; here is what happens seldom, which is every other
frame. `ClientConnection` and `ServerConnection` add their half of the rules:

    handshake   Hello, then Welcome, or Failed and Goodbye; nothing before or between
    open        requests and their answers in any order; messages of peers; Ping, Pong
    closed      after a Goodbye, a refused handshake or a broken rule

A `Goodbye` is the last frame of whoever sends it. A server that gets one answers what
is open, and then says Goodbye itself; a client that gets one is closed.

*Invariants.* All that comes in is judged here: `receive` raises `RemoteProtocolError`
and nothing else, and then the connection is closed for good; what comes later is
ignored. What is against the rules is not sent: the call raises and changes nothing.
Events do not depend on where the bytes were cut, but for the grouping of appends.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from braidlog._native import REQUEST_COST_MIN, Conn, Lane, Poll
from braidlog.errors import LocalProtocolError, RemoteProtocolError, TooLargeError
from braidlog.wire import codec, messages
from braidlog.wire.events import Answered, Appends, Event, Ponged, Received, Taken
from braidlog.wire.foreign import FIRST_BYTES, check_first
from braidlog.wire.messages import Appended, Message

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "ANSWERS",
    "FRAME_BYTES_MAX",
    "HANDSHAKE_BYTES_MAX",
    "HEADER_BYTES",
    "HELLO_BYTES_MAX",
    "ONE_WAY",
    "REQUEST_BYTES_MAX",
    "REQUEST_COST_MIN",
    "VERSION_MAX",
    "VERSION_MIN",
    "WINDOW_BYTES",
    "Connection",
    "Frame",
    "Lane",
    "Poll",
    "State",
    "cost",
]

VERSION_MIN: Final = 1
VERSION_MAX: Final = 1
"""Versions of the protocol that this build speaks."""

HANDSHAKE_BYTES_MAX: Final = 64 << 10
"""Largest frame before the handshake is over, when nobody is known yet; also the
smallest limit that a connection may have, so that a failure always fits."""
HELLO_BYTES_MAX: Final = 8 << 10
"""Largest frame that a server takes of a stranger: a name, a token and versions."""
REQUEST_BYTES_MAX: Final = 1 << 20
"""Largest frame of whoever may only read: requests are small, answers are not."""
FRAME_BYTES_MAX: Final = 17 << 20
"""Largest frame unless set otherwise: the largest record batch, and a head."""
WINDOW_BYTES: Final = 32 << 20
"""Bytes of unanswered requests of a connection unless set otherwise."""
HEADER_BYTES: Final = 20
"""Bytes of a frame before its head."""

ANSWERS: Final[dict[type[Message], type[Message]]] = {
    messages.Append: messages.Appended,
    messages.Read: messages.Records,
    messages.GetMetadata: messages.Metadata,
    messages.GetLogEnd: messages.LogEnd,
    messages.Execute: messages.Executed,
    messages.Reload: messages.Reloaded,
    messages.Call: messages.CallResult,
    messages.GetAppStatus: messages.AppStatus,
    messages.Promote: messages.AppStatus,
    messages.Resize: messages.AppStatus,
    messages.FetchSnapshot: messages.SnapshotPart,
    messages.TakeSnapshot: messages.SnapshotProgress,
    messages.GetRows: messages.Rows,
    messages.ScanRows: messages.Rows,
    messages.GetTable: messages.TableStatus,
    messages.DivideTable: messages.TableParts,
    messages.PinRuns: messages.PinnedRuns,
    messages.FetchRun: messages.RunPart,
    messages.UnpinRuns: messages.RunPart,
    messages.FlushTable: messages.TableStatus,
    messages.VerifyTable: messages.TableCheck,
    messages.ReleaseRows: messages.Rows,
    messages.AppendTo: messages.Appended,
    messages.Acquire: messages.Acquired,
    messages.Release: messages.ShardEnd,
    messages.GetShardEnd: messages.ShardEnd,
    messages.GetTimestamps: messages.Timestamps,
}
"""Requests, and how each is answered unless it fails."""

ONE_WAY: Final[frozenset[type[Message]]] = frozenset(
    {
        messages.Consensus,
        messages.Replicate,
        messages.Fetch,
        messages.Entries,
        messages.Report,
        messages.Commit,
        messages.Configure,
        messages.Faults,
        messages.Recorded,
    }
)
"""What peers say to one another, in both directions; what is lost is said again."""


Fed: TypeAlias = tuple[
    list[tuple[int, int, list[int], list[bytes]]],
    list[tuple[int, int, int, int, int]],
    tuple[int, int, bytes, bytes] | None,
    int,
    tuple[int, int, int, bool],
]
"""What the core says of bytes, see `Conn.feed`: appends, answers, a cold frame, where
it ends, and what the lane has taken."""

NOT_OPEN: Final = "the connection is not open, so nothing can be sent"
_NOTHING: Final = memoryview(b"")
_TAKEN: Final = {key: Taken(*key) for key in itertools.product((False, True), repeat=3)}
_COMMON: Final = (messages.Ping, messages.Pong, messages.Goodbye)


class State(Enum):
    """How far a connection is."""

    HANDSHAKE = "handshake"
    OPEN = "open"
    CLOSED = "closed"


# The members of an enumeration are looked up anew each time, and each read asks.
_HANDSHAKE: Final = State.HANDSHAKE


def cost(size: int) -> int:
    """Return what a request with a frame of `size` bytes takes from the window."""
    return max(size, REQUEST_COST_MIN)


class Frame(Struct, frozen=True):
    """One frame, checked but not understood."""

    kind: int
    request: int
    head: bytes
    """The fields of the message, as a MessagePack array."""
    payload: memoryview

    @property
    def size(self) -> int:
        """Return the bytes of the whole frame."""
        return HEADER_BYTES + len(self.head) + len(self.payload)


class Connection(ABC):
    """One end of a connection."""

    def __init__(
        self,
        frame_bytes_max: int,
        *,
        server: bool,
        window: int = 0,
        greeting_bytes_max: int = HANDSHAKE_BYTES_MAX,
        last: int = 0,
    ) -> None:
        """Begin with the handshake.

        `window` is what open requests may take, `greeting_bytes_max` the largest frame
        that is taken before the handshake is over, and `last` the number before that of
        the first request.
        """
        if frame_bytes_max < HANDSHAKE_BYTES_MAX:
            limits = f"{frame_bytes_max} bytes, at least {HANDSHAKE_BYTES_MAX}"
            raise LocalProtocolError(
                f"the frames of a connection are too small: {limits}"
            )
        self.state = State.HANDSHAKE
        self.closed = False
        """Whether to write what is outgoing and then close the socket."""
        self.writable = False
        """Whether something can be sent: after the handshake, and before a goodbye."""
        self.error: RemoteProtocolError | None = None
        """The rule that the other side broke, if that closed the connection."""
        self.frame_bytes_max = frame_bytes_max
        """Largest frame that may be sent."""
        # Sockets ask it after each read, so they ask it without a call in between.
        self.core = Conn(
            server=server,
            window=window,
            incoming_bytes_max=greeting_bytes_max,
            frame_bytes_max=frame_bytes_max,
            last=last,
        )
        self._of_peer = False
        """Whether the other side may say what peers say to one another."""
        self._said_goodbye = False
        self._got_goodbye = False
        self._first = b""
        """What came first, as far as it is needed to tell who speaks."""

    @property
    def frames(self) -> int:
        """How many whole frames came; appends that came together count as one."""
        return self.core.frames

    @property
    def heard(self) -> bool:
        """Whether anything came at all."""
        return bool(self._first)

    @property
    def unfinished_bytes(self) -> int:
        """Size of the frame that is not whole, as far as it is known; 0 if none."""
        buffered = self.core.buffered
        return buffered + self.core.missing if buffered else 0

    @property
    def buffered_bytes(self) -> int:
        """Return how many bytes of the frame that is not whole are kept."""
        return self.core.buffered

    @property
    def used(self) -> int:
        """Return the cost of the open requests."""
        return self.core.used

    @property
    def queued_bytes(self) -> int:
        """Return the bytes that are outgoing and were not taken to be written."""
        return self.core.queued_bytes

    def _enter(self, state: State) -> None:
        # What follows from the state is asked for each message, and it changes twice.
        self.state = state
        self.closed = state is State.CLOSED
        self._let(writable=state is State.OPEN and not self._said_goodbye)

    def _let(self, *, writable: bool) -> None:
        # The lane sends by itself, and asks the core.
        self.writable = self.core.writable = writable

    def outgoing(self) -> list[Buffer]:
        """Return what is to be written, in order; it is forgotten here."""
        return self.core.take()

    def release(self) -> None:
        """Let go of the bytes of a frame that is not whole: the socket is gone."""
        self._enter(State.CLOSED)
        self.core.release(HANDSHAKE_BYTES_MAX)

    def receive(self, data: Buffer, said: Fed | None = None) -> list[Event]:
        """Take the bytes of one socket read and say what they mean.

        `said` is what the core has said of the first of them, if it was asked. What
        comes on a closed connection is ignored.

        Raises:
            RemoteProtocolError: the other side broke a rule, and the connection is
                closed. Events of the same read before it are lost.
            ForeignPeerError: it speaks another protocol.
        """
        events: list[Event] = []
        core, view, at = self.core, memoryview(data), 0
        try:
            if len(self._first) < FIRST_BYTES:
                self._first += view[: FIRST_BYTES - len(self._first)]
                check_first(self._first)
            while said is not None or (at < len(view) and not self.closed):
                if said is None:
                    part = view
                    if self.state is _HANDSHAKE:
                        # A frame at a time, for it sets the limit of those behind.
                        part = view[: at + core.missing]
                    said = core.feed(part, at)
                appends, appended, cold, at, taken = said
                said = None
                if taken[0]:
                    events.append(_TAKEN[taken[1] > 0, taken[2] > 0, taken[3]])
                for stream, epoch, requests, batches in appends:
                    events.append(Appends(stream, epoch, requests, batches))
                for request, llsn, glsn, count, version in appended:
                    answer = Appended(llsn, glsn, count, version)
                    events.append(Answered(request, answer, _NOTHING))
                if cold is not None:
                    self._take(*cold, events)
        except RemoteProtocolError as error:
            self.refuse(error)
            raise
        return events

    def refuse(self, error: RemoteProtocolError) -> None:
        """Close, because the other side broke a rule."""
        self.error = error
        self._break(error)

    def send(self, message: Message, payload: Sequence[Buffer] = ()) -> None:
        """Send a message of a peer, which expects no answer.

        Raises:
            LocalProtocolError: not now, or not this message.
            TooLargeError: it does not fit a frame.
        """
        if not self.writable:
            raise LocalProtocolError(NOT_OPEN)
        kind = type(message)
        if kind not in ONE_WAY:
            raise LocalProtocolError(f"{kind.__name__} is not sent like this")
        if size := self.core.queue(kind.KIND, 0, codec.encode(message), payload):
            raise self._too_large(kind, size)

    def ping(self, sent: float) -> None:
        """Ask for a `Pong`, which repeats `sent`.

        Raises:
            LocalProtocolError: the handshake is not over, or the connection is.
        """
        if not self.writable:
            raise LocalProtocolError(NOT_OPEN)
        self._queue(messages.Ping(sent))

    def goodbye(self, reason: str = "") -> None:
        """Send nothing more; a server is closed with it."""
        if self._said_goodbye or self.closed:
            return
        self._queue(messages.Goodbye(reason[:1024]))
        self._said_goodbye = True
        self._let(writable=False)
        self._after_goodbye()

    def _take(
        self,
        kind: int,
        request: int,
        head: bytes,
        data: bytes,
        events: list[Event],
    ) -> None:
        if self._got_goodbye:
            raise RemoteProtocolError("a frame after the Goodbye")
        payload = memoryview(data)
        message = codec.decode(kind, head, payload)
        if self._of_peer and type(message) in ONE_WAY:
            if request:
                self._check_one_way(request, message)
            events.append(Received(message, payload))
        elif self.state is State.HANDSHAKE:
            self._greet(request, message, events)
        elif isinstance(message, _COMMON):
            self._take_common(request, message, events)
        else:
            frame = Frame(kind, request, head, payload)
            self._take_message(frame, message, events)

    def _take_common(
        self,
        request: int,
        message: messages.Ping | messages.Pong | messages.Goodbye,
        events: list[Event],
    ) -> None:
        self._check_one_way(request, message)
        if isinstance(message, messages.Goodbye):
            self._got_goodbye = True
            self.core.hot = False
            self.core.lane = None
            self._end(message.reason, events)
        elif isinstance(message, messages.Pong):
            events.append(Ponged(message.sent))
        elif not self._said_goodbye:
            self._queue(messages.Pong(message.sent))

    def _check_one_way(self, request: int, message: Message) -> None:
        if request:
            name = type(message).__name__
            raise RemoteProtocolError(f"{name} has the number of a request, {request}")

    def _queue(self, message: Message) -> None:
        kind = type(message)
        if size := self.core.queue(kind.KIND, 0, codec.encode(message), ()):
            raise self._too_large(kind, size)

    def _too_large(self, kind: type[Message], size: int) -> TooLargeError:
        """Return the error for a message whose frame has too many bytes."""
        name, limit = kind.__name__, self.frame_bytes_max
        reason = (
            f"the message {name} has {size} bytes, but a frame holds at most {limit}"
        )
        return TooLargeError(reason, size=size, limit=limit)

    def _opened(self, incoming_bytes_max: int, *, hot: bool, peer: bool) -> None:
        """Go on after the handshake, which said how large a frame may be that comes.

        `hot` lets the core take the frames of appends; `peer` tells whether both ends
        are nodes.
        """
        self.core.limit(incoming_bytes_max, self.frame_bytes_max)
        self.core.hot = hot
        self._of_peer = peer
        self._enter(State.OPEN)

    @abstractmethod
    def _greet(self, request: int, message: Message, events: list[Event]) -> None:
        """Take the first message of the other side."""

    @abstractmethod
    def _take_message(
        self, frame: Frame, message: Message, events: list[Event]
    ) -> None:
        """Take a message that is not of the connection itself."""

    @abstractmethod
    def _end(self, reason: str, events: list[Event]) -> None:
        """Go on after the other side said goodbye."""

    @abstractmethod
    def _after_goodbye(self) -> None:
        """Go on after this side said goodbye."""

    @abstractmethod
    def _break(self, error: RemoteProtocolError) -> None:
        """Close because the other side broke a rule."""
