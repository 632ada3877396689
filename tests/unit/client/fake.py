"""A cluster of nodes in memory that answers what a client asks, and fails on demand.

All replicas of a stream are one list: what a primary takes is committed at once. What
is tested is the client, so the rules that matter to it are here in full: sequences,
epochs of producers, roles of nodes, and connections that break before or after a
request.
"""
# One file: the nodes of the fake cluster answer from one state.

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from braidlog.client import AsyncClient, ClientSettings
from braidlog.client.connection.link import Answer, Link, Taker
from braidlog.errors import (
    AlreadyExistsError,
    ConnectionLostError,
    FencedError,
    InvalidArgumentError,
    LogError,
    NotFoundError,
    NotPrimaryError,
    NotReadyError,
    SealedError,
    SequenceGapError,
    TooLargeError,
    TrimmedError,
)
from braidlog.metarepo.machine.logs import require_shape
from braidlog.metarepo.machine.placement import require_nodes
from braidlog.wire import commands, results
from braidlog.wire.messages import (
    FEATURES,
    Append,
    Appended,
    Execute,
    Executed,
    GetMetadata,
    LogInfo,
    Message,
    Metadata,
    NodeInfo,
    Read,
    Records,
    Run,
    Spread,
    StreamInfo,
    StreamStatus,
)
from unit.client.batches import FakeBatch, FakeCodec

NOTHING = memoryview(b"")


@dataclass
class Stored:
    llsn: int
    glsn: int
    count: int
    data: bytes


@dataclass
class Stream:
    """A stream: its batches, and what its producers sent."""

    number: int
    log: bytes
    replicas: tuple[int, ...]
    epoch: int = 1
    status: StreamStatus = StreamStatus.RUNNING
    batches: list[Stored] = field(default_factory=list)
    next: int = 1
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    placed: dict[tuple[int, int, int], Appended] = field(default_factory=dict)
    move: tuple[int, int] | None = None


@dataclass
class FakeLog:
    info: commands.CreateLog
    streams: list[Stream]
    high_watermark: int = 0
    trim: int = 1
    cursors: dict[str, results.CursorRow] = field(default_factory=dict)
    revision: int = 0
    spread: Spread | None = None


Fault = Callable[[int, Message], str]
"""Says what happens to a request to a node: '', 'before', 'after' or 'hang'."""


class FakeCluster:
    """Nodes, logs and streams in memory."""

    def __init__(self, nodes: int = 3) -> None:
        self.nodes = {n: f"n{n}:7400" for n in range(1, nodes + 1)}
        self.dead: set[int] = set()
        self.features: dict[int, int] = {}
        self.leaderless = False
        self.silent_ms = 0
        """For how long dead nodes have been silent."""
        self.slow_ms: dict[int, int] = {}
        """For how long nodes have been slow."""
        self.draining: set[int] = set()
        self.voters = set(self.nodes)
        self.index = 1
        self.logs: dict[bytes, FakeLog] = {}
        self.streams: dict[int, Stream] = {}
        self.calls: dict[bytes, tuple[int, bytes]] = {}
        self.links: list[FakeLink] = []
        self.fault: Fault = lambda node, message: ""
        self.received: list[tuple[int, Message]] = []
        self.record_bytes_max = 1 << 30
        self.ends_epochs = True
        """Whether a change of streams begins new epochs, as it must."""
        self.stale: set[int] = set()
        """Nodes that learn of nothing any more and serve what they knew: nothing."""
        self._changed = asyncio.Event()

    # -- what a test does --------------------------------------------------------

    def client(self, **options: Any) -> AsyncClient:
        options.setdefault("retry_first_s", 0.001)
        options.setdefault("retry_max_s", 0.01)
        options.setdefault("metadata_pause_s", 0.001)
        settings = ClientSettings(**options)
        seeds = ",".join(self.nodes.values())
        return AsyncClient(
            seeds, connector=self.connect, settings=settings, codec=FakeCodec()
        )

    async def connect(self, address: str) -> Link:
        node = next(n for n, there in self.nodes.items() if there == address)
        if node in self.dead:
            error: LogError = ConnectionLostError(f"{address} refused the connection")
            error.outcome = "not_stored"
            raise error from ConnectionRefusedError()
        link = FakeLink(self, node)
        self.links.append(link)
        return link

    def fail_over(self, stream: int) -> None:
        """Begin the next epoch with another primary."""
        found = self.streams[stream]
        found.replicas = (*found.replicas[1:], found.replicas[0])
        found.epoch += 1
        self.bump()

    def kill(self, node: int) -> None:
        """End a node; its streams stay without a primary until they fail over."""
        self.dead.add(node)
        for link in self.links:
            if link.node == node:
                link.lose()
        self.bump()

    def bump(self) -> None:
        self.index += 1
        self.wake()

    def go_to_loop(self) -> None:
        """Serve clients of another event loop from now on."""
        self._changed = asyncio.Event()

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def values(self, name: str) -> list[bytes]:
        """Return all values of a log in the order of GLSNs."""
        log = self.named(name)
        stored = sorted(
            (batch.glsn, batch.data) for s in log.streams for batch in s.batches
        )
        return [value for _, data in stored for value in FakeBatch(data).values]

    def named(self, name: str) -> FakeLog:
        for log in self.logs.values():
            if log.info.name == name:
                return log
        raise NotFoundError(f"log {name!r} does not exist")

    # -- answers -----------------------------------------------------------------

    async def answer(self, node: int, message: Message, payload: bytes) -> Answer:
        match message:
            case Append():
                return self._append(node, message, payload), memoryview(b"")
            case Read():
                self._check_replica(node, message.stream)
                if node in self.stale:
                    await asyncio.sleep(message.wait_ms / 1000)
                    return Records(message.stream, (), (), (), 0, 1, 1), NOTHING
                return await self._read(message)
            case GetMetadata():
                if self.leaderless and (message.by_leader or message.linearizable):
                    raise NotReadyError(f"node {node} knows no leader")
                if message.wait_ms and self.index <= message.known:
                    await self._wait(message.wait_ms)
                return self._metadata(), memoryview(b"")
            case Execute():
                return self._execute(message, payload)
            case _:
                raise InvalidArgumentError(f"not a request: {message}")

    def _check_replica(self, node: int, stream: int) -> None:
        there = self.streams.get(stream)
        if there is None or node not in there.replicas:
            raise NotFoundError(f"node {node} has no replica of stream {stream}")

    async def _wait(self, wait_ms: int) -> None:
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _append(self, node: int, message: Append, payload: bytes) -> Appended:
        self._check_replica(node, message.stream)
        stream = self.streams[message.stream]
        if stream.status is StreamStatus.SEALED:
            raise SealedError("sealed", epoch=stream.epoch)
        if message.epoch not in (0, stream.epoch):
            raise SealedError("another epoch", epoch=stream.epoch)
        if node != stream.replicas[0]:
            raise NotPrimaryError(
                "moved", primary=stream.replicas[0], epoch=stream.epoch
            )
        batch = FakeBatch(payload)
        if any(len(value or b"") > self.record_bytes_max for value in batch.values):
            raise TooLargeError("too large")
        producer, epoch = batch.producer
        known, expected = stream.producers.get(producer, (epoch, 1))
        if epoch < known:
            raise FencedError("fenced", given=epoch, current=known)
        if epoch > known:
            expected = 1
        if batch.sequence < expected:
            return stream.placed[producer, epoch, batch.sequence]
        if batch.sequence + batch.count >= 1 << 62:
            raise InvalidArgumentError("producer sequence out of range")
        if batch.sequence > expected:
            raise SequenceGapError("gap", expected=expected)
        stream.producers[producer] = (epoch, expected + batch.count)
        return self._place(stream, batch, payload)

    def _place(self, stream: Stream, batch: FakeBatch, payload: bytes) -> Appended:
        log = self.logs[stream.log]
        glsn = log.high_watermark + 1
        stored = Stored(stream.next, glsn, batch.count, payload)
        stream.batches.append(stored)
        stream.next += batch.count
        log.high_watermark += batch.count
        appended = Appended(stored.llsn, glsn, batch.count, glsn)
        stream.placed[*batch.producer, batch.sequence] = appended
        self.wake()
        return appended

    async def _read(self, message: Read) -> Answer:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + message.wait_ms / 1000
        while True:
            answer = self._records(message)
            # By GLSN, the log going on without this stream is news.
            news = message.by_glsn and message.begin <= answer[0].complete
            left = int(1000 * (deadline - loop.time()))
            if answer[0].sizes or news or left <= 0:
                return answer
            await self._wait(left)

    def _records(self, message: Read) -> tuple[Records, memoryview]:
        stream = self.streams.get(message.stream)
        if stream is None:
            raise NotFoundError(f"there is no stream {message.stream}")
        log = self.logs[stream.log]
        kept = [b for b in stream.batches if b.glsn + b.count > log.trim]
        first = kept[0].llsn if kept else stream.next
        if message.begin < (log.trim if message.by_glsn else first):
            raise TrimmedError("trimmed", first=log.trim if message.by_glsn else first)
        found: list[Stored] = []
        size = 0
        following = stream.next
        complete = log.high_watermark
        for batch in kept:
            begin = batch.glsn if message.by_glsn else batch.llsn
            if begin + batch.count <= message.begin:
                continue
            if found and size + len(batch.data) > message.bytes_max:
                following = batch.llsn
                complete = found[-1].glsn + found[-1].count - 1
                break
            found.append(batch)
            size += len(batch.data)
        records = Records(
            stream.number,
            tuple(Run(b.llsn, b.glsn, b.count) for b in found),
            tuple(b.llsn for b in found),
            tuple(len(b.data) for b in found),
            complete,
            first,
            following,
        )
        return records, memoryview(b"".join(b.data for b in found))

    def _metadata(self) -> Metadata:
        return Metadata(
            self.index,
            self._leader(),
            "fake",
            tuple(
                NodeInfo(
                    n,
                    address,
                    n not in self.dead,
                    voter=n in self.voters,
                    draining=n in self.draining,
                    silent_ms=self.silent_ms if n in self.dead else 0,
                    features=self.features.get(n, FEATURES),
                    slow_ms=self.slow_ms.get(n, 0),
                )
                for n, address in self.nodes.items()
            ),
            tuple(self._info(log) for log in self.logs.values()),
        )

    def _leader(self) -> int:
        alive = [] if self.leaderless else [n for n in self.nodes if n not in self.dead]
        return next(iter(alive), 0)

    def _info(self, log: FakeLog) -> LogInfo:
        return LogInfo(
            log.info.log,
            log.info.name,
            tuple(
                StreamInfo(
                    s.number, s.epoch, s.status, s.replicas, (), s.next, move=s.move
                )
                for s in log.streams
            ),
            log.high_watermark,
            log.high_watermark,
            log.trim,
            log.info.replication,
            log.info.min_replicas,
            log.info.options,
            log.info.created,
            log.revision,
            log.spread,
        )

    def _execute(self, message: Execute, payload: bytes) -> Answer:
        if message.call not in self.calls:
            command = commands.decode(payload)
            try:
                result = self._apply(command)
            except LogError as error:
                result = results.Refused(error.code, error.message)
            self.bump()
            self.calls[message.call] = self.index, results.encode_result(result)
        index, result_bytes = self.calls[message.call]
        return Executed(index), memoryview(result_bytes)

    def _apply(self, command: commands.Command) -> results.Result:
        match command:
            case commands.CreateLog():
                return self._create(command)
            case commands.DeleteLog(log):
                for stream in self.logs.pop(log).streams:
                    del self.streams[stream.number]
            case commands.Trim(log, glsn, now, ignore_pins):
                found = self.logs[log]
                pins = [
                    c.position
                    for c in found.cursors.values()
                    if c.pin and not ignore_pins
                    if not c.lease or now < c.touched + c.lease
                ]
                found.trim = max(found.trim, min([glsn, *pins]))
                return results.Trimmed(found.trim)
            case commands.SetStreams():
                return self._set_streams(command)
            case commands.AlterLog(log=log) if not self._is_expected(command):
                raise FencedError("another revision")
            case commands.AlterLog():
                self._alter(command)
            case commands.Seal(stream) | commands.Unseal(stream):
                sealed = isinstance(command, commands.Seal)
                there = self.streams[stream]
                if command.expected not in (None, there.epoch):
                    raise FencedError("another epoch")
                there.epoch += 1
                there.status = StreamStatus.SEALED if sealed else StreamStatus.RUNNING
                return results.Epoch(stream, there.epoch, there.next)
            case commands.DrainNode(node, draining):
                (self.draining.add if draining else self.draining.discard)(node)
            case commands.RemoveNode(node):
                del self.nodes[node]
            case commands.SetVoter(node, voter):
                (self.voters.add if voter else self.voters.discard)(node)
            case commands.MoveReplica(stream, source, target):
                moved = self.streams[stream]
                if target in self.dead:
                    moved.move = source, target
                    return results.Done()
                moved.replicas = tuple(
                    target if node == source else node for node in moved.replicas
                )
            case commands.DropLearner(stream):
                self.streams[stream].move = None
            case _:
                return self._apply_to_cursors(command)
        return results.Done()

    def _apply_to_cursors(self, command: commands.Command) -> results.Result:
        match command:
            case commands.SetCursor(log, name, position, pin, lease, now, change):
                known = self.logs[log].cursors.get(name)
                if change is commands.CursorChange.MOVE and known is None:
                    raise NotFoundError(f"there is no cursor {name!r}")
                if change is commands.CursorChange.MOVE and known is not None:
                    pin, lease = known.pin, known.lease
                if change is not commands.CursorChange.CREATE or known is None:
                    row = results.CursorRow(name, position, pin, now, lease)
                    self.logs[log].cursors[name] = row
            case commands.DeleteCursor(log, name):
                if self.logs[log].cursors.pop(name, None) is None:
                    raise NotFoundError(f"there is no cursor {name!r}")
            case commands.GetCursors(log):
                return results.Cursors(tuple(self.logs[log].cursors.values()))
            case _:
                raise InvalidArgumentError(f"the fake does not know {command}")
        return results.Done()

    def _alter(self, command: commands.AlterLog) -> None:
        found = self.logs[command.log]
        info = found.info
        if command.known not in (None, info.options):
            raise FencedError("the options were changed meanwhile")
        wanted = command.replication or info.replication
        fewest = command.min_replicas or info.min_replicas
        require_shape(wanted, fewest, b"")
        require_nodes(
            self.nodes,
            command.replication or 0,
            command.min_replicas or 0,
            allow_missing=command.allow_missing,
        )
        found.info = msgspec.structs.replace(
            info,
            name=command.name or info.name,
            options=info.options if command.options is None else command.options,
            replication=wanted,
            min_replicas=fewest,
        )

    def _is_expected(self, command: commands.AlterLog | commands.SetStreams) -> bool:
        log = self.logs[command.log]
        if command.expected not in (None, log.revision):
            return False
        log.revision = self.index + 1
        return True

    def _set_streams(self, command: commands.SetStreams) -> results.Result:
        if not self._is_expected(command):
            raise FencedError("another revision")
        log = self.logs[command.log]
        first = tuple(s.number for s in log.streams)
        spread = log.spread or Spread(0, first, first)
        if command.streams == len(spread.keyed):
            return results.Created(command.log, spread.keyed)
        kept = tuple(n for n in spread.producers if n not in spread.keyed)
        keyed = (spread.keyed + kept)[: command.streams]
        for _ in range(command.streams - len(keyed)):
            nodes = list(self.nodes)
            number = max(self.streams) + 1
            at = number % len(nodes)
            order = (nodes[at:] + nodes[:at])[: log.info.replication]
            made = self.streams[number] = Stream(number, command.log, tuple(order))
            log.streams.append(made)
            keyed += (number,)
        for number in spread.keyed:
            self.streams[number].epoch += self.ends_epochs
            if number not in {*keyed, *spread.producers}:
                self.streams[number].status = StreamStatus.SEALED
                spread = msgspec.structs.replace(
                    spread, removed=(*spread.removed, (number, log.high_watermark))
                )
        log.spread = msgspec.structs.replace(
            spread, generation=spread.generation + 1, keyed=keyed
        )
        return results.Created(command.log, keyed)

    def _create(self, command: commands.CreateLog) -> results.Result:
        if any(log.info.name == command.name for log in self.logs.values()):
            raise AlreadyExistsError(f"there is a log {command.name!r}")
        nodes = list(self.nodes)
        require_nodes(
            nodes,
            command.replication,
            command.min_replicas,
            allow_missing=command.allow_missing,
        )
        made = []
        for number in range(command.streams):
            at = number % len(nodes)
            order = nodes[at:] + nodes[:at]
            stream = Stream(
                len(self.streams) + 1, command.log, tuple(order[: command.replication])
            )
            self.streams[stream.number] = stream
            made.append(stream)
        self.logs[command.log] = FakeLog(command, made)
        return results.Created(command.log, tuple(s.number for s in made))


class FakeLink:
    """A connection to a node of the fake; requests are taken in their order."""

    def __init__(self, cluster: FakeCluster, node: int) -> None:
        self.node = node
        self._cluster = cluster
        self._open: set[asyncio.Future[Answer]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def request(self, message: Message, payload: bytes = b"") -> asyncio.Future[Answer]:
        if self._closed:
            raise ConnectionLostError("the connection is closed")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open.add(answer)
        answer.add_done_callback(self._open.discard)
        # Tasks start in the order in which they are made.
        task = asyncio.create_task(self._serve(message, payload, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return answer

    def send(self, message: Message, payload: bytes, taker: Taker) -> None:
        def tell(answer: asyncio.Future[Answer]) -> None:
            if answer.cancelled():
                taker.failed(ConnectionLostError("the connection was closed"))
            elif (error := answer.exception()) is None:
                taker.answered(*answer.result())
            else:
                assert isinstance(error, LogError)
                taker.failed(error)

        self.request(message, payload).add_done_callback(tell)

    def flush(self) -> None:
        """Everything is on its way already."""

    async def _serve(
        self, message: Message, payload: bytes, answer: asyncio.Future[Answer]
    ) -> None:
        cluster = self._cluster
        if self._closed:
            return
        cluster.received.append((self.node, message))
        fault = cluster.fault(self.node, message)
        if fault == "hang":
            return
        if fault == "before":
            self.lose()
            return
        try:
            found = await cluster.answer(self.node, message, payload)
        except LogError as error:
            if not answer.done():
                answer.set_exception(error)
            return
        if fault == "after":
            self.lose()
        elif not answer.done():
            answer.set_result(found)

    def lose(self) -> None:
        self._closed = True
        for answer in list(self._open):
            if not answer.done():
                answer.set_exception(ConnectionLostError("the connection broke"))

    async def close(self) -> None:
        self.lose()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
