"""Two connections and a link that cuts bytes as it likes."""

from collections.abc import Callable, Iterator

from braidlog.wire.client import ClientConnection
from braidlog.wire.connection import HANDSHAKE_BYTES_MAX, Connection
from braidlog.wire.events import Event
from braidlog.wire.messages import Hello
from braidlog.wire.server import ServerConnection, ServerSettings, allow_all

Cut = Callable[[bytes], Iterator[bytes]]

WINDOW = 2 * HANDSHAKE_BYTES_MAX


def whole(data: bytes) -> Iterator[bytes]:
    yield data


def single(data: bytes) -> Iterator[bytes]:
    for byte in data:
        yield bytes([byte])


def settings(**changes: object) -> ServerSettings:
    given: dict[str, object] = {
        "cluster": "test",
        "node": 1,
        "authorize": allow_all,
        "window_bytes": WINDOW,
        "frame_bytes_max": HANDSHAKE_BYTES_MAX,
    }
    return ServerSettings(**(given | changes))  # type: ignore[arg-type]


def written(connection: Connection) -> bytes:
    return b"".join(connection.outgoing())


class Pair:
    """A client and a server, not greeted yet."""

    def __init__(
        self,
        hello: Hello | None = None,
        server: ServerSettings | None = None,
        cut: Cut = whole,
        last: int = 0,
    ) -> None:
        self.client = ClientConnection(hello or Hello(1, 1, "test"), last=last)
        self.server = ServerConnection(server or settings())
        self.cut = cut

    def to_server(self) -> list[Event]:
        return self._move(self.client, self.server)

    def to_client(self) -> list[Event]:
        return self._move(self.server, self.client)

    def greet(self) -> "Pair":
        self.to_server()
        self.to_client()
        return self

    def _move(self, source: Connection, target: Connection) -> list[Event]:
        data = written(source)
        return [e for piece in self.cut(data) for e in target.receive(piece)]
