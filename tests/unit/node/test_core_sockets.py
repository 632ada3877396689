"""Nodes whose core reads and writes their sockets, each in a thread of its own.

Every test here runs with nodes of the other kind too: what clients see is the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import braidlog
from braidlog import _native
from braidlog.client import Client
from braidlog.errors import LogError, NotReadyError
from braidlog.node.config import NodeConfig
from braidlog.node.server import NodeServer
from braidlog.serving.transport import Wire
from braidlog.wire.client import ClientConnection
from braidlog.wire.connection import VERSION_MAX, VERSION_MIN
from braidlog.wire.events import Answered, Closing, Event, FailedRequest
from braidlog.wire.messages import Append, Hello, Read
from unit.node.loops import LOOPS, CoreLoop
from unit.node.test_server import config

BOTH = pytest.mark.parametrize("kind", list(LOOPS))


class Running:
    """A node in a thread."""

    def __init__(self, settings: NodeConfig, kind: str) -> None:
        self.settings = settings
        self.loop = CoreLoop(500) if kind == "spins" else LOOPS[kind]()
        poll = self.loop.poll if isinstance(self.loop, CoreLoop) else None
        self.poll = poll
        self.server: NodeServer
        self.error: BaseException | None = None
        self._stop = asyncio.Event()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._up.wait(30), "the node did not start"

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self.error = error
        finally:
            self._up.set()

    async def _serve(self) -> None:
        async with NodeServer(self.settings, poll=self.poll) as server:
            self.server = server
            self._up.set()
            await server.serve(self._stop)

    def call(self, what: Callable[[], Any]) -> Any:
        """Call something in the loop of the node."""

        async def called() -> Any:
            return what()

        return asyncio.run_coroutine_threadsafe(called(), self.loop).result(30)

    def primaries(self) -> list[Any]:
        return list(self.server.node.replicas.primaries())

    def end(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive()


@contextmanager
def running(
    directory: Path, kind: str, count: int = 1, extra: str = ""
) -> Iterator[list[Running]]:
    made = []
    for node in range(1, count + 1):
        given = config(directory / str(node), extra)
        own = replace(given.node, id=node)
        # No test here is about nodes that are taken for dead, as on a busy machine.
        timing = replace(given.timing, tick_ms=50, failure_ms=20_000, slow_ms=0)
        made.append(replace(given, node=own, timing=timing))
    voters = {each.node.id: each.node.listen for each in made}
    nodes = [
        Running(replace(each, cluster=replace(each.cluster, voters=voters)), kind)
        for each in made
    ]
    with ExitStack() as stack:
        for each in nodes:
            stack.callback(each.end)
            each.start()
            assert each.error is None, each.error
        yield nodes
    assert [each.error for each in nodes] == [None] * count


def connect(nodes: Sequence[Running]) -> Client:
    return braidlog.connect(nodes[0].settings.advertise)


class Raw:
    """A connection that writes and reads as it likes."""

    def __init__(self, node: Running, receive_bytes: int = 0) -> None:
        host, _, port = node.settings.node.listen.rpartition(":")
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.connect((host, int(port)))
        self.socket.settimeout(30)
        hello = Hello(VERSION_MIN, VERSION_MAX, "", 0, "", "test")
        self.connection = ClientConnection(hello, 17 << 20)
        self.socket.sendall(self.bytes())
        self.events()

    def bytes(self) -> bytes:
        return b"".join(self.connection.outgoing())

    def events(self) -> list[Event]:
        data = self.socket.recv(1 << 20)
        return self.connection.receive(data) if data else [Closing("the end")]

    def answers(self, count: int) -> dict[int, Any]:
        found: dict[int, Any] = {}
        while len(found) < count:
            for event in self.events():
                assert not isinstance(event, Closing), event
                if isinstance(event, Answered):
                    assert event.request not in found
                    found[event.request] = event.message
                elif isinstance(event, FailedRequest):
                    assert event.request not in found
                    found[event.request] = event.error
        return found


def batch(values: Sequence[bytes]) -> bytes:
    return _native.encode_batch(list(values), timestamps=[1] * len(values))


def stream_of(client: Client, name: str) -> int:
    [log] = [each for each in client.metadata().logs if each.name == name]
    return int(log.streams[0].stream)


@BOTH
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("seed", range(2))
def test_what_was_acknowledged_is_there_however_its_bytes_were_cut(
    tmp_path: Path, kind: str, count: int, seed: int
) -> None:
    rng = Random(seed)
    with running(tmp_path, kind, count) as nodes, connect(nodes) as client:
        log = client.create_log("orders", replication=count)
        stream = stream_of(client, "orders")
        assert log.append(b"first") == 1
        [primary] = [each for each in nodes if each.call(each.primaries)]
        sent: dict[bytes, int] = {}
        placed: dict[int, bytes] = {}
        made = 0
        for _ in range(12):
            raw = Raw(primary)
            asked: dict[int, list[bytes]] = {}
            data = b""
            for _ in range(rng.randrange(1, 30)):
                kind_of = rng.random()
                if kind_of < 0.1:
                    raw.connection.ping(1.0)
                elif kind_of < 0.2:
                    raw.connection.request(Read(stream, 1, False, 1 << 16, 0), ())
                else:
                    size = rng.choice([1, 20, 20, 20, 9000, 90_000])
                    values = []
                    for _ in range(rng.choice([1, 1, 2])):
                        values.append(b"%d " % made + b"v" * size)
                        made += 1
                    number = raw.connection.request(Append(stream, 0), [batch(values)])
                    assert number is not None
                    asked[number] = values
                    sent |= dict.fromkeys(values, 0)
                if rng.random() < 0.4:
                    data += raw.bytes()
            data += raw.bytes()
            breaks = rng.random() < 0.3
            if breaks:
                data = data[: rng.randrange(len(data))]
            while data:
                cut = rng.choice([1, 7, 100, 5000, 70_000, len(data)])
                raw.socket.sendall(data[:cut])
                data = data[cut:]
                if rng.random() < 0.2:
                    time.sleep(0.001)
            if not breaks:
                left = set(asked)
                while left:
                    for event in raw.events():
                        assert not isinstance(event, Closing | FailedRequest), event
                        if isinstance(event, Answered) and event.request in left:
                            left.remove(event.request)
                            at: Any = event.message
                            for offset, value in enumerate(asked[event.request]):
                                placed[at.glsn + offset] = value
            raw.socket.close()
        found = [record.value for record in log.read(2)]
        for value in found:
            sent[value] += 1
        assert set(sent.values()) <= {0, 1}
        assert all(found[at - 2] == value for at, value in placed.items())
        assert len(placed) > 50
        for node in nodes:
            assert node.poll is None or node.poll.turns > 0
            assert node.poll is None or node.poll.adopted > 0


@BOTH
def test_a_client_that_reads_late_gets_every_answer(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket takes a part of what is written; its transport has the rest."""
    rests: list[int] = []
    write_rest = Wire.write_rest

    def counted(wire: Wire, parts: Any) -> None:
        rests.append(sum(map(len, parts)))
        write_rest(wire, parts)

    monkeypatch.setattr(Wire, "write_rest", counted)
    with running(tmp_path, kind) as [node], connect([node]) as client:
        log = client.create_log("orders", replication=1)
        stream = stream_of(client, "orders")

        def shrink() -> None:
            listener: Any = node.server._listener
            for each in listener._sockets:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

        node.call(shrink)
        raw = Raw(node, receive_bytes=4096)
        numbers: set[int] = set()
        answers: dict[int, Any] = {}
        for turn in range(40):
            for at in range(600):
                asked = Append(stream, 0), [batch([b"%d %d" % (turn, at)])]
                numbers.add(raw.connection.request(*asked) or 0)
            raw.socket.sendall(raw.bytes())
            # So much was asked at once that its answers do not fit what is in between.
            time.sleep(0.01)
            answers |= raw.answers(len(numbers) - len(answers))
        assert answers.keys() == numbers
        positions = {answer.glsn for answer in answers.values()}
        assert len(positions) == len(numbers)
        raw.socket.close()
        assert len(list(log.read(1))) == len(numbers)
    assert bool(rests) == (kind == "core")


@BOTH
def test_a_read_that_waits_is_answered_by_the_append(tmp_path: Path, kind: str) -> None:
    with running(tmp_path, kind, 3) as nodes, connect(nodes) as client:
        log = client.create_log("orders", replication=3)
        values: list[bytes] = []

        def follow() -> None:
            with connect(nodes) as other:
                mine = other.log("orders")
                while len(values) < 50:
                    assert mine.wait(len(values) + 1, timeout=30)
                    values.extend(each.value for each in mine.read(len(values) + 1))

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        for at in range(50):
            log.append(b"%d" % at)
        thread.join(30)
        assert values == [b"%d" % at for at in range(50)]


@BOTH
def test_timers_and_calls_have_their_turn_while_appends_never_end(
    tmp_path: Path, kind: str
) -> None:
    with running(tmp_path, kind) as [node], connect([node]) as client:
        log = client.create_log("orders", replication=1)
        stop = threading.Event()
        failed: list[BaseException] = []

        def append() -> None:
            try:
                with connect([node]) as other:
                    mine = other.log("orders")
                    while not stop.is_set():
                        mine.append(b"x")
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=append, daemon=True) for _ in range(4)]
        for each in threads:
            each.start()
        try:
            for _ in range(20):
                slept = asyncio.run_coroutine_threadsafe(asyncio.sleep(0.01), node.loop)
                slept.result(30)
                assert node.call(lambda: 5) == 5
                with connect([node]) as newcomer:
                    assert newcomer.log("orders").append(b"y") > 0
        finally:
            stop.set()
            for each in threads:
                each.join(30)
        assert not failed
        assert log.append(b"z") > 0


@BOTH
def test_a_node_that_stops_takes_no_more_appends(tmp_path: Path, kind: str) -> None:
    with running(tmp_path, kind) as [node], connect([node]) as client:
        client.create_log("orders", replication=1)
        stream = stream_of(client, "orders")
        raw = Raw(node)
        assert raw.connection.request(Append(stream, 0), [batch([b"x"])]) is not None
        raw.socket.sendall(raw.bytes())
        raw.answers(1)
        node.call(lambda: node.server.node.drain())
        raw.connection.request(Append(stream, 0), [batch([b"y"])])
        raw.socket.sendall(raw.bytes())
        [error] = raw.answers(1).values()
        assert isinstance(error, NotReadyError)
        assert "shutting down" in error.message
        raw.socket.close()


@BOTH
def test_a_broken_rule_ends_the_connection_and_says_why(
    tmp_path: Path, kind: str
) -> None:
    with running(tmp_path, kind) as [node], connect([node]) as client:
        log = client.create_log("orders", replication=1)
        stream = stream_of(client, "orders")
        raw = Raw(node)
        raw.connection.request(Append(stream, 0), [batch([b"x"])])
        data = raw.bytes()
        # The same number again, while the first is not answered: one read brings both.
        raw.socket.sendall(data + data)
        said: list[Event] = []
        with contextlib.suppress(ConnectionResetError, LogError):
            while not any(isinstance(each, Closing) for each in said):
                said += raw.events()
        assert any(isinstance(each, Closing) for each in said)
        raw.socket.close()
        assert log.append(b"y") > 0


@BOTH
def test_a_bug_in_a_handler_ends_one_connection(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, kind) as [node], connect([node]) as client:
        log = client.create_log("orders", replication=1)
        raw = Raw(node)
        told: list[dict[str, Any]] = []
        node.call(
            lambda: node.loop.set_exception_handler(lambda _, said: told.append(said))
        )

        def breaks(*_: object) -> None:
            raise ZeroDivisionError

        [session] = [
            each
            for each in node.call(lambda: list(node.server.node.sessions._sessions))
            if each.connection.unanswered == 0
            and each._transport.get_extra_info("peername") == raw.socket.getsockname()
        ]
        monkeypatch.setattr(session.connection, "_take_common", breaks)
        raw.connection.ping(1.0)
        raw.socket.sendall(raw.bytes())
        ended: list[Event] = []
        with contextlib.suppress(ConnectionResetError):
            ended = raw.events()
        assert all(isinstance(each, Closing) for each in ended)
        assert isinstance(told[0]["exception"], ZeroDivisionError)
        assert log.append(b"y") == 1
        raw.socket.close()


def test_a_node_that_looks_again_and_again_does_the_same(tmp_path: Path) -> None:
    with running(tmp_path, "spins", 3) as nodes, connect(nodes) as client:
        log = client.create_log("orders", replication=3)
        assert [log.append(b"x") for _ in range(50)] == list(range(1, 51))
        polls = [each.poll for each in nodes if each.poll is not None]
        assert all(each.turns and each.spun for each in polls)
        # Until the last append is long ago; a machine with much to do takes longer.
        before, after = [0], [1]
        while before != after:
            before = [each.spun for each in polls]
            time.sleep(0.5)
            after = [each.spun for each in polls]
