"""Real clients: they append, read, follow, trim, and keep what they were told.

*Theory of operation.* A payload names its record, so whatever comes back can be judged.
Each client is a process of its own with a `braidlog.client.AsyncClient` over the
simulated network; its tasks go on until the storm is over, then a little longer, when
everything has to succeed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from braidlog.client.client import AsyncClient
from braidlog.client.connection.sockets import socket_connector
from braidlog.client.log import AsyncClusterLog
from braidlog.client.settings import ClientSettings
from braidlog.errors import (
    CorruptionError,
    FencedError,
    LogError,
    NotFoundError,
    ProtocolError,
    SequenceExpiredError,
    SequenceGapError,
    TrimmedError,
)
from braidlog.types import Producer
from braidlog.wire.messages import LogInfo, LogKind
from sim.checkers import AppendChecker, IndexedChecker, Operation
from sim.checkers.appends import Seen
from sim.errors import ViolationError
from sim.world import Life, World

__all__ = ["Shared", "opened", "run_client", "run_visitor"]

T = TypeVar("T")

# Who does nothing wrong does not get these, whatever breaks.
_NEVER = (
    CorruptionError,
    FencedError,
    NotFoundError,
    ProtocolError,
    SequenceGapError,
)
VISITOR = "visitor"
"""Who comes as a newcomer with each record."""
_PAUSE_S = 0.18
_AFTER_CALM = 3
_PLENTY = 1 << 20
_CURSORS = ("cursor-a", "cursor-b")
_KEYS = (b"red", b"green", b"blue", b"black")


@dataclass(slots=True)
class Shared:
    """What all clients of a run have in common."""

    world: World
    seeds: Sequence[str]
    log: str
    outstanding_bytes: int = 64 << 20
    checker: AppendChecker = field(default_factory=AppendChecker)
    metadata: IndexedChecker = field(default_factory=IndexedChecker)
    # Of each cursor: reads and writes of its position.
    cursors: dict[str, list[Operation]] = field(default_factory=dict)
    keys: dict[bytes, bytes] = field(default_factory=dict)
    # How often the streams may have been changed, and keys moved with them.
    changes: int = 0
    # Clients that are not done with their appends.
    appending: int = 0
    # Where the log ends once everything was appended.
    end: asyncio.Future[int] | None = None
    errors: dict[str, int] = field(default_factory=dict)
    # When each client last had a record acknowledged.
    acked_at: dict[str, float] = field(default_factory=dict)

    @property
    def crowded(self) -> bool:
        """Whether appends of a client wait for one another."""
        return self.outstanding_bytes < _PLENTY

    def check_keys(self, log: Iterable[Seen]) -> None:
        """Compare the log with the keys of its records.

        Raises:
            ViolationError: a key is in two streams between changes of these, or what a
                client appended with a key is not in that order.
        """
        streams: dict[bytes, list[int]] = {}
        last: dict[tuple[bytes, bytes], int] = {}
        for seen in log:
            key = self.keys.get(seen.payload)
            if key is None:
                continue
            moves = streams.setdefault(key, [seen.stream])
            if moves[-1] != seen.stream:
                moves.append(seen.stream)
            if len(moves) > self.changes + 1:
                raise ViolationError(f"key {key!r} is in streams {moves}")
            client, _, number = seen.payload.rstrip(b".").rpartition(b"-")
            # Where appends wait for room, later calls go on before what an earlier call
            # of many records has left.
            # A visitor is another client with each record, and one whose answer did not
            # come in time may be stored behind those of the next ones.
            ordered = not self.crowded and client != VISITOR.encode()
            if last.get((client, key), 0) > int(number) and ordered:
                raise ViolationError(
                    f"{seen.payload.decode()} with key {key!r} is behind number "
                    f"{last[client, key]} of its client"
                )
            last[client, key] = int(number)

    def failed(self, who: str, error: LogError) -> None:
        """Count an error that the caller has to live with.

        Raises:
            ViolationError: nobody should ever get such an error.
        """
        name = type(error).__name__
        if isinstance(error, _NEVER):
            raise ViolationError(f"{who} gets {name}: {error.message}") from error
        self.errors[name] = self.errors.get(name, 0) + 1
        self.world.note(who, f"{name}: {error.message}")


@asynccontextmanager
async def opened(life: Life, shared: Shared) -> AsyncIterator[AsyncClient]:
    """Return a client that has found the cluster, however long that takes."""
    random = life.random
    settings = ClientSettings(
        timeout_s=6.0,
        attempt_timeout_s=1.5,
        connect_timeout_s=1.0,
        poll_s=2.0,
        linger_s=random.choice([0.0, 0.0, 0.005]),
        batch_records_max=random.choice([2, 8, 1000]),
        prefetch_bytes=random.choice([64, 2048, 1 << 20]),
        outstanding_bytes_max=shared.outstanding_bytes,
        record_bytes_max=min(15 << 20, shared.outstanding_bytes),
        entropy=random.randbytes,
        clock=lambda: int(life.wall_s() * 1e6),
    )
    while True:
        client = AsyncClient(
            random.sample(list(shared.seeds), len(shared.seeds)),
            connector=socket_connector(),
            settings=settings,
        )
        try:
            await client.__aenter__()
            break
        except LogError as error:
            shared.failed(life.name, error)
            await asyncio.sleep(0.2)
    try:
        yield client
    finally:
        await client.close()


async def run_client(life: Life, shared: Shared) -> None:
    """Do everything that a client does, until the log is at rest."""
    async with opened(life, shared) as client:
        worker = _Worker(life, shared, client)
        worker.log = await worker.insist(lambda: client.log(shared.log))
        async with asyncio.TaskGroup() as following:
            following.create_task(worker.follow())
            async with asyncio.TaskGroup() as group:
                group.create_task(worker.repeat("one", worker.append_one))
                group.create_task(worker.repeat("many", worker.append_many))
                line = worker.append_crowd if shared.crowded else worker.append_line
                group.create_task(worker.repeat("line", line))
                if shared.crowded:
                    group.create_task(worker.repeat("hop", worker.hop))
                group.create_task(worker.repeat("look", worker.look))
                group.create_task(worker.produce())
            shared.appending -= 1
        worker.check_left()


async def run_visitor(life: Life, shared: Shared) -> None:
    """Come as a newcomer, append a record and go, until the storm is over."""
    visits = 0
    while not shared.world.calm.is_set():
        async with opened(life, shared) as client:
            worker = _Worker(life, shared, client, visits)
            worker.log = await worker.insist(lambda: client.log(shared.log))
            visits += 1
            with contextlib.suppress(LogError):
                await worker.append_one()


class _Worker:
    """The tasks of one client."""

    log: AsyncClusterLog

    def __init__(
        self, life: Life, shared: Shared, client: AsyncClient, count: int = 0
    ) -> None:
        self._life = life
        self._shared = shared
        self._client = client
        self._random = life.random
        # Of payloads that this client has made before.
        self._count = count
        self._hops = 0

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call until it succeeds, or fails for good."""
        while True:
            try:
                return await call()
            except LogError as error:
                # Also one that says that the record is stored, wherever it is.
                if not error.retryable and error.outcome != "unknown":
                    raise
                self._shared.failed(self._life.name, error)
                await asyncio.sleep(0.2)

    async def repeat(self, what: str, call: Callable[[], Awaitable[None]]) -> None:
        """Call again and again until the storm is over, then a few times more."""
        calm, left = self._shared.world.calm, _AFTER_CALM
        while left:
            left -= calm.is_set()
            await asyncio.sleep(self._random.expovariate(1 / _PAUSE_S))
            try:
                await call()
            except LogError as error:
                self._shared.failed(f"{self._life.name} {what}", error)

    # Appends.

    def _payload(self, more: int = 0) -> bytes:
        self._count += 1
        payload = f"{self._life.name}-{self._count}{'.' * more}".encode()
        self._shared.checker.invoked(payload)
        return payload

    def _key(self) -> bytes | None:
        return self._random.choice([None, None, *_KEYS])

    def _acked(self, payload: bytes, glsn: int) -> None:
        self._shared.world.note(self._life.name, f"{payload.decode()} is at {glsn}")
        self._shared.checker.acked(payload, glsn)
        self._shared.acked_at[self._life.name] = self._shared.world.now

    async def _settle(self, payload: bytes, call: Awaitable[int]) -> int:
        try:
            glsn = await call
        except LogError as error:
            # An expired sequence was stored, and trimmed before it was answered.
            expired = isinstance(error, SequenceExpiredError)
            if error.outcome == "not_stored" and not expired:
                self._shared.world.note(self._life.name, f"{payload.decode()} failed")
                self._shared.checker.failed(payload)
            raise
        self._acked(payload, glsn)
        return glsn

    def _keyed(self, payload: bytes, key: bytes | None) -> bytes | None:
        if key is not None:
            self._shared.keys[payload] = key
        return key

    async def append_one(self) -> None:
        """Append one record."""
        payload = self._payload()
        timeout = self._random.choice([None, None, 0.5])
        key = self._keyed(payload, self._key())
        call = self.log.append(payload, key=key, timeout=timeout)
        await self._settle(payload, call)

    async def append_crowd(self) -> None:
        """Append records of one key from many tasks, which wait for room in line.

        Each goes on at once when a record of its own is stored, in the same turn of the
        loop in which others get the room of that one.
        """
        key = self._random.choice(_KEYS)
        found: list[int | BaseException] = []

        async def append_some() -> None:
            for _ in range(self._random.randint(1, 5)):
                payload = self._payload(self._random.choice([0, 20, 300]))
                call = self.log.append(payload, key=self._keyed(payload, key))
                at = len(found)
                found.append(asyncio.CancelledError())
                try:
                    found[at] = await self._settle(payload, call)
                except LogError as error:
                    found[at] = error

        async with asyncio.TaskGroup() as group:
            for _ in range(self._random.randint(4, 12)):
                group.create_task(append_some())
        self._check_line(key, found)

    def _check_line(self, key: bytes, found: Sequence[int | BaseException]) -> None:
        glsns = [each for each in found if isinstance(each, int)]
        if glsns != sorted(glsns):
            raise ViolationError(f"what was appended with {key!r} is at {glsns}")
        for each in found:
            if isinstance(each, BaseException):
                raise each

    async def append_line(self) -> None:
        """Append records of one key without waiting between them; they keep order."""
        key = self._random.choice(_KEYS)
        payloads = [self._payload() for _ in range(self._random.randint(2, 5))]
        calls = []
        for each in payloads:
            call = self.log.submit(each, key=self._keyed(each, key))
            calls.append(asyncio.ensure_future(self._settle(each, call)))
        self._check_line(key, await asyncio.gather(*calls, return_exceptions=True))

    async def append_many(self) -> None:
        """Append several records at once."""
        payloads = [self._payload() for _ in range(self._random.randint(2, 10))]
        keys = [self._key() for _ in payloads]
        given = keys if self._random.random() < 0.5 else None
        for payload, key in zip(payloads, given or (), strict=bool(given)):
            self._keyed(payload, key)
        timeout = self._random.choice([0.1, 0.3]) if self._shared.crowded else None
        try:
            glsns = await self.log.append_many(payloads, keys=given, timeout=timeout)
        except LogError as error:
            if error.outcome == "not_stored":
                for payload in payloads:
                    self._shared.checker.failed(payload)
            raise
        for payload, glsn in zip(payloads, glsns, strict=True):
            self._acked(payload, glsn)

    async def produce(self) -> None:
        """Append as a producer whose identity outlives its client."""
        producer = Producer(self._random.getrandbits(62) + 1)
        async with opened(self._life, self._shared) as client:
            log = await self.insist(lambda: client.log(self._shared.log))
            sequence = 0

            async def append() -> None:
                nonlocal sequence
                payload = self._payload()
                sequence += 1

                async def attempt() -> int:
                    return await log.append(
                        payload, producer=producer, sequence=sequence, timeout=2.0
                    )

                self._acked(payload, await self.insist(attempt))

            await self.repeat("produce", append)
            expected = await self.insist(lambda: log.next_sequence(producer))
            if expected != sequence + 1:
                told = f"{expected} of {producer} is next, {sequence} was acknowledged"
                raise ViolationError(told)

    # Readers.

    async def follow(self) -> None:
        """Follow the log from its beginning until everybody is done."""
        name, checker = self._life.name, self._shared.checker
        begin = 1
        checker.subscribed(name, begin)
        while True:
            begin = await self._follow_from(begin)
            end = self._shared.end
            if end is not None and end.done() and begin >= end.result():
                return

    async def _follow_from(self, begin: int) -> int:
        name, checker = self._life.name, self._shared.checker
        timeout = self._random.uniform(0.5, 2.0)
        subscription: Any = self.log.subscribe(begin, timeout=timeout)
        try:
            async with contextlib.aclosing(subscription) as records:
                async for record in records:
                    checker.delivered(name, Seen(record.position, record.value))
                    begin = record.position + 1
        except TrimmedError as error:
            checker.skipped(name, error.first)
            begin = max(begin, error.first)
        except LogError as error:
            self._shared.failed(f"{name} follow", error)
            await asyncio.sleep(0.1)
        return begin

    async def hop(self) -> None:
        """Follow from anywhere, also from beyond the end, and stop in the middle."""
        self._hops += 1
        name, checker = f"{self._life.name} hop {self._hops}", self._shared.checker
        end = max(1, self.log.end)
        begin = self._random.randint(max(1, end - 40), end + 3)
        left = self._random.randint(1, 30)
        checker.subscribed(name, begin)
        following: Any = self.log.subscribe(begin, timeout=self._random.uniform(0, 0.5))
        try:
            async with (
                asyncio.timeout(self._random.uniform(0.01, 1.0)),
                contextlib.aclosing(following) as records,
            ):
                async for record in records:
                    checker.delivered(name, Seen(record.position, record.value))
                    left -= 1
                    if not left:
                        return
        except TrimmedError as error:
            checker.refused(name, error.first - 1)
        except TimeoutError as error:
            if isinstance(error, LogError):
                raise

    def check_left(self) -> None:
        """Look for readers that ended, and that the client still tells of news.

        Raises:
            ViolationError: there is one.
        """
        listeners = len(self._client._cluster._listeners)
        if listeners > len(self._client._logs):
            raise ViolationError(f"{listeners} listeners are left in {self._life.name}")

    async def look(self) -> None:
        """Read something: records, metadata, a cursor."""
        look = self._random.choice(
            [self._read, self._read, self._read_metadata, self._cursor]
        )
        await look()

    async def _read(self) -> None:
        name, checker = f"{self._life.name} read", self._shared.checker
        trimmed = checker.trim_done
        end = max(1, self.log.end)
        begin = self._random.randint(max(1, end - 60), end)
        try:
            async for record in self.log.read(begin, begin + 40):
                checker.read(name, Seen(record.position, record.value), trimmed)
        except TrimmedError as error:
            checker.refused(name, error.first - 1)

    async def _read_metadata(self) -> None:
        floor = self._shared.metadata.floor()
        routes = await self._client._cluster.linearize()
        metadata = routes.metadata
        state = repr([_decided(log) for log in metadata.logs])
        self._shared.metadata.ended(self._life.name, floor, metadata.index, state)

    async def _cursor(self) -> None:
        cursor = self._random.choice(_CURSORS)
        history = self._shared.cursors.setdefault(cursor, [])
        name, begin = self._life.name, self._shared.world.now
        if self._random.random() < 0.5:
            position = self._random.randint(1, max(1, self.log.end))
            at = len(history)
            history.append(Operation(name, True, position, begin))
            try:
                await self.log.set_cursor(cursor, position)
            except LogError as error:
                if error.outcome == "not_stored":
                    history[at] = Operation(name, False, None, begin)
                raise
            now = self._shared.world.now
            history[at] = Operation(name, True, position, begin, now)
        else:
            rows = {each.name: each.position for each in await self.log.cursors()}
            now = self._shared.world.now
            found = rows.get(cursor)
            history.append(Operation(name, False, found, begin, now))


def _decided(log: LogInfo) -> LogInfo:
    """Leave out what is no state: what the leader alone says of replicas.

    Where a shard ends it says itself, and a client may know better than the metadata.
    """
    if log.kind is LogKind.SHARD:
        ended = msgspec.structs.replace(log.streams[0], committed=0)
        return msgspec.structs.replace(log, streams=(ended,), high_watermark=0)
    streams = tuple(
        msgspec.structs.replace(each, in_sync=None, damaged=(), lacking_ms=0)
        for each in log.streams
    )
    return msgspec.structs.replace(log, streams=streams)
