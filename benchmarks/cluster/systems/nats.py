"""NATS JetStream: three servers, streams with three replicas on files.

Told to sync every message, or left to sync every two minutes. A batch is so many
messages, because the protocol has no other; all are under way before the first answer
is waited for.
"""

import asyncio
import json
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.cluster import processes
from benchmarks.cluster.plan import Plan
from benchmarks.cluster.systems.system import Nodes, System
from benchmarks.contest import Unavailable

_READY_S = 30.0
_REPLICAS = 3


class Connection(asyncio.Protocol):
    """As much of the client protocol as a publisher and a reader need."""

    def __init__(self) -> None:
        """Wait for the greeting."""
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._data = bytearray()
        self._answers: dict[bytes, asyncio.Future[bytes]] = {}
        self._number = 0
        self._out: list[bytes] = []
        self._wanted = 0
        self.full: asyncio.Future[None] | None = None
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet, and listen for answers."""
        self.transport = transport
        self.transport.write(b'CONNECT {"verbose":false}\r\nSUB _A.* 1\r\nPING\r\n')

    def connection_lost(self, exc: Exception | None) -> None:
        """Release who waits."""
        lost = ConnectionError("the server closed the connection")
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(lost)
        self._answers = {}

    def request(self, subject: bytes, value: bytes) -> "asyncio.Future[bytes]":
        """Publish and return the answer to be."""
        self._number += 1
        inbox = b"_A.%d" % self._number
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._answers[inbox] = answer
        if not self._out:
            self._loop.call_soon(self._flush)
        head = b"PUB %s %s %d\r\n" % (subject, inbox, len(value))
        self._out += [head, value, b"\r\n"]
        return answer

    def count(self, subject: bytes, wanted: int) -> "asyncio.Future[None]":
        """Subscribe; the future is done after so many messages."""
        self._wanted = wanted
        self.full = self._loop.create_future()
        self.transport.write(b"SUB %s 2\r\n" % subject)
        return self.full

    def _flush(self) -> None:
        self.transport.write(b"".join(self._out))
        self._out = []

    def data_received(self, data: bytes) -> None:
        """Take what is whole."""
        self._data += data
        at = 0
        while (end := self._data.find(b"\r\n", at)) >= 0:
            line = bytes(self._data[at:end])
            if line.startswith(b"MSG"):
                parts = line.split()
                size = int(parts[-1])
                if len(self._data) < end + 4 + size:
                    break
                self._message(parts, bytes(self._data[end + 2 : end + 2 + size]))
                at = end + 4 + size
                continue
            if line == b"PING":
                self.transport.write(b"PONG\r\n")
            elif line == b"PONG" and not self.ready.done():
                self.ready.set_result(None)
            elif line.startswith(b"-ERR"):
                raise RuntimeError(line.decode())
            at = end + 2
        del self._data[:at]

    def _message(self, parts: list[bytes], value: bytes) -> None:
        if parts[2] == b"1":
            answer = self._answers.pop(parts[1], None)
            if answer is not None and not answer.done():
                answer.set_result(value)
            return
        self._wanted -= 1
        if not self._wanted and self.full is not None:
            self.full.set_result(None)


class Nats:
    """A log: so many streams, with a connection to the leader of each."""

    def __init__(self, ports: list[int]) -> None:
        """Connect later."""
        self._ports = ports
        self._connections: list[Connection] = []
        self._streams: list[str] = []
        self._turns: cycle[tuple[Connection, bytes]] = cycle(())

    async def open(self, log: str, streams: int, *, make: bool) -> None:
        """Make the streams and connect to their leaders."""
        names = [f"{log}-{i}" for i in range(streams)]
        async with asyncio.timeout(_READY_S):
            for name in names:
                while make and not await self._made(name):  # noqa: ASYNC110, RUF100
                    await asyncio.sleep(0.2)
            self._streams = names
            await self.recover()

    async def recover(self) -> None:
        """Connect to those that lead now."""
        await self.close()
        for name in self._streams:
            self._connections.append(await self._led(name))
        subjects = [name.encode() for name in self._streams]
        self._turns = cycle(zip(self._connections, subjects, strict=True))

    async def _led(self, name: str) -> Connection:
        while True:
            leader = await self._leader(name)
            if leader is not None:
                with suppress(OSError):  # It has just died, and nobody knows.
                    return await _connect(self._ports[leader])
            await asyncio.sleep(0.05)

    async def leader(self) -> int:
        """Return the server that leads the first stream."""
        found = await self._leader(self._streams[0])
        assert found is not None
        return found

    async def _made(self, name: str) -> bool:
        config = {
            "name": name,
            "subjects": [name],
            "num_replicas": _REPLICAS,
            "storage": "file",
        }
        made = await self._api(f"STREAM.CREATE.{name}", config)
        # Followers that have not reported yet are not current.
        cluster = made.get("cluster", {})
        others = cluster.get("replicas", [])
        return "leader" in cluster and len(others) == _REPLICAS - 1

    async def _leader(self, name: str) -> int | None:
        found = await self._api(f"STREAM.INFO.{name}", {})
        leader = found.get("cluster", {}).get("leader", "")
        return int(leader[1:]) if leader else None

    async def _api(self, name: str, body: Any) -> Any:
        """Ask any server; an empty answer is one that nobody gave."""
        subject, asked = f"$JS.API.{name}".encode(), json.dumps(body).encode()
        for port in self._ports:
            try:
                async with asyncio.timeout(1):
                    connection = await _connect(port)
                    try:
                        return json.loads(await connection.request(subject, asked))
                    finally:
                        connection.transport.close()
            except (OSError, TimeoutError):
                continue
        return {}

    async def append(self, value: bytes) -> None:
        """Publish one message and wait for its acknowledgement."""
        connection, subject = next(self._turns)
        _check(await connection.request(subject, value))

    async def append_many(self, values: Sequence[bytes]) -> None:
        """Publish all, then wait for all."""
        connection, subject = next(self._turns)
        sent = [connection.request(subject, value) for value in values]
        for answer in sent:
            _check(await answer)

    async def read(self, count: int) -> int:
        """Let a consumer deliver from the start."""
        name = self._streams[0]
        reader = await _connect(self._ports[0])
        full = reader.count(f"_D.{name}".encode(), count)
        config = {"deliver_subject": f"_D.{name}", "ack_policy": "none"}
        wanted = {"stream_name": name, "config": config}
        made = await self._api(f"CONSUMER.CREATE.{name}", wanted)
        if "error" in made:
            raise RuntimeError(made["error"])
        async with asyncio.timeout(60):
            await full
        reader.transport.close()
        return count

    async def close(self) -> None:
        """Disconnect."""
        for connection in self._connections:
            connection.transport.close()
        self._connections = []


def _check(answer: bytes) -> None:
    if b'"error"' in answer:
        raise RuntimeError(answer.decode())


async def _connect(port: int) -> Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
    await connection.ready
    return connection


def _start(sync: str, plan: Plan, folder: Path, stack: ExitStack) -> Nodes:
    program = processes.find("nats-server", plan.peers)
    folder.mkdir(parents=True, exist_ok=True)
    numbers = processes.ports(6)
    files = [folder / f"n{i}.conf" for i in range(3)]
    for i, file in enumerate(files):
        file.write_text(_settings(i, numbers, folder, sync))
    if not _takes(program, files[0]):
        raise Unavailable("this version cannot sync every message (make peers)")
    pids = [
        processes.start([program, "-c", file], folder / f"n{i}.log", stack)
        for i, file in enumerate(files)
    ]
    for port in numbers[:3]:
        processes.wait_listening(port)
    return Nodes(numbers[:3], tuple(pids))


def _takes(program: Path, file: Path) -> bool:
    done = subprocess.run(
        [program, "-t", "-c", file], capture_output=True, check=False, timeout=10
    )
    return done.returncode == 0


def _settings(node: int, ports: list[int], folder: Path, sync: str) -> str:
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports[3:])
    return f"""
server_name: n{node}
listen: "127.0.0.1:{ports[node]}"
jetstream {{
  store_dir: "{folder}/n{node}"
  {sync}
}}
cluster {{
  name: bench
  listen: "127.0.0.1:{ports[3 + node]}"
  routes: [{routes}]
}}
"""


SYNCED = System("nats", partial(_start, "sync_interval: always"), Nats, streams=True)
UNSYNCED = System("nats unsynced", partial(_start, ""), Nats, streams=True)
