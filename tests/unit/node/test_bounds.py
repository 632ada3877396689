"""What others send, or do not send, costs a node no more than it allows.

One node in this process; each test is a way to take it, or its cluster, down.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from braidlog.client import AsyncClient
from braidlog.errors import (
    AlreadyExistsError,
    LogError,
    LogFullError,
    RemoteProtocolError,
    TooLargeError,
)
from braidlog.logstream.replica import Replica
from braidlog.node.config import NodeConfig
from braidlog.node.leader.registration import Registration
from braidlog.node.peers.identity import Identity
from braidlog.node.replication import reader
from braidlog.node.server import NodeServer
from braidlog.raft.errors import RaftInvariantError
from braidlog.serving import sessions
from braidlog.serving.descriptors import allow_files
from braidlog.serving.shares import ShareBounds
from braidlog.wire import commands
from braidlog.wire.client import ClientConnection
from braidlog.wire.connection import VERSION_MAX, VERSION_MIN
from braidlog.wire.events import Answered, Event, FailedRequest
from braidlog.wire.messages import (
    FEATURES,
    Execute,
    GetMetadata,
    Hello,
    Message,
    Read,
    Records,
)
from unit.node.loops import poll_of_loop
from unit.node.test_server import client, config, serving


class Raw:
    """A client that reads and writes as it likes."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader = reader
        self.writer = writer
        hello = Hello(VERSION_MIN, VERSION_MAX, "", 0, "", "test")
        self.connection = ClientConnection(hello, 17 << 20)

    def send(self) -> None:
        self.writer.writelines(memoryview(each) for each in self.connection.outgoing())

    async def events(self) -> list[Event]:
        self.send()
        data = await self.reader.read(1 << 20)
        assert data, "the node closed the connection"
        return self.connection.receive(data)

    async def ask(self, message: Message, payload: bytes) -> None:
        """Send a request and wait for what comes of it."""
        self.connection.request(message, [payload])
        await self.events()


@asynccontextmanager
async def connected(settings: NodeConfig) -> AsyncIterator[Raw]:
    host, _, port = settings.node.listen.rpartition(":")
    raw = Raw(*await asyncio.open_connection(host, int(port)))
    try:
        await raw.events()
        yield raw
    finally:
        raw.writer.close()
        await raw.writer.wait_closed()


async def test_arrays_without_end_are_no_command(tmp_path: Path) -> None:
    """Any token may send a command, and the node reads it before it knows which."""
    settings = config(tmp_path)
    nested = b"\x93\x13\xc4\x00" + b"\x91" * 100_000 + b"\xc0"
    async with serving(settings) as server, client(settings) as there:
        async with connected(settings) as raw:
            await raw.ask(Execute(), nested)
        assert not server.node.failed.done()
        assert await (await there.create_log("orders")).append(b"x") == 1


async def _fill(there: AsyncClient) -> tuple[Any, int]:
    log = await there.create_log("orders")
    for count in range(0, 10**6, 20):
        try:
            await log.append_many([b"x" * 10_000] * 20)
        except LogFullError:
            return log, count
    raise AssertionError("the log never became full")


async def test_a_full_log_is_trimmed_and_goes_on(tmp_path: Path) -> None:
    """A trim is decided by the repository, whose entries need room themselves."""
    settings = config(tmp_path)
    async with serving(settings) as server, client(settings) as there:
        log, count = await _fill(there)
        for position in range(1, 100):
            await log.set_cursor("reader", position)
        with pytest.raises(LogFullError):
            await log.append_many([b"x" * 10_000] * 20)
        assert await log.trim(count) == count
        async with asyncio.timeout(20):
            while True:
                try:
                    assert await log.append(b"y") == count + 1
                except LogFullError:
                    await asyncio.sleep(0.05)  # The files are about to be freed.
                else:
                    break
        assert not server.node.failed.done()
    async with serving(settings), client(settings) as there:
        assert await (await there.log("orders")).append(b"z") == count + 2


async def test_what_the_repository_cannot_write_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later writes would make it look durable, and the node would vouch for it."""
    settings = config(tmp_path)
    stop = asyncio.Event()
    serves_by = NodeServer(settings, poll=poll_of_loop())
    async with serves_by as server, client(settings) as there:
        serves = asyncio.create_task(server.serve(stop))
        log = await there.create_log("orders")
        member: Any = server.node.member

        def refuse(write: object) -> int:
            raise TooLargeError("state", size=2, limit=1)

        monkeypatch.setattr(member.writes._log, "write", refuse)
        asking = asyncio.create_task(log.set_cursor("reader", 1))
        with pytest.raises(RaftInvariantError, match="cannot be stored"):
            await serves
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def test_what_a_node_cannot_tell_itself_loses_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a command comes with what the leader tells its own replicas."""
    settings = config(tmp_path)
    async with serving(settings) as server, connected(settings) as raw:
        async with client(settings) as there:
            await (await there.create_log("first")).append(b"x")
        refused: list[object] = []

        def refuse(message: object) -> None:
            refused.append(message)
            raise RemoteProtocolError("a contradiction")

        monkeypatch.setattr(server.node.replicas, "configure", refuse)
        create = commands.CreateLog(b"l" * 16, "orders", 1, 1, 1)
        raw.connection.request(Execute(), [commands.encode(create)])
        async with asyncio.timeout(10):
            while not any(isinstance(e, Answered) for e in await raw.events()):
                continue
        assert refused
        assert not server.node.failed.done()


async def test_answers_that_nobody_reads_are_bounded(tmp_path: Path) -> None:
    """A request is small and its answer large, and one read of a socket has many."""
    small = "frame_bytes_max = 9437184\nwindow_bytes = 9437184\n"
    settings, reads = config(tmp_path, small), 40
    async with serving(settings) as server, client(settings) as there:
        log = await there.create_log("orders")
        for _ in range(10):
            await log.append_many([b"x" * 10_000] * 20)
        stream = (await log.describe()).streams[0].stream
        async with connected(settings) as raw:
            for _ in range(reads):
                raw.connection.request(Read(stream, 1, False, 4 << 20, 30_000), ())
            raw.send()
            answered, most = 0, 0
            while answered < reads:
                held = [each.unread_bytes for each in server.node.sessions._sessions]
                most = max(most, *held)
                for event in await raw.events():
                    if isinstance(event, Answered):
                        assert isinstance(event.message, Records)
                        answered += 1
        # Of 40 answers of 2 MB each.
        limits = settings.limits
        assert most <= limits.window_bytes + 2 * limits.fetch_bytes_max
        assert len(server.node.replicas.readers) == 0


async def test_a_read_whose_asker_is_gone_is_forgotten(tmp_path: Path) -> None:
    settings = config(tmp_path)
    async with serving(settings) as server, client(settings) as there:
        log = await there.create_log("orders")
        await log.append(b"x")
        stream = (await log.describe()).streams[0].stream
        async with connected(settings) as raw:
            raw.connection.request(Read(stream, 2, False, 1, 2**62), ())
            raw.send()
            await _until(lambda: len(server.node.replicas.readers) == 1)
        await _until(lambda: len(server.node.replicas.readers) == 0)


async def test_polls_of_one_connection_take_one_place(tmp_path: Path) -> None:
    """They were counted for all clients together, and outlived their connection."""
    settings = config(tmp_path)
    async with serving(settings) as server, client(settings) as there:
        log = await there.create_log("orders")
        async with connected(settings) as raw:
            for _ in range(4200):
                raw.connection.request(GetMetadata(1 << 40, 60_000), ())
            raw.send()
            answered = 0
            while answered < 4199:
                answered += sum(isinstance(e, Answered) for e in await raw.events())
            # Its own, and that of the client.
            await _until(lambda: len(server.node.requests.answers) == 2)
            assert await log.append(b"x") == 1
        await _until(lambda: len(server.node.requests.answers) == 1)


async def test_questions_without_end_stop_nobody_else(
    tmp_path: Path,
) -> None:
    """One connection asks for megabytes in one read of its socket and takes nothing."""
    settings, questions = config(tmp_path), 4000
    bounds = ShareBounds(unread_max=1 << 20)
    async with serving(settings, bounds) as server, client(settings) as there:
        log = await there.create_log("orders", streams=100)
        async with connected(settings) as raw:
            for _ in range(questions):
                raw.connection.request(GetMetadata(), ())
            raw.send()
            busy = list(server.node.sessions._sessions)[-1]
            await _until(lambda: len(busy.backlog) > 0)
            for count in range(1, 20):
                assert await log.append(b"x") == count
                assert busy.unread_bytes < 2 << 20
            await _until(lambda: busy.unread_bytes > 1 << 20)
            held = len(busy.backlog)
            assert held
            await asyncio.sleep(0.1)
            assert len(busy.backlog) == held  # Nothing is made that has no room.
            answered = 0
            while answered < questions:
                answered += sum(isinstance(e, Answered) for e in await raw.events())
                assert busy.unread_bytes < 2 << 20
            raw.connection.request(GetMetadata(), ())
            assert await raw.events()


async def test_what_is_in_work_for_one_connection_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(tmp_path)
    taken: list[Any] = []
    async with serving(settings) as server, client(settings) as there:
        log = await there.create_log("orders")
        async with connected(settings) as raw:
            take = server.node.requests.take
            busy = list(server.node.sessions._sessions)[-1]

            def keep(request: Any, *rest: Any) -> None:
                if request.session is busy:
                    taken.append((request, *rest))
                else:
                    take(request, *rest)

            with monkeypatch.context() as patch:
                patch.setattr(server.node.requests, "take", keep)
                for _ in range(2000):
                    raw.connection.request(GetMetadata(), ())
                raw.send()
                await _until(lambda: len(taken) == ShareBounds().work_max)
                await asyncio.sleep(0.05)
                assert len(taken) == ShareBounds().work_max
            assert await log.append(b"x") == 1
            for each in taken:
                take(*each)
            answered = 0
            while answered < 2000:
                answered += sum(isinstance(e, Answered) for e in await raw.events())


async def test_reads_of_one_connection_that_wait_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "READERS_OF_ONE_MAX", 100)
    settings = config(tmp_path)
    async with serving(settings) as server, client(settings) as there:
        log = await there.create_log("orders")
        await log.append(b"x")
        stream = (await log.describe()).streams[0].stream
        async with connected(settings) as raw:
            for _ in range(120):
                raw.connection.request(Read(stream, 2, False, 1, 30_000), ())
            refused = 0
            while refused < 20:
                events = await raw.events()
                refused += sum(isinstance(e, FailedRequest) for e in events)
            assert len(server.node.replicas.readers) == 100
            await log.append(b"y")
            await _until(lambda: len(server.node.replicas.readers) == 0)
            assert not any(each.readers for each in server.node.sessions._sessions)


@pytest.mark.parametrize("by_glsn", [False, True])
async def test_a_commit_does_not_wake_reads_of_what_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_glsn: bool
) -> None:
    """With a token to read alone, a client could else slow down every append."""
    begun: list[int] = []
    read = Replica.read

    def noted(replica: Replica, message: Read, *, expired: bool = False) -> Any:
        begun.append(message.begin)
        return read(replica, message, expired=expired)

    monkeypatch.setattr(Replica, "read", noted)
    settings = config(tmp_path)
    async with serving(settings) as server, client(settings) as there:
        log = await there.create_log("orders")
        await log.append(b"x")
        stream = (await log.describe()).streams[0].stream
        async with connected(settings) as raw:
            for begin in [1000] * 100 + [12]:
                raw.connection.request(Read(stream, begin, by_glsn, 1, 30_000), ())
            raw.send()
            await _until(lambda: len(server.node.replicas.readers) == 101)
            for _ in range(11):
                await log.append(b"y")
            await _until(lambda: len(server.node.replicas.readers) == 100)
    assert begun.count(1000) == 100
    assert begun.count(12) == 2


async def test_who_does_not_greet_loses_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "GREETING_S", 0.1)
    settings = config(tmp_path)
    async with serving(settings) as server, connected(settings) as greeted:
        host, _, port = settings.node.listen.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        greeted.connection.ping(1.0)
        assert await greeted.events()
        assert len(server.node.sessions) >= 1


class _Refused:
    """A repository that refuses a node once."""

    def __init__(self) -> None:
        self.calls: dict[bytes, LogError | None] = {}
        self.asked = 0

    def execute(self, call: bytes, command: bytes, answer: Any) -> None:
        """Answer as a repository does, which remembers what it was asked by call."""
        self.asked += 1
        error = AlreadyExistsError("another node") if self.asked == 1 else None
        known = self.calls.get(call, error) if call else error
        if call:
            self.calls[call] = known
        answer(known, memoryview(b""))


async def test_a_refused_node_is_registered_when_the_reason_is_gone() -> None:
    """Such as another node at its address, which was then removed."""
    node = _Refused()
    config: Any = SimpleNamespace(node=SimpleNamespace(id=1), advertise="host:1")
    registration = Registration(config, Identity(b"i" * 16, 1), node.execute, FEATURES)
    registration.start()
    await _until(lambda: node.asked > 2 or registration.done)
    registration.close()
    assert registration.done


def test_as_many_files_as_are_allowed() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard) - 1, hard))
    try:
        allow_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
