"""What a connection tells its shell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from braidlog.errors import LogError
from braidlog.wire.messages import Hello, Message, Welcome
from braidlog.wire.roles import Role

__all__ = [
    "Answered",
    "Appends",
    "Closing",
    "Connected",
    "Event",
    "FailedRequest",
    "Greeted",
    "Ponged",
    "Received",
    "Refused",
    "Requested",
    "Taken",
]


class Greeted(Struct, frozen=True):
    """Server: the handshake is over; the `Welcome` is on its way out."""

    hello: Hello
    """Without its token."""
    role: Role


class Connected(Struct, frozen=True):
    """Client: the handshake is over; requests may be sent."""

    welcome: Welcome
    role: Role


class Requested(Struct, frozen=True):
    """Server: answer this, once, with `answer` or `fail`."""

    request: int
    message: Message
    payload: memoryview


class Appends(Struct, frozen=True):
    """Server: appends to one stream that came in one read; answer each of them."""

    stream: int
    epoch: int
    requests: Sequence[int]
    payloads: Sequence[bytes | memoryview]
    """The batch of each request."""
    repeat: bool = False
    """As in `Append`."""


class Received(Struct, frozen=True):
    """A message that expects no answer, from a peer."""

    message: Message
    payload: memoryview


class Taken(Struct, frozen=True):
    """Server: what a peer said in one read is done, as far as it was what is next."""

    commits: bool
    """Whether there were commits, which only who leads tells."""
    consensus: bool
    """Whether there were messages of the Raft group."""
    stirs: bool
    """Whether something follows from it at the end of the turn."""


class Answered(Struct, frozen=True):
    """Client: the answer to a request."""

    request: int
    message: Message
    payload: memoryview


class FailedRequest(Struct, frozen=True):
    """Client: a request failed with this error."""

    request: int
    error: LogError


class Refused(Struct, frozen=True):
    """The handshake, or a message without a request, was refused.

    On a server it was this side that refused, and the connection is closed.
    """

    error: LogError


class Ponged(Struct, frozen=True):
    """The answer to a `ping`."""

    sent: float


class Closing(Struct, frozen=True):
    """The other side sends nothing more.

    On a client the connection is closed, and `unanswered` are the requests that may be
    sent elsewhere; whether they were executed is not known. A server goes on answering
    what is open, and is closed when nothing is.
    """

    reason: str
    unanswered: tuple[int, ...] = ()


Event: TypeAlias = (
    Greeted
    | Connected
    | Requested
    | Appends
    | Received
    | Taken
    | Answered
    | FailedRequest
    | Refused
    | Ponged
    | Closing
)
