"""Nodes prove to one another that they know a token, and never send it."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace
from itertools import count

import msgspec
import pytest

from braidlog.errors import ProtocolError, RemoteProtocolError, UnauthorizedError
from braidlog.wire import messages as m
from braidlog.wire.client import ClientConnection
from braidlog.wire.connection import HANDSHAKE_BYTES_MAX, State
from braidlog.wire.events import Closing, Connected, Greeted, Refused
from braidlog.wire.messages import Hello
from braidlog.wire.proof import Challenger, Exchange, Secret, key_of, proving
from braidlog.wire.roles import Role
from braidlog.wire.server import ServerConnection, ServerSettings, allow_all
from braidlog.wire.tokens import Tokens, make_token
from unit.wire.pair import Pair, settings, single, whole, written
from unit.wire.test_handshake import frame

TEXT, TOKEN = make_token("nodes", Role.PEER, bytes(range(32)))
OTHER, OTHER_TOKEN = make_token("others", Role.PEER, bytes(32))
ADMIN, ADMIN_TOKEN = make_token("admin", Role.ADMIN, b"a" * 32)
TOKENS = Tokens([TOKEN, ADMIN_TOKEN])
_numbers = count(1)


def draw() -> bytes:
    return next(_numbers).to_bytes(32, "big")


CHALLENGER = Challenger(find=TOKENS.digest, draw=draw)
SECURE = settings(authorize=TOKENS.authorize, challenger=CHALLENGER)


class Linked(Pair):
    """Node 2 connects to what it takes for node 1."""

    def __init__(
        self,
        server: ServerSettings = SECURE,
        *,
        text: str = TEXT,
        node: int = 1,
        channel: bytes = b"",
        cut: object = whole,
    ) -> None:
        hello = Hello(1, 1, "test", 2, identity=b"i" * 16)
        super().__init__(hello, server, cut)  # type: ignore[arg-type]
        self.secret = Secret(text, node, channel)
        self.client = ClientConnection(
            proving(hello, text, draw()), HANDSHAKE_BYTES_MAX, self.secret
        )


@pytest.mark.parametrize("cut", [whole, single])
def test_both_sides_prove_what_they_know(cut: object) -> None:
    pair = Linked(cut=cut)
    assert pair.to_server() == []
    assert pair.to_client() == []
    assert pair.secret.proved
    [greeted] = pair.to_server()
    assert isinstance(greeted, Greeted)
    assert greeted.role is Role.PEER
    assert greeted.hello.token == ""
    [connected] = pair.to_client()
    assert isinstance(connected, Connected)
    assert pair.server.peer == 2
    assert pair.server.peer_identity == (b"i" * 16, 0)
    assert pair.client.state is pair.server.state is State.OPEN


def test_the_token_never_crosses_the_wire() -> None:
    pair = Linked()
    sent = []
    for _ in range(2):
        sent.append(written(pair.client))
        pair.server.receive(sent[-1])
        sent.append(written(pair.server))
        pair.client.receive(sent[-1])
    everything = b"".join(sent)
    for piece in (TEXT.encode(), TOKEN.sha256.encode(), bytes.fromhex(TOKEN.sha256)):
        assert piece not in everything
    assert TEXT.encode()[9:20] not in everything


def test_who_does_not_know_the_token_gets_nothing() -> None:
    """It has a file of tokens of its own, or none, or says that it needs no proof."""
    impostor = Linked()
    hello = impostor.client.hello
    forged = Exchange(OTHER_TOKEN.sha256, hello, 1, draw(), b"")
    written(impostor.client)
    challenge = m.Challenge(1, forged.nonce, forged.proof())
    with pytest.raises(RemoteProtocolError, match="could not prove"):
        impostor.client.receive(frame(challenge))
    assert impostor.client.closed
    assert TEXT.encode() not in written(impostor.client)

    for server in (settings(authorize=allow_all), settings(authorize=allow_all)):
        careless = Linked(server)
        welcome = m.Welcome(1, "test", 1, "peer", 1 << 17, 1 << 16)
        with pytest.raises(RemoteProtocolError, match="could not prove"):
            careless.client.receive(frame(welcome))
        assert careless.client.closed


def test_a_node_without_tokens_says_that_it_can_prove_nothing() -> None:
    pair = Linked(settings(authorize=allow_all))
    [refused] = pair.to_server()
    assert isinstance(refused, Refused)
    [told, closing] = pair.to_client()
    assert isinstance(told, Refused)
    assert isinstance(told.error, UnauthorizedError)
    assert "no [security] tokens" in told.error.message
    assert isinstance(closing, Closing)


def test_another_node_in_the_place_of_one_is_left() -> None:
    """What one node says is not passed off as what another said."""
    pair = Linked(node=3)
    pair.to_server()
    with pytest.raises(RemoteProtocolError, match="node 1 answered in place"):
        pair.to_client()


def test_what_was_said_on_one_connection_proves_nothing_on_another() -> None:
    first, second = Linked(), Linked()
    first.to_server()
    challenge = written(first.server)
    written(second.client)
    with pytest.raises(RemoteProtocolError, match="could not prove"):
        second.client.receive(challenge)
    first.client.receive(challenge)
    proof = written(first.client)
    third = Linked()
    third.to_server()
    [refused] = third.server.receive(proof)
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, UnauthorizedError)


def test_who_ends_tls_between_two_nodes_is_found_out() -> None:
    server = settings(
        authorize=TOKENS.authorize, challenger=replace(CHALLENGER, channel=b"theirs")
    )
    Linked(server, channel=b"theirs").greet()
    pair = Linked(server, channel=b"of the one between")
    pair.to_server()
    with pytest.raises(RemoteProtocolError, match="could not prove"):
        pair.to_client()


def test_the_file_of_tokens_alone_opens_nothing() -> None:
    """It has the hashes, which prove a node to others, and not the texts."""
    pair = Linked()
    pair.to_server()
    challenge = written(pair.server)
    stolen = hashlib.sha256(TEXT.encode()).hexdigest()
    exchange = Exchange(stolen, pair.client.hello, 1, draw(), b"")
    [refused] = pair.server.receive(frame(m.Proof(exchange.mask(stolen.encode()))))
    assert isinstance(refused, Refused)
    assert challenge


@pytest.mark.parametrize("text", [OTHER, ADMIN])
def test_a_token_that_no_node_has_is_not_challenged(text: str) -> None:
    pair = Linked(text=text)
    [refused] = pair.to_server()
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, UnauthorizedError)
    assert not pair.secret.proved


def test_a_node_of_an_earlier_version_shows_its_token() -> None:
    hello = Hello(1, 1, "test", 2, TEXT)
    pair = Pair(hello, SECURE)
    [greeted] = pair.to_server()
    assert isinstance(greeted, Greeted)
    [connected] = pair.to_client()
    assert isinstance(connected, Connected)


def test_a_node_of_an_earlier_version_is_told_apart() -> None:
    """It passes over what it does not know, and misses the token."""
    pair = Linked()
    hello = msgspec.structs.replace(pair.client.hello, nonce=b"", key=b"")
    written(pair.client)
    [refused] = pair.server.receive(frame(hello))
    assert isinstance(refused, Refused)
    [told, _] = pair.to_client()
    assert isinstance(told, Refused)
    assert not pair.secret.proved


@pytest.mark.parametrize(
    "message",
    [m.GetMetadata(), Hello(1, 1, "test", 2, TEXT), m.Ping(), m.Proof(b"x" * 60_000)],
)
def test_nothing_but_a_proof_follows_a_challenge(message: m.Message) -> None:
    pair = Linked()
    pair.to_server()
    with contextlib.suppress(ProtocolError):
        pair.server.receive(frame(message))
    assert pair.server.closed
    assert pair.server.role is None


def test_a_proof_comes_after_a_challenge_alone() -> None:
    server = ServerConnection(SECURE)
    with pytest.raises(RemoteProtocolError, match="not Hello"):
        server.receive(frame(m.Proof(b"x")))
    pair = Linked()
    pair.to_server()
    challenge = written(pair.server)
    pair.client.receive(challenge)
    with pytest.raises(RemoteProtocolError):
        pair.client.receive(challenge)


@pytest.mark.parametrize(("nonce", "key"), [(31, 16), (33, 16), (32, 0), (32, 17)])
def test_nonces_and_keys_have_their_sizes(nonce: int, key: int) -> None:
    hello = Hello(1, 1, "test", 2, nonce=bytes(nonce), key=bytes(key))
    with pytest.raises(RemoteProtocolError):
        ServerConnection(SECURE).receive(frame(hello))


def test_the_name_of_a_token_is_no_part_of_it() -> None:
    assert key_of(TOKEN.sha256) != key_of(OTHER_TOKEN.sha256)
    assert key_of(TOKEN.sha256) not in bytes.fromhex(TOKEN.sha256)
    assert TOKENS.digest(key_of(TOKEN.sha256)) == TOKEN.sha256
    assert TOKENS.digest(key_of(ADMIN_TOKEN.sha256)) == ""
