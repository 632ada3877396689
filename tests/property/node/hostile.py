"""Hostile clients of every role against a running cluster, and one that does its work.

`python tests/property/node/hostile.py --seconds 300 --seed 7` runs longer, and prints
how often each kind of request was sent, and which answers came.

Frames and arrays are whole and of their types, so that what is behind the decoders is
reached; the values are edges, those of others, and what a client sends at other times.
Some bytes are turned over. Connections send many at once, do not read, break off within
a frame, and come back. What a role may change on purpose, it does to logs of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, get_args

import msgspec

sys.path.insert(0, str(Path(__file__).parents[2]))

import braidlog
from braidlog.client.batches import Columns, NativeCodec
from braidlog.client.client import AsyncClient
from braidlog.client.settings import ClientSettings
from braidlog.errors import LogError
from braidlog.node.config import NodeConfig
from braidlog.node.server import NodeServer
from braidlog.types import Producer
from braidlog.wire import commands
from braidlog.wire import messages as m
from braidlog.wire.client import ClientConnection
from braidlog.wire.codec import encode
from braidlog.wire.connection import ONE_WAY, VERSION_MAX, VERSION_MIN
from braidlog.wire.events import Answered, FailedRequest
from braidlog.wire.messages import Hello, Message
from braidlog.wire.roles import Role
from braidlog.wire.tokens import make_token, token_entry
from unit.metarepo.test_any_command import any_struct
from unit.node.loops import poll_of_loop
from unit.node.test_server import config
from unit.wire.frames import encode_frame

NODES = 3
_EDGES = (0, 1, 2, 100, (1 << 31), (1 << 62), (1 << 63) - 1)
# An operator may do these to the cluster; they would take the other client's log away.
_MEANT = (
    commands.DrainNode,
    commands.RemoveNode,
    commands.SetVoter,
    commands.ReadmitNode,
    commands.RegisterNode,
)
ROLES = tuple(role for role in Role if role is not Role.NONE)
_REQUESTS: tuple[type[Message], ...] = (
    m.Append,
    m.Read,
    m.GetMetadata,
    m.Execute,
    m.Execute,
    m.Call,
    m.GetAppStatus,
    m.Promote,
    m.Resize,
    m.FetchSnapshot,
    m.TakeSnapshot,
    m.AppendTo,
    m.Acquire,
    m.Release,
    m.GetShardEnd,
    m.GetTimestamps,
)


_ONE_WAY = sorted(ONE_WAY, key=lambda kind: kind.KIND)


class Hostile:
    """One client with a valid token, and what it has found out."""

    def __init__(
        self, random: Random, role: Role, address: str, token: str, victim: bytes
    ) -> None:
        self.random = random
        self.role = role
        self.address = address
        self.token = token
        self.victim = victim
        self.sent: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self._codec = NativeCodec()

    async def run(self, until: float) -> None:
        """Connect, do harm and go, again and again."""
        while time.monotonic() < until:
            try:
                await self._live(until)
            except (OSError, LogError, EOFError):
                self.answered["closed"] += 1
                await asyncio.sleep(0.01)

    async def _live(self, until: float) -> None:
        host, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        # A peer is a node that nobody knows.
        node = self.random.randrange(110, 120) if self.role is Role.PEER else 0
        hello = Hello(
            VERSION_MIN,
            VERSION_MAX,
            "",
            node,
            self.token,
            "hostile",
            bytes(node and 16),
        )
        rules = ClientConnection(hello)
        try:
            writer.writelines(memoryview(each) for each in rules.outgoing())
            rules.receive(await self._read(reader))
            for _ in range(self.random.randrange(1, 8)):
                if time.monotonic() >= until:
                    return
                await self._burst(rules, writer)
                if self.random.random() < 0.7:
                    await self._answers(rules, reader)
            if self.random.random() < 0.3:
                frame = self._frame(99_999)
                writer.write(frame[: self.random.randrange(len(frame))])
        finally:
            if self.random.random() < 0.5:
                writer.transport.abort()
            else:
                writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        data = await reader.read(1 << 18)
        if not data:
            raise EOFError
        return data

    async def _burst(self, rules: ClientConnection, writer: Any) -> None:
        count = self.random.choice((1, 1, 3, 20, 200))
        same = self._request() if self.random.random() < 0.3 else None
        for _ in range(count):
            message, payload = same or self._request()
            self.sent[type(message).__name__] += 1
            if self.role is Role.PEER and self.random.random() < 0.7:
                self._say(rules)
            elif self.random.random() < 0.02:
                writer.write(self._frame(self.random.randrange(1, 50)))
            else:
                rules.request(message, [payload] if payload else [])
        writer.writelines(memoryview(each) for each in rules.outgoing())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await writer.drain()

    async def _answers(self, rules: ClientConnection, reader: Any) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.random.choice((0.01, 0.05, 0.2))):
                while rules.unanswered:
                    for event in rules.receive(await self._read(reader)):
                        self._note(event)

    def _note(self, event: object) -> None:
        if isinstance(event, FailedRequest):
            self.answered[type(event.error).__name__] += 1
        elif isinstance(event, Answered):
            self.answered[type(event.message).__name__] += 1

    # --- what is sent

    def _frame(self, number: int) -> bytes:
        """Return a frame that may be no answer to the rules, or have bytes wrong."""
        message, payload = self._request()
        head = bytearray(encode(message))
        if self.random.random() < 0.5:
            head[self.random.randrange(len(head))] = self.random.randrange(256)
        return encode_frame(message.KIND, number, bytes(head), [payload])

    def _number(self) -> int:
        if self.random.random() < 0.5:
            return self.random.randrange(6)
        return self.random.choice(_EDGES)

    def _request(self) -> tuple[Message, bytes]:
        random = self.random
        kind = random.choice(_REQUESTS)
        if kind is m.Append:
            return m.Append(self._stream(), self._number(), self._odds()), self._batch()
        if kind is m.AppendTo:
            stream, writer, at = self._stream(), self._number(), self._number()
            return m.AppendTo(stream, writer, at, self._odds()), self._batch()
        if kind is m.Acquire:
            owner = random.choice(("", "h", "h" * 300))
            known = random.choice((None, self._number()))
            asked = self._stream(), owner, self._number(), known, self._odds()
            return m.Acquire(*asked), b""
        if kind is m.GetTimestamps:
            return m.GetTimestamps(self._stream(), self._number(), self._odds()), b""
        if kind in (m.Release, m.GetShardEnd):
            return kind(self._stream(), self._number()), b""
        if kind is m.Read:
            at, size, wait = self._number(), self._number(), self._number()
            return m.Read(random.randrange(6), at, self._odds(), size, wait), b""
        if kind is m.GetMetadata:
            known, wait = self._number(), self._number()
            return m.GetMetadata(known, wait, self._odds(), self._odds()), b""
        if kind is m.Execute:
            call = random.choice((b"", b"c" * 16, random.randbytes(16)))
            return m.Execute(call), self._command()
        if kind is m.Call:
            return m.Call(random.randbytes(16), "deposit", 0, 0, 0), b"\x82\x80\xa0"
        given = {"hashes": self._odds()} if kind is m.GetAppStatus else None
        if given is not None:
            return m.GetAppStatus(**given), b""
        if kind is m.FetchSnapshot:
            return m.FetchSnapshot(*(self._number() for _ in range(4))), b""
        if kind is m.TakeSnapshot:
            return m.TakeSnapshot(self._number()), b""
        if kind is m.Resize:
            return m.Resize(self._number()), b""
        return m.Promote(), b""

    def _say(self, rules: ClientConnection) -> None:
        """Send a message of a peer that no node would send: nothing answers it."""
        message, payload = self._said()
        try:
            rules.send(message, [payload] if payload else [])
        except (msgspec.MsgspecError, OverflowError, LogError):
            return
        self.sent[type(message).__name__] += 1

    def _said(self) -> tuple[Message, bytes]:
        """Return a message that is whole, and true of nothing.

        A peer is believed when it leads: what it decides about streams that there are
        would be done. So decisions name others, and epochs that were never begun.
        """
        random = self.random
        kind = random.choice(_ONE_WAY)
        stranger = random.choice((0, *range(110, 120), 1 << 62))
        never = random.choice((0, 1 << 31, 1 << 62))
        payload = random.choice((b"", random.randbytes(60), self._batch()))
        made: Any = any_struct(random, kind)
        changes: dict[str, Any] = {}
        if kind is m.Consensus:
            changes["group"] = random.choice((0, 1, 1, 1, 1 << 62))
            payload = random.choice((b"", bytes([random.randrange(14)])))
            payload += random.randbytes(random.choice((0, 1, 7, 16, 40)))
        elif kind in (m.Replicate, m.Entries):
            sizes = random.choice(
                ((), (len(payload),), (len(payload), 1), (0, 0), (1 << 62,) * 2)
            )
            changes = {"epoch": never, "sizes": sizes, "stream": random.randrange(7)}
        elif kind is m.Fetch:
            changes = {
                "epoch": self._number(),
                "llsn_begin": self._number(),
                "bytes_max": self._number(),
                "stream": random.randrange(7),
            }
        elif kind is m.Report:
            changes["node"] = stranger
        elif kind is m.Recorded:
            # A greater epoch says that the cluster was rescued without this node.
            changes = {"node": stranger, "epoch": random.randrange(2)}
        elif kind is m.Faults:
            changes["epoch"] = 0
        elif kind is m.Commit:
            cuts = tuple(msgspec.structs.replace(c, log=b"n" * 16) for c in made.cuts)
            changes["cuts"] = cuts
        elif kind is m.Configure:
            changes = {"index": 0, "dropped": (1 << 40,)}
        return msgspec.structs.replace(made, **changes), payload

    def _odds(self) -> bool:
        return self.random.random() < 0.5

    def _stream(self) -> int:
        """Return a stream that is not the other client's."""
        return self.random.choice((0, 4, 5, 6, 7, 7, (1 << 63) - 1))

    def _batch(self) -> bytes:
        random = self.random
        count = random.choice((1, 1, 3, 100))
        columns = Columns([b"x" * random.randrange(50)] * count, None, 1, None)
        try:
            producer, sequence = Producer(random.getrandbits(40) + 1), 0
            if self._odds():
                producer = Producer(self._number() or 1, self._number())
                sequence = self._number()
            data = self._codec.encode([columns], producer, sequence, "none")
            batch = bytearray(data)
        except (LogError, OverflowError, ValueError):
            return random.randbytes(60)
        if random.random() < 0.3:
            batch[random.randrange(len(batch))] ^= 1 << random.randrange(8)
        return bytes(batch)

    def _command(self) -> bytes:
        random = self.random
        if random.random() < 0.05:
            return random.randbytes(random.randrange(1, 40))
        kind = random.choice(get_args(commands.Command))
        made = any_struct(random, kind)
        if isinstance(made, _MEANT):
            made = msgspec.structs.replace(made, node=abs(made.node) % 99 + 10)
        if isinstance(made, commands.RegisterNode) and self._odds():
            address = f"127.0.0.1:{random.randrange(1, 9)}"  # Nobody listens there.
            made = msgspec.structs.replace(made, address=address)
        elif isinstance(made, commands.RegisterNode):
            made = msgspec.structs.replace(made, address="no address")
        for field in ("stream", "log", "glsn"):
            if getattr(made, field, None) in (1, 2, 3, self.victim):
                other = b"n" * 16 if field == "log" else 4
                made = msgspec.structs.replace(made, **{field: other})
        try:
            data = bytearray(commands.encode(made))
        except (msgspec.MsgspecError, OverflowError):
            return b"\x91\x13"
        if random.random() < 0.1:
            data[random.randrange(len(data))] = random.randrange(256)
            # What it is now may be meant for the whole cluster.
            with contextlib.suppress(LogError):
                if isinstance(commands.decode(bytes(data)), _MEANT):
                    return b"\x91\x13"
        return bytes(data)


class Bugs(logging.Handler):
    """Everything that a node logged with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.CRITICAL:
            self.found.append(logging.Formatter().format(record))


@asynccontextmanager
async def cluster(
    directory: Path, tokens: dict[Role, str]
) -> AsyncIterator[list[NodeServer]]:
    entries = []
    for number, role in enumerate(ROLES):
        tokens[role], entry = make_token(role.word, role, bytes([number]) * 32)
        entries.append(token_entry(entry))
    (directory / "tokens.toml").write_text("".join(entries))
    (directory / "peer.token").write_text(tokens[Role.PEER])
    made: list[NodeConfig] = []
    for node in range(1, NODES + 1):
        given = config(directory / f"n{node}")
        security = replace(
            given.security,
            tokens=str(directory / "tokens.toml"),
            peer_token=str(directory / "peer.token"),
        )
        timing = replace(given.timing, tick_ms=50, retention_ms=50)
        own = replace(given.node, id=node)
        made.append(replace(given, node=own, security=security, timing=timing))
    voters = {each.node.id: each.node.listen for each in made}
    async with AsyncExitStack() as stack:
        servers: list[NodeServer] = []
        for each in made:
            given = replace(each, cluster=replace(each.cluster, voters=voters))
            poll = None if servers else poll_of_loop()
            server = NodeServer(given, poll=poll)
            servers.append(await stack.enter_async_context(server))
        yield servers
    # Nobody reads any more what the others have closed.
    for server in servers:
        for session in list(server.node.sessions._sessions):
            session.abort()
    await asyncio.sleep(0.05)


async def work(client: AsyncClient, name: str, until: float) -> int:
    """Append as long as the others do harm; then read what was acknowledged."""
    log = await client.log(name)
    placed: dict[int, bytes] = {}
    number = 0
    while time.monotonic() < until:
        values = [b"%d" % (number + i) for i in range(5)]
        number += len(values)
        found = await asyncio.gather(*(log.append(value) for value in values))
        placed |= dict(zip(found, values, strict=True))
        await log.set_cursor("reader", max(found))
    await log.refresh()
    read = {each.position: each.value async for each in log.read()}
    assert placed.items() <= read.items()
    return len(placed)


async def harm(
    directory: Path, seed: int, seconds: float
) -> tuple[int, Counter[str], Counter[str]]:
    """Run for so long; return what was appended meanwhile, sent and answered.

    Raises:
        AssertionError: a node ended, met a bug, or keeps what has gone.
    """
    tokens: dict[Role, str] = {}
    bugs = Bugs()
    logging.getLogger("braidlog").addHandler(bugs)
    sent, answered = Counter[str](), Counter[str]()
    try:
        async with cluster(directory, tokens) as servers:
            seeds = ",".join(each.node.config.node.listen for each in servers)
            patient = ClientSettings(timeout_s=60)
            async with braidlog.connect_async(
                seeds, token=tokens[Role.ADMIN], settings=patient
            ) as client:
                log = await client.create_log("victim", streams=3)
                await client.create_log("prey", streams=3)
                await client.create_log("shard", kind="shard")
                hostile = [
                    Hostile(
                        Random(f"{seed} {role} {turn}"),
                        role,
                        servers[(role + turn) % NODES].node.config.node.listen,
                        tokens[role],
                        bytes.fromhex(log.id),
                    )
                    for role in ROLES
                    for turn in range(2)
                ]
                until = time.monotonic() + seconds
                async with asyncio.TaskGroup() as group:
                    working = group.create_task(work(client, "victim", until))
                    for each in hostile:
                        group.create_task(each.run(until))
                for each in hostile:
                    sent += each.sent
                    answered += each.answered
                await _settled(servers)
            assert not bugs.found, bugs.found[0]
            for server in servers:
                assert not server.node.failed.done(), server.node.failed.result()
            return working.result(), sent, answered
    finally:
        logging.getLogger("braidlog").removeHandler(bugs)


async def _settled(servers: list[NodeServer]) -> None:
    """See that nothing is kept of connections that have gone."""
    async with asyncio.timeout(30):
        for server in servers:
            node = server.node
            # Of a peer and of the client there may be one each.
            while len(node.requests.answers) > NODES or node.replicas.readers:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            # The other nodes, and a few of the client.
            while len(node.sessions) > 2 * NODES:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            shares = node.sessions.shares
            assert shares is not None
            assert not shares._held
            assert not shares._unread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        appended, sent, answered = asyncio.run(
            harm(Path(directory), given.seed, given.seconds)
        )
    sys.stdout.write(f"seed {given.seed}: {appended} appended meanwhile\n")
    for title, counts in (("sent", sent), ("answered", answered)):
        said = ", ".join(f"{name} {count}" for name, count in counts.most_common())
        sys.stdout.write(f"{title}: {said}\n")


if __name__ == "__main__":
    main()
