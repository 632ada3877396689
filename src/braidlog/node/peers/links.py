"""Links to the other nodes: one outgoing connection each, made when it is needed.

A message to a peer may get lost: when the link is down, full or breaks. Everything that
is sent here is repeated or asked for again by who needs it.
"""
# One file: a link and the peer that it leads to call each other.

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import ssl
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec

from braidlog.errors import (
    ConnectionLostError,
    InvalidArgumentError,
    LogError,
    NodeIdentityError,
    NotReadyError,
    ProtocolError,
)
from braidlog.node.metrics.status import PeerStatus
from braidlog.serving.log_once import Connections
from braidlog.serving.security import channel_of
from braidlog.serving.settings import host_and_port
from braidlog.serving.transport import Outbox, Takers, Wire
from braidlog.wire import codec
from braidlog.wire.client import ClientConnection
from braidlog.wire.connection import Lane
from braidlog.wire.events import (
    Answered,
    Closing,
    Connected,
    FailedRequest,
    Received,
    Refused,
)
from braidlog.wire.messages import Hello, Message
from braidlog.wire.proof import NONCE_BYTES, Secret, proving

if TYPE_CHECKING:
    from typing_extensions import Buffer

Answer = Callable[[Message | LogError, memoryview], None]
"""Called once with the answer to a request and its payload."""

Part = bytes | memoryview
"""Of the payload of a message."""

_log = logging.getLogger(__name__)

_RETRY_MIN_S: Final = 0.02
_RETRY_MAX_S: Final = 0.5
_CONNECT_S: Final = 2.0
_UNACKNOWLEDGED_MS: Final = 5_000
"""What the other machine did not acknowledge for so long ends a link. TCP repeats it
ever more rarely, and would find out minutes after a network is whole again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """What all links have in common."""

    hello: Hello
    frame_bytes_max: int
    unsent_bytes_max: int
    """Messages beyond that are dropped."""
    tls: ssl.SSLContext | None = None
    token: str = ""
    """What both sides prove that they know; empty: they prove nothing."""


class _Link(Wire):
    """The socket of a link."""

    connection: ClientConnection
    tcp_options = (("TCP_USER_TIMEOUT", _UNACKNOWLEDGED_MS),)

    def __init__(self, peer: _Peer) -> None:
        settings = peer.settings
        hello = msgspec.structs.replace(settings.hello, bound=peer.bound())
        self._secret: Secret | None = None
        if token := settings.token:
            hello = proving(hello, token, secrets.token_bytes(NONCE_BYTES))
            self._secret = Secret(token, peer.node)
        connection = ClientConnection(hello, settings.frame_bytes_max, self._secret)
        super().__init__(connection, peer.outbox, peer.takers, peer.node)
        self._peer = peer
        self._asked: dict[int, Answer] = {}
        self._refused = False
        self.identity: tuple[bytes, int] = b"", 0
        """Directory of the other node, and the entry that gave its id to it."""
        self.settled = asyncio.Event()
        """Set when the greeting was answered, or never will be."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and self._secret is not None:
            self._secret.channel = channel_of(tls.getpeercert(binary_form=True) or b"")
        super().connection_made(transport)

    def request(
        self, message: Message, payload: Sequence[Buffer], answer: Answer
    ) -> None:
        number = self.connection.request(message, payload)
        if number is None:
            answer(
                NotReadyError(
                    f"node {self._peer.node} has too many open requests of this node"
                ),
                _NOTHING,
            )
            return
        self._asked[number] = answer
        self.outbox.add(self)

    def connected(self, event: Connected) -> None:
        self.settled.set()
        self.identity = event.welcome.identity, event.welcome.bound
        if self._peer.knows(*self.identity):
            self._peer.opened(self)
        else:
            self.connection.goodbye(
                "the directory at this address is not the one known for this node id"
            )

    def answered(self, event: Answered) -> None:
        self._asked.pop(event.request)(event.message, event.payload)

    def failed(self, event: FailedRequest) -> None:
        self._asked.pop(event.request)(event.error, _NOTHING)

    def closing(self, event: Closing) -> None:
        # Behind a refusal it says the same again; nothing, if this side ended it.
        if event.reason and not self._refused:
            self._peer.fails(event.reason)

    def refused(self, event: Refused) -> None:
        self._refused = True
        if isinstance(event.error, NodeIdentityError):
            self._peer.refused(event.error)
        elif self._secret is not None and not self._secret.proved:
            self._peer.fails(f"{event.error}. {_EARLIER}")
        else:
            self._peer.fails(event.error)

    def lost(self) -> None:
        self.settled.set()
        asked, self._asked = self._asked, {}
        for answer in asked.values():
            error = ConnectionLostError(
                f"the connection to node {self._peer.node} broke before the answer came"
            )
            answer(error, _NOTHING)
        self._peer.closed(self)

    def broken(self, error: ProtocolError) -> None:
        if self._secret is not None and not self._secret.proved:
            self._peer.fails(f"{error.message}. {_EARLIER}")
        else:
            self._peer.fails(error)


class _Peer:
    """One other node: its link, or the attempt to make one, and what waits for it."""

    def __init__(self, node: int, address: str, peers: Peers) -> None:
        self.node = node
        self.address = address
        self.outbox = peers.outbox
        self.takers = peers.takers
        self._peers = peers
        self.link: _Link | None = None
        self._waiting: deque[tuple[Message, Sequence[Part]]] = deque()
        self._waiting_bytes = 0
        self._retry_s = _RETRY_MIN_S
        self._attempt: asyncio.Task[None] | None = None
        self._spoke = asyncio.Event()
        """Set when the other node spoke while there was no link."""

    @property
    def settings(self) -> LinkSettings:
        return self._peers.settings

    @property
    def connected(self) -> bool:
        return self.link is not None

    def keep(self, message: Message, payload: Sequence[Part], size: int) -> None:
        """Keep a message until there is a link."""
        self._waiting.append((message, payload))
        self._waiting_bytes += size + _MESSAGE_COST

    def request(
        self, message: Message, payload: Sequence[Buffer], answer: Answer
    ) -> None:
        link = self.link
        if link is None or not link.connection.writable:
            self.connect()
            msg = f"this node is not connected to node {self.node} yet"
            answer(NotReadyError(msg), _NOTHING)
            return
        link.request(message, payload, answer)

    def waiting_bytes(self) -> int:
        link = self.link
        return self._waiting_bytes if link is None else link.unsent_bytes()

    def has_room(self) -> bool:
        return 2 * self.waiting_bytes() <= self.settings.unsent_bytes_max

    def connect(self) -> None:
        if self._attempt is None and not self._peers.closing:
            self._attempt = asyncio.get_running_loop().create_task(self._try())

    async def _try(self) -> None:
        loop = asyncio.get_running_loop()
        link: _Link | None = None
        try:
            host, port = host_and_port(self.address)
            async with asyncio.timeout(_CONNECT_S):
                _, link = await loop.create_connection(
                    lambda: _Link(self), host, port, ssl=self.settings.tls
                )
                # The other side may be gone for good, and nothing is sent before it
                # answers, so nobody else would tell.
                await link.settled.wait()
        # A timeout is one of the first. What was registered by an earlier version may
        # be no address, or no name that can be looked up; that takes a thread, too.
        except (OSError, InvalidArgumentError, RuntimeError, UnicodeError) as error:
            if not isinstance(error, OSError) or isinstance(error, ssl.SSLError):
                # TLS on one side alone does not get better by itself.
                self.fails(_reason(error))
            else:
                _log.debug("%s: %s", self.name, error)
            self._forget()
            if link is None:
                self._peers.on_lost(self.node)
                await self._rest()
        finally:
            if link is not None and not link.settled.is_set():
                # `closed` does the rest.
                link.abort()

    async def _pause(self) -> None:
        """Wait before the next attempt; who sends meanwhile does not start one."""
        self._spoke.clear()
        pause = self._retry_s * (0.5 + self._peers.random.random())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._spoke.wait()
        self._retry_s = min(2 * self._retry_s, _RETRY_MAX_S)

    def heard(self) -> None:
        """Connect now: there is no link, and the other node has just spoken."""
        self._spoke.set()
        self.connect()

    def knows(self, identity: bytes, bound: int) -> bool:
        return self._peers.holds(self.node, identity, bound)

    def bound(self) -> int:
        return self._peers.bound()

    @property
    def name(self) -> str:
        return f"node {self.node} at {self.address}"

    def fails(self, reason: object) -> None:
        self._peers.complaints.fails(self.name, str(reason))

    def refused(self, error: NodeIdentityError) -> None:
        self._peers.on_refused(self.node, error)

    def recheck(self, vacant: Collection[int]) -> None:
        """Close the link if the other node is not who it is known to be any more."""
        if self.link is None and self.node in vacant:
            # What waits is for a directory that is no more.
            self._forget()
        if self.link is not None and not self.knows(*self.link.identity):
            self.link.abort()

    def opened(self, link: _Link) -> None:
        self.link, self._attempt = link, None
        self._retry_s = _RETRY_MIN_S
        self._peers.complaints.works(self.name)
        for message, payload in self._waiting:
            link.connection.send(message, payload)
        self._forget()
        if (lane := self._peers.lane) is not None:
            limit = self.settings.unsent_bytes_max
            lane.link(self.node, link.connection.core, link, limit)
        self._peers.on_connected(self.node)

    def closed(self, link: _Link) -> None:
        self._attempt = None
        if self.link is link:
            self.link = None
        if (lane := self._peers.lane) is not None:
            lane.unlink(self.node, link.connection.core)
        # Also one that never opened: a refused handshake must not be tried in a rush.
        if not self._peers.closing:
            self._attempt = asyncio.get_running_loop().create_task(self._rest())
        self._peers.on_lost(self.node)

    async def _rest(self) -> None:
        await self._pause()
        self._attempt = None
        if self._spoke.is_set():
            self.connect()

    def _forget(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0

    def close(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
        if self.link is not None:
            self.link.connection.goodbye("the node is shutting down")
            self.link.flush()


def _reason(error: Exception) -> object:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted: {error.verify_message}. Check [security] "
            "certificate of that node and [security] authority of this one"
        )
    return error


_EARLIER: Final = (
    "Earlier versions, and nodes without tokens, cannot prove their "
    "identity: set [security] peer_proof = false while the cluster has "
    "such nodes"
)
_MESSAGE_COST: Final = 256
_NOTHING: Final = memoryview(b"")


def _ignore(node: int, error: NodeIdentityError) -> None:
    """Do nothing about a refusal."""


def _hold(node: int, identity: bytes, bound: int) -> bool:
    """Believe everybody."""
    return True


class Peers:
    """All other nodes."""

    def __init__(
        self,
        settings: LinkSettings,
        *,
        seed: int,
        on_message: Callable[[Wire, Received], None],
        on_connected: Callable[[int], None],
        on_lost: Callable[[int], None],
        outbox: Outbox,
        on_refused: Callable[[int, NodeIdentityError], None] = _ignore,
        holds: Callable[[int, bytes, int], bool] = _hold,
        bound: Callable[[], int] = lambda: 0,
    ) -> None:
        """Know nobody yet; the callbacks get the number of the node.

        `holds` says whether a node may have an identity, which an entry of the
        repository gave to it; `bound` gives that entry of this node. `on_refused` is
        told that another node does not take this one for who it says.
        """
        self.settings = settings
        self.outbox = outbox
        self.complaints = Connections(_log)
        self.random = random.Random(seed)
        self.on_connected = on_connected
        self.on_lost = on_lost
        self.on_refused = on_refused
        self.holds = holds
        self.bound = bound
        self.closing = False
        self.takers: Takers = {
            Received: on_message,
            Connected: _Link.connected,
            Answered: _Link.answered,
            FailedRequest: _Link.failed,
            Refused: _Link.refused,
            Closing: _Link.closing,
        }
        self.dropped = 0
        """Messages that were not sent because too much waits."""
        self.known: dict[int, _Peer] = {}
        self.lane: Lane | None = None
        """Sends over the links that are open, too."""

    def protect(self, tls: ssl.SSLContext | None, token: str) -> None:
        """Make links from now on with these; those that are open stay."""
        old = self.settings
        proves = token if old.token else ""
        given = "" if proves else token
        hello = msgspec.structs.replace(old.hello, token=given)
        self.settings = replace(old, hello=hello, tls=tls, token=proves)

    def know(self, addresses: Mapping[int, str]) -> None:
        """Learn where nodes are; one that moved is connected to anew."""
        for node, address in addresses.items():
            if node in self.known and self.known[node].address == address:
                continue
            if node in self.known:
                self.known.pop(node).close()
            self.known[node] = _Peer(node, address, self)

    def forget(self, node: int) -> None:
        """Close the link to a node that was removed."""
        if node in self.known:
            self.known.pop(node).close()

    @property
    def nodes(self) -> tuple[int, ...]:
        """Return the nodes that are known."""
        return tuple(self.known)

    def heard(self, node: int) -> bool:
        """Note that a node has spoken: a link to it can be made, if it is known."""
        peer = self.known.get(node)
        if peer is not None and peer.link is None:
            peer.heard()
        return peer is not None

    def recheck(self, vacant: Collection[int] = ()) -> None:
        """Close the links to nodes that are not who they are known to be.

        What waits for the `vacant`, whose directories were given up, is not for those
        that come next.
        """
        for peer in self.known.values():
            peer.recheck(vacant)

    def is_connected(self, node: int) -> bool:
        """Tell whether there is a link."""
        return node in self.known and self.known[node].connected

    def send(self, node: int, message: Message, payload: Sequence[Part] = ()) -> bool:
        """Send a message, or lose it.

        Returns False if it is lost because too much waits: unlike a link that broke and
        is made again, nothing else shows that.
        """
        peer = self.known.get(node)
        if peer is None:
            return True
        size, link = sum(map(len, payload)) if payload else 0, peer.link
        if link is None:
            peer.connect()
            waiting = peer.waiting_bytes()
        else:
            waiting = link.unsent_bytes()
        # What is larger than the bound by itself goes alone: it would never go.
        if waiting and waiting + size > self.settings.unsent_bytes_max:
            self.dropped += 1
            return False
        if link is None:
            peer.keep(message, payload, size)
        elif (core := link.connection.core).writable:
            # For each message of each round, so without a call in between.
            if core.queue(message.KIND, 0, codec.encode(message), payload):
                _log.error("a message to node %d is too large for a frame", node)
            elif (outbox := self.outbox).held:
                outbox.wires[link] = None
            else:
                outbox.add(link)
        return True

    def has_room(self, node: int) -> bool:
        """Tell whether half of what may wait for a node is free."""
        return node not in self.known or self.known[node].has_room()

    def links(self) -> Iterator[PeerStatus]:
        """Return how the links to the others are."""
        for peer in self.known.values():
            yield PeerStatus(
                node=peer.node,
                connected=peer.connected,
                waiting_bytes=peer.waiting_bytes(),
            )

    def flush(self) -> None:
        """Write what was sent now, before something that takes time."""
        self.outbox.flush()

    def request(
        self,
        node: int,
        message: Message,
        payload: Sequence[Buffer],
        answer: Answer,
    ) -> None:
        """Ask another node; `answer` is called once, maybe at once, with a failure."""
        peer = self.known.get(node)
        if peer is None:
            answer(
                NotReadyError(f"this node knows no address of node {node}"), _NOTHING
            )
            return
        try:
            peer.request(message, payload, answer)
        except LogError as error:
            answer(error, _NOTHING)

    def close(self) -> None:
        """Say goodbye to everybody."""
        self.closing = True
        for peer in self.known.values():
            peer.close()
