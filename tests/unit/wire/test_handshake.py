"""Who may connect, as what, and what they are told if not."""

import pytest

from braidlog.errors import (
    LocalProtocolError,
    LogError,
    NotFoundError,
    NotReadyError,
    ProtocolError,
    RemoteProtocolError,
    UnauthorizedError,
)
from braidlog.wire import messages as m
from braidlog.wire.client import ClientConnection
from braidlog.wire.codec import encode
from braidlog.wire.connection import (
    FRAME_BYTES_MAX,
    HANDSHAKE_BYTES_MAX,
    HELLO_BYTES_MAX,
    Connection,
)
from braidlog.wire.events import Closing, Connected, Greeted, Refused
from braidlog.wire.messages import Hello, Message
from braidlog.wire.rights import Rights
from braidlog.wire.roles import Role
from braidlog.wire.server import ServerConnection, ServerSettings
from braidlog.wire.tokens import Tokens, make_token
from unit.wire.frames import encode_frame
from unit.wire.pair import Pair, settings, single, written

TEXT, TOKEN = make_token("a", Role.APPEND, bytes(32))
PEER_TEXT, PEER_TOKEN = make_token("b", Role.PEER, bytes(31) + b"1")
SECURE = settings(authorize=Tokens([TOKEN, PEER_TOKEN]).authorize)


def frame(message: Message, request: int = 0, payload: bytes = b"") -> bytes:
    return encode_frame(message.KIND, request, encode(message), [payload])


def broken(connection: Connection, data: bytes) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        connection.receive(data)
    assert connection.closed
    assert connection.error is caught.value
    assert connection.receive(data) == []
    return caught.value.message


@pytest.mark.parametrize("cluster", ["", "test"])
def test_a_client_is_welcome(cluster: str) -> None:
    pair = Pair(Hello(1, 1, cluster, token=TEXT), SECURE, single)
    (greeted,) = pair.to_server()
    assert greeted == Greeted(Hello(1, 1, cluster), Role.APPEND)
    (connected,) = pair.to_client()
    assert isinstance(connected, Connected)
    assert connected.role is Role.APPEND
    assert connected.welcome == m.Welcome(1, "test", 1, "append", 1 << 17, 1 << 16)
    assert pair.client.credit == 1 << 17
    assert (pair.client.closed, pair.server.closed) == (False, False)


@pytest.mark.parametrize(
    ("hello", "error"),
    [
        (Hello(2, 3, "test", token=TEXT), ProtocolError),
        (Hello(0, 0, "test", token=TEXT), ProtocolError),
        (Hello(1, 1, "other", token=TEXT), NotFoundError),
        (Hello(1, 1, "test", token="wrong"), UnauthorizedError),
        (Hello(1, 1, "test"), UnauthorizedError),
        (Hello(1, 1, "test", node=2, token=TEXT), UnauthorizedError),
    ],
)
def test_others_are_told_why_they_are_not(hello: Hello, error: type[LogError]) -> None:
    pair = Pair(hello, SECURE)
    (refused,) = pair.to_server()
    assert isinstance(refused, Refused)
    assert type(refused.error) is error
    assert pair.server.closed
    told, closing = pair.to_client()
    assert isinstance(told, Refused)
    assert type(told.error) is error
    assert isinstance(closing, Closing)
    assert pair.client.closed


def test_without_a_token_the_name_of_the_cluster_is_not_told() -> None:
    pair = Pair(Hello(1, 1, "other"), SECURE)
    pair.to_server()
    assert b"test" not in written(pair.server)


def test_the_newest_version_of_both_is_spoken() -> None:
    pair = Pair(Hello(0, 9, ""))
    pair.greet()
    assert pair.client.welcome is not None
    assert pair.client.welcome.version == 1


def test_only_a_node_is_a_peer() -> None:
    node = Pair(Hello(1, 1, "", node=2, token=PEER_TEXT), SECURE).greet()
    assert (node.server.role, node.server.peer) == (Role.PEER, 2)
    other = Pair(Hello(1, 1, "", token=PEER_TEXT), SECURE).greet()
    assert (other.server.role, other.server.peer) == (Role.ADMIN, 0)


def test_the_first_frame_is_hello() -> None:
    server = ServerConnection(settings())
    assert "the first frame is Ping" in broken(server, frame(m.Ping()))
    client = ClientConnection(Hello(1, 1, ""))
    assert "before the Welcome" in broken(client, frame(m.Pong()))


def test_no_append_comes_before_the_handshake() -> None:
    server = ServerConnection(settings())
    frame = encode_frame(m.Append.KIND, 1, encode(m.Append(1, 1)), [b"batch"])
    with pytest.raises(RemoteProtocolError, match="the first frame is Append"):
        server.receive(frame)
    assert server.closed


def test_there_is_one_handshake() -> None:
    pair = Pair().greet()
    assert "Hello" in broken(pair.server, frame(Hello(1, 1, "")))
    welcome = pair.client.welcome
    assert welcome is not None
    broken(pair.client, frame(welcome))


def test_nobody_sends_much_before_the_handshake() -> None:
    head = bytes(HELLO_BYTES_MAX - 19)
    data = encode_frame(1, 0, head)
    server = ServerConnection(settings(frame_bytes_max=1 << 20, window_bytes=1 << 20))
    assert "the limit is 8192" in broken(server, data[:20])


@pytest.mark.parametrize(
    ("role", "limit"),
    [
        (Role.READ, 1 << 20),
        (Role.APPEND, 3 << 20),
        (Role.ADMIN, 3 << 20),
        (Role.PEER, 4 << 20),
    ],
)
def test_a_role_sends_no_more_than_it_needs(role: Role, limit: int) -> None:
    bounds = settings(
        authorize=lambda hello: Rights(role),
        frame_bytes_max=4 << 20,
        append_bytes_max=3 << 20,
        window_bytes=8 << 20,
    )
    hello = Hello(1, 1, "", node=2 if role is Role.PEER else 0)
    for size, refused in ((limit, False), (limit + 1, True)):
        pair = Pair(hello, bounds).greet()
        header = encode_frame(1, 1, b"h", [bytes(size - 21)])[:21]
        if refused:
            assert f"the limit is {limit}" in broken(pair.server, header)
        else:
            assert pair.server.receive(header) == []
            assert pair.server.unfinished_bytes == size


def test_who_is_not_let_in_is_told_why() -> None:
    def full(node: int, rights: Rights) -> None:
        raise NotReadyError("no place")

    pair = Pair()
    pair.server = ServerConnection(settings(), full)
    pair.to_server()
    refused, *_ = pair.to_client()
    assert isinstance(refused, Refused)
    assert refused.error.message == "no place"
    assert pair.server.closed


def test_behind_the_handshake_the_larger_limit_holds_in_the_same_read() -> None:
    """A server speaks to a peer without waiting for it."""
    large = settings(frame_bytes_max=1 << 20, window_bytes=1 << 20)
    for cut in (1, 1 << 20):
        pair = Pair(Hello(1, 1, "", node=2), large)
        pair.to_server()
        pair.server.send(m.Consensus(1), [bytes(1 << 17)])
        data = written(pair.server)
        pieces = [data[:cut], data[cut:]]
        events = [e for piece in pieces for e in pair.client.receive(piece)]
        assert len(events) == 2


@pytest.mark.parametrize(
    "welcome",
    [
        m.Welcome(2, "test", 1, "admin", 1 << 17, 1 << 16),
        m.Welcome(0, "test", 1, "admin", 1 << 17, 1 << 16),
        m.Welcome(1, "other", 1, "admin", 1 << 17, 1 << 16),
        m.Welcome(1, "test", 1, "root", 1 << 17, 1 << 16),
        m.Welcome(1, "test", 1, "admin", 1 << 17, (1 << 16) - 1),
    ],
)
def test_a_welcome_answers_the_hello(welcome: m.Welcome) -> None:
    broken(ClientConnection(Hello(1, 1, "test")), frame(welcome))


def test_a_node_that_stops_says_goodbye_to_who_just_came() -> None:
    pair = Pair()
    pair.server.goodbye("stopping")
    assert pair.to_client() == [Closing("stopping")]
    assert pair.client.closed


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="does not hold a frame"):
        ServerSettings("test", 1, SECURE.authorize, window_bytes=FRAME_BYTES_MAX - 1)
    with pytest.raises(LocalProtocolError, match="too small"):
        ClientConnection(Hello(1, 1, ""), HANDSHAKE_BYTES_MAX - 1)
