"""The end of a connection that connected.

*Theory of operation.* `Hello` is queued at once; requests may be sent when the
`Welcome` is there, which says how large the window is. A request takes its cost from
the window and the answer gives it back. A request for which there is no room is not an
error: the shell waits for the next answer. Deadlines are the shell's: a request whose
caller has gone stays open until its answer comes.

*Invariants.* The numbers of open requests differ. Every request gets one event, or is
among the unanswered when the connection closes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from braidlog.errors import (
    InvalidArgumentError,
    LocalProtocolError,
    RemoteProtocolError,
)
from braidlog.wire import codec, messages
from braidlog.wire.connection import (
    ANSWERS,
    FRAME_BYTES_MAX,
    HANDSHAKE_BYTES_MAX,
    NOT_OPEN,
    ONE_WAY,
    Connection,
    Frame,
    State,
)
from braidlog.wire.events import (
    Answered,
    Closing,
    Connected,
    Event,
    FailedRequest,
    Refused,
)
from braidlog.wire.failures import decode_failure
from braidlog.wire.messages import MESSAGES, Hello, Message
from braidlog.wire.proof import Secret
from braidlog.wire.roles import Role

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["ClientConnection"]


class ClientConnection(Connection):
    """The rules of a connection for the side that asks."""

    def __init__(
        self,
        hello: Hello,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        secret: Secret | None = None,
        last: int = 0,
    ) -> None:
        """Queue the `Hello`; frames of more than `frame_bytes_max` are not taken.

        With a `secret` nothing is believed, and no token is sent, before the other side
        has proved that it knows it. The first request has the number behind `last`.
        """
        super().__init__(frame_bytes_max, server=False, last=last)
        self.secret = secret
        self.hello = hello
        self.welcome: messages.Welcome | None = None
        self._queue(hello)

    @property
    def unanswered(self) -> tuple[int, ...]:
        """Return the numbers of the open requests, in the order they were sent."""
        return tuple(self.core.open_numbers)

    @property
    def credit(self) -> int:
        """Return the cost for which there is room in the window."""
        return self.core.window - self.core.used

    def request(self, message: Message, payload: Sequence[Buffer] = ()) -> int | None:
        """Send a request; return its number, or None while the window has no room.

        A request that fits a frame has room at the latest when nothing is open.

        Raises:
            LocalProtocolError: not now, or not this message.
            TooLargeError: it does not fit a frame.
        """
        if not self.writable:
            raise LocalProtocolError(NOT_OPEN)
        if type(message) not in ANSWERS:
            raise LocalProtocolError(f"{type(message).__name__} is not a request")
        kind, head = type(message), codec.encode(message)
        number = self.core.ask(kind.KIND, head, payload)
        if number < 0:
            raise self._too_large(kind, -number)
        return number or None

    def _greet(self, request: int, message: Message, events: list[Event]) -> None:
        self._check_one_way(request, message)
        secret = self.secret
        if isinstance(message, messages.Challenge) and secret and not secret.proved:
            self._queue(secret.answer(self.hello, message))
        elif isinstance(message, messages.Welcome):
            if secret is not None:
                secret.require()
            role = self._check_welcome(message)
            self.welcome = message
            self.core.window = message.window_bytes
            ours, self.frame_bytes_max = self.frame_bytes_max, message.frame_bytes_max
            peer = self.hello.node > 0
            self._opened(min(message.frame_bytes_max, ours), hot=True, peer=peer)
            events.append(Connected(message, role))
        elif isinstance(message, messages.Failed):
            events.append(Refused(decode_failure(message)))
        elif isinstance(message, messages.Goodbye):
            self._take_common(request, message, events)
        else:
            name = type(message).__name__
            raise RemoteProtocolError(f"the node sent {name} before the Welcome")

    def _check_welcome(self, welcome: messages.Welcome) -> Role:
        asked = self.hello
        if not asked.version_min <= welcome.version <= asked.version_max:
            raise RemoteProtocolError(
                f"the node chose protocol version {welcome.version}, which was not "
                "offered"
            )
        if asked.cluster not in ("", welcome.cluster):
            reason = (
                f"the node belongs to cluster {welcome.cluster!r}, not to "
                f"{asked.cluster!r}"
            )
            raise RemoteProtocolError(reason)
        if welcome.frame_bytes_max < HANDSHAKE_BYTES_MAX:
            reason = f"frames of {welcome.frame_bytes_max} bytes are too small"
            raise RemoteProtocolError(reason)
        try:
            return Role.named(welcome.role)
        except InvalidArgumentError as error:
            raise RemoteProtocolError(error.message) from error

    def _take_message(
        self, frame: Frame, message: Message, events: list[Event]
    ) -> None:
        if isinstance(message, messages.Failed):
            error = decode_failure(message)
            if frame.request:
                self._settle(frame.request)
                events.append(FailedRequest(frame.request, error))
            else:
                events.append(Refused(error))
        elif type(message) in ONE_WAY:
            name = type(message).__name__
            raise RemoteProtocolError(f"{name} goes to peers only")
        elif isinstance(message, messages.Append):
            raise RemoteProtocolError("Append goes to servers only")
        else:
            self._take_answer(frame, message, events)

    def _take_answer(self, frame: Frame, message: Message, events: list[Event]) -> None:
        asked = self._settle(frame.request)
        if type(message) is not ANSWERS[asked]:
            given = type(message).__name__
            raise RemoteProtocolError(f"{given} is no answer to {asked.__name__}")
        events.append(Answered(frame.request, message, frame.payload))

    def _settle(self, request: int) -> type[Message]:
        kind = self.core.settle(request)
        if not kind:
            raise RemoteProtocolError(f"an answer to request {request}, none is open")
        return MESSAGES[kind]

    def _end(self, reason: str, events: list[Event]) -> None:
        events.append(Closing(reason, self.unanswered))
        self._enter(State.CLOSED)

    def _after_goodbye(self) -> None:
        """Answers to what is open may still come."""

    def _break(self, error: RemoteProtocolError) -> None:
        self.goodbye(error.message)
        self._enter(State.CLOSED)
