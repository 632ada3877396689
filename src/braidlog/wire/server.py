"""The end of a connection that was connected to.

*Theory of operation.* The first frame is a `Hello`: cluster, version and token are
checked, and the rights are fixed for as long as the connection lives. Each request
takes its cost from the window when it comes and gives it back when it is answered; who
sends more than the window allows broke a rule. A request that the role does not allow
is answered with the error, and never becomes an event.

The core opens appends by itself once the role is known to allow them.

*Invariants.* Every request is answered exactly once, or not at all if the connection
closes before. The cost of the open requests never exceeds the window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from braidlog.errors import (
    LocalProtocolError,
    LogError,
    NotFoundError,
    ProtocolError,
    RemoteProtocolError,
    UnauthorizedError,
)
from braidlog.wire import codec, messages
from braidlog.wire.connection import (
    ANSWERS,
    FRAME_BYTES_MAX,
    HANDSHAKE_BYTES_MAX,
    HELLO_BYTES_MAX,
    ONE_WAY,
    REQUEST_BYTES_MAX,
    VERSION_MAX,
    VERSION_MIN,
    WINDOW_BYTES,
    Connection,
    Frame,
    Lane,
    State,
    cost,
)
from braidlog.wire.events import (
    Appends,
    Closing,
    Event,
    Greeted,
    Refused,
    Requested,
)
from braidlog.wire.failures import encode_failure
from braidlog.wire.messages import MESSAGES, Hello, Message, Proof
from braidlog.wire.proof import Challenger, Exchange
from braidlog.wire.quotas import Quotas
from braidlog.wire.rights import Rights
from braidlog.wire.roles import NEEDED, OF_LOGS, Role, check_role

if TYPE_CHECKING:
    from typing_extensions import Buffer


__all__ = [
    "AppendRow",
    "Authorizer",
    "ServerConnection",
    "ServerSettings",
    "allow_all",
]

Authorizer: TypeAlias = Callable[[Hello], Rights]
"""Gives the rights of whoever connects, or raises `UnauthorizedError`."""


AppendRow: TypeAlias = tuple[int, int, int, int, int]
"""Request, LLSN, GLSN, records, version: an `Appended` that the core encodes."""


def allow_all(hello: Hello) -> Rights:
    """Let everybody do everything: for a node that only loopback reaches."""
    return Rights(Role.PEER if hello.node else Role.ADMIN)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What a node says to whoever connects, and what it bears."""

    cluster: str
    node: int
    authorize: Authorizer
    window_bytes: int = WINDOW_BYTES
    frame_bytes_max: int = FRAME_BYTES_MAX
    request_bytes_max: int = REQUEST_BYTES_MAX
    """Largest frame of whoever may only read, if frames may be so large."""
    append_bytes_max: int = FRAME_BYTES_MAX
    """Largest frame of clients that may append, if frames may be so large."""
    identity: bytes = b""
    """Identity of the directory of the node."""
    bound: Callable[[], int] = lambda: 0
    """Gives the entry of the repository that gave the id to that directory."""
    challenger: Challenger | None = None
    """Proves this node to peers; None without tokens."""
    lane: Lane | None = None
    """Takes what peers say to replicas, as far as it is what is next."""

    def __post_init__(self) -> None:
        """Refuse a window that cannot hold the largest frame."""
        if self.window_bytes < self.frame_bytes_max:
            sizes = f"{self.window_bytes} bytes, frames of {self.frame_bytes_max}"
            raise LocalProtocolError(f"the window does not hold a frame: {sizes}")

    def takes_bytes(self, role: Role) -> int:
        """Return the largest frame that a role may send."""
        if role is Role.PEER:
            return self.frame_bytes_max
        of_role = self.request_bytes_max if role <= Role.READ else self.append_bytes_max
        return min(self.frame_bytes_max, max(of_role, HANDSHAKE_BYTES_MAX))


class ServerConnection(Connection):
    """The rules of a connection for the side that answers."""

    def __init__(
        self,
        settings: ServerSettings,
        let_in: Callable[[int, Rights], None] = lambda node, rights: None,
    ) -> None:
        """Wait for the `Hello`; `let_in` takes its node id and rights, or refuses."""
        super().__init__(
            settings.frame_bytes_max,
            server=True,
            window=settings.window_bytes,
            greeting_bytes_max=HELLO_BYTES_MAX,
        )
        self._settings = settings
        self._let_in = let_in
        self._exchange: Exchange | None = None
        """The proof that was begun."""
        self.rights: Rights | None = None
        """What the other side may do, once it has said who it is."""
        self.peer = 0
        """Node id of the other side, 0 for clients."""
        self.peer_identity: tuple[bytes, int] = b"", 0
        """Its directory, and the entry that gave its id to it."""

    @property
    def role(self) -> Role | None:
        """Return the role of the other side in the whole cluster, once it is known."""
        return None if self.rights is None else self.rights.role

    def release(self) -> None:
        """Let go of the bytes of a frame that is not whole, and of who lets in."""
        super().release()
        self._let_in = lambda node, rights: None

    @property
    def unanswered(self) -> int:
        """Return how many requests are open."""
        return self.core.open_count

    def is_open(self, request: int) -> bool:
        """Tell whether a request waits for its answer."""
        return self.core.kind(request) > 0

    def answer(
        self, request: int, message: Message, payload: Sequence[Buffer] = ()
    ) -> None:
        """Answer a request; if the connection is closed by now, that is lost.

        Raises:
            LocalProtocolError: there is no such request, or it is answered differently.
            TooLargeError: the answer does not fit a frame; the request stays open.
        """
        if self.closed:
            return
        kind = type(message)
        self._check_answer(request, kind)
        self._answer(request, kind, codec.encode(message), payload)

    def answer_encoded(self, request: int, kind: type[Message], head: bytes) -> None:
        """Answer a request with a message that was encoded for many.

        Raises:
            LocalProtocolError: there is no such request, or it is answered differently.
            TooLargeError: the answer does not fit a frame; the request stays open.
        """
        if self.closed:
            return
        self._check_answer(request, kind)
        self._answer(request, kind, head)

    def answer_appends(self, answers: Sequence[AppendRow]) -> None:
        """Answer appends: (request, LLSN, GLSN, records, version) of each.

        If the connection is closed by now, that is lost.

        Raises:
            LocalProtocolError: one of them is no open append; the others are answered.
        """
        if self.closed:
            return
        for request in self.core.answer_appends(answers):
            self._check_answer(request, messages.Appended)
        self._settled()

    def fail(self, request: int, error: LogError) -> None:
        """Answer a request with an error; if the connection is closed, that is lost.

        Raises:
            LocalProtocolError: there is no such request.
        """
        if self.closed:
            return
        self._asked(request)
        failed = encode_failure(error)
        self._answer(request, messages.Failed, codec.encode(failed))

    def _asked(self, request: int) -> type[Message]:
        kind = self.core.kind(request)
        if not kind:
            raise LocalProtocolError(f"request {request} is not open")
        return MESSAGES[kind]

    def _check_answer(self, request: int, kind: type[Message]) -> None:
        asked = self._asked(request)
        if kind is not ANSWERS[asked]:
            msg = f"{kind.__name__} is no answer to {asked.__name__}"
            raise LocalProtocolError(msg)

    def _answer(
        self,
        request: int,
        kind: type[Message],
        head: bytes,
        payload: Sequence[Buffer] = (),
    ) -> None:
        if size := self.core.answer(request, kind.KIND, head, payload):
            raise self._too_large(kind, size)
        self._settled()

    def _settled(self) -> None:
        if self._got_goodbye and not self.core.open_count:
            self.goodbye()

    def _greet(self, request: int, message: Message, events: list[Event]) -> None:
        hello = self._hello(message)
        self._check_one_way(request, message)
        try:
            version = self._version(hello)
            if hello.nonce and self._exchange is None:
                self._challenge(hello)
                return
            rights = self._admit(hello)
        except LogError as error:
            self._refuse(error)
            events.append(Refused(error))
            return
        settings, peer = self._settings, rights.role is Role.PEER
        welcome = messages.Welcome(
            version,
            settings.cluster,
            settings.node,
            rights.most.word,
            settings.window_bytes,
            settings.frame_bytes_max,
            settings.identity,
            settings.bound(),
        )
        self._queue(welcome)
        self.rights, self.peer = rights, hello.node
        self.peer_identity = hello.identity, hello.bound
        hot = _is_hot(rights)
        self._opened(settings.takes_bytes(rights.most), hot=hot, peer=peer)
        self.core.lane = settings.lane if peer else None
        # Events are logged, tokens are not.
        events.append(Greeted(msgspec.structs.replace(hello, token=""), rights.role))

    def change_quotas(self, quotas: Quotas) -> None:
        """Go on with other quotas of the token, from the next frame on."""
        self.rights = replace(self._rights(), quotas=quotas)
        if self.state is State.OPEN and not self._got_goodbye:
            self.core.hot = _is_hot(self.rights)

    def _hello(self, message: Message) -> Hello:
        """Return the greeting, with the token if it was proved."""
        name = type(message).__name__
        if self._exchange is None:
            if not isinstance(message, Hello):
                raise RemoteProtocolError(f"the first frame is {name}, not Hello")
            return message
        if not isinstance(message, Proof):
            raise RemoteProtocolError(f"{name} follows a Challenge, not Proof")
        token = self._exchange.token(message)
        return msgspec.structs.replace(self._exchange.hello, token=token)

    def _challenge(self, hello: Hello) -> None:
        """Prove to a peer that this node knows its token."""
        challenger, node = self._settings.challenger, self._settings.node
        if challenger is None:
            reason = (
                f"node {node} has no [security] tokens, so it cannot prove its identity"
            )
            raise UnauthorizedError(reason)
        digest = challenger.find(hello.key)
        if not digest:
            raise UnauthorizedError("the node does not know this token")
        nonce = challenger.draw()
        exchange = Exchange(digest, hello, node, nonce, challenger.channel)
        self._exchange = exchange
        self._queue(messages.Challenge(node, nonce, exchange.proof()))

    def _version(self, hello: Hello) -> int:
        """Return the version to speak; raise what the other side is told."""
        version = min(hello.version_max, VERSION_MAX)
        if version < max(hello.version_min, VERSION_MIN):
            theirs = f"{hello.version_min} to {hello.version_max}"
            ours = f"{VERSION_MIN} to {VERSION_MAX}"
            raise ProtocolError(
                f"no common protocol version: the client speaks {theirs}, this node "
                f"{ours}"
            )
        return version

    def _admit(self, hello: Hello) -> Rights:
        """Return the rights; raise what the other side is told."""
        rights = self._settings.authorize(hello)
        role = rights.role
        if hello.cluster not in ("", self._settings.cluster):
            ours = self._settings.cluster
            raise NotFoundError(
                f"cluster {hello.cluster!r} was asked for, but this node belongs to "
                f"cluster {ours!r}"
            )
        if hello.node and role < Role.PEER:
            reason = (
                f"a node needs a token of role peer; this token has role {role.word}"
            )
            raise UnauthorizedError(reason)
        self._let_in(hello.node, rights)
        # What peers say has an author.
        if hello.node or role < Role.PEER:
            return rights
        return replace(rights, role=Role.ADMIN)

    def _take_message(
        self, frame: Frame, message: Message, events: list[Event]
    ) -> None:
        cls = type(message)
        if cls in ONE_WAY:
            # Not of a peer, or it was taken before.
            self._refuse_one_way(frame, message)
            return
        if cls not in ANSWERS:
            raise RemoteProtocolError(
                f"{cls.__name__} is nothing that a server takes now"
            )
        self._begin(frame.request, cls, frame.size)
        if not self._allowed(frame.request, cls):
            return
        if isinstance(message, messages.Append):
            batch = (frame.payload,)
            events.append(
                Appends(
                    message.stream,
                    message.epoch,
                    (frame.request,),
                    batch,
                    message.repeat,
                )
            )
        else:
            events.append(Requested(frame.request, message, frame.payload))

    def _begin(self, request: int, cls: type[Message], size: int) -> None:
        """Open a request."""
        refusal = self.core.open(request, cls.KIND, size)
        if not refusal:
            return
        if not request:
            raise RemoteProtocolError(f"{cls.__name__} without the number of a request")
        if self.is_open(request):
            raise RemoteProtocolError(f"request {request} is not answered yet")
        over = f"{self.used} + {cost(size)} bytes unanswered"
        raise RemoteProtocolError(f"{over}, the window is {self.core.window}")

    def _allowed(self, request: int, cls: type[Message]) -> bool:
        """Whether the role allows it; if not, it is answered with the error."""
        rights = self._rights()
        if rights.grants and cls in OF_LOGS:
            return True  # The node knows of which log it is.
        try:
            check_role(rights.role, cls)
        except UnauthorizedError as error:
            self.fail(request, error)
            return False
        return True

    def _refuse_one_way(self, frame: Frame, message: Message) -> None:
        """Tell the other side that its role does not allow it."""
        try:
            check_role(self._rights().role, type(message))
        except UnauthorizedError as error:
            self._check_one_way(frame.request, message)
            self._queue(encode_failure(error))

    def _rights(self) -> Rights:
        if self.rights is None:
            raise LocalProtocolError("there was no handshake")
        return self.rights

    def _end(self, reason: str, events: list[Event]) -> None:
        events.append(Closing(reason))
        self._settled()

    def _after_goodbye(self) -> None:
        self.core.clear()
        self._enter(State.CLOSED)

    def _break(self, error: RemoteProtocolError) -> None:
        self._refuse(error)

    def _refuse(self, error: LogError) -> None:
        if not self._said_goodbye:
            self._queue(encode_failure(error))
            self.goodbye(error.message)
        self._enter(State.CLOSED)


def _is_hot(rights: Rights) -> bool:
    """Whether the core may take appends by itself.

    Appends that are allowed to some logs alone, or counted, must not pass the node by:
    the core knows neither names nor quotas.
    """
    return rights.role >= NEEDED[messages.Append] and not rights.quotas.rates
