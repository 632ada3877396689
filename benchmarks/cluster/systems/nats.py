"""NATS JetStream: three servers, a stream with three replicas on files.

Told to sync every message, if this version can. A batch is so many messages, because
the protocol has no other; all are under way before the first answer is waited for.
"""

import asyncio
import json
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.cluster import processes
from benchmarks.cluster.plan import Plan

_READY_S = 30.0
_STREAM = "bench"


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
    """One stream, one connection."""

    def __init__(self, ports: list[int], *, synced: bool) -> None:
        """Speak to the server that leads the stream."""
        self._ports = ports
        self._connection: Connection | None = None
        self.note = (
            "" if synced else "nats answers before a sync: this version has no setting"
        )

    @property
    def connection(self) -> Connection:
        """Return the connection."""
        assert self._connection is not None
        return self._connection

    async def open(self) -> None:
        """Make the stream and connect to its leader."""
        async with asyncio.timeout(_READY_S):
            while (leader := await self._made()) is None:  # noqa: ASYNC110, RUF100
                await asyncio.sleep(0.2)
        await self.close()
        self._connection = await _connect(self._ports[leader])

    async def _made(self) -> int | None:
        try:
            await self.close()
            self._connection = await _connect(self._ports[0])
            config = {
                "name": _STREAM,
                "subjects": [_STREAM],
                "num_replicas": 3,
                "storage": "file",
            }
            made = await self._api(f"STREAM.CREATE.{_STREAM}", config)
            leader = made["cluster"]["leader"]
        except (OSError, KeyError, TimeoutError):
            return None
        return int(leader[1:])

    async def _api(self, name: str, body: Any) -> Any:
        async with asyncio.timeout(5):
            subject = f"$JS.API.{name}".encode()
            answer = await self.connection.request(subject, json.dumps(body).encode())
        return json.loads(answer)

    async def append(self, value: bytes) -> None:
        """Publish one message and wait for its acknowledgement."""
        _check(await self.connection.request(_STREAM.encode(), value))

    async def append_many(self, values: Sequence[bytes]) -> None:
        """Publish all, then wait for all."""
        sent = [self.connection.request(_STREAM.encode(), value) for value in values]
        for answer in sent:
            _check(await answer)

    async def read(self, count: int) -> int:
        """Let a consumer deliver from the start."""
        reader = await _connect(self._ports[0])
        full = reader.count(b"_deliver", count)
        config = {"deliver_subject": "_deliver", "ack_policy": "none"}
        wanted = {"stream_name": _STREAM, "config": config}
        made = await self._api(f"CONSUMER.CREATE.{_STREAM}", wanted)
        if "error" in made:
            raise RuntimeError(made["error"])
        async with asyncio.timeout(60):
            await full
        reader.transport.close()
        return count

    async def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            self._connection.transport.close()
            self._connection = None


def _check(answer: bytes) -> None:
    if b'"error"' in answer:
        raise RuntimeError(answer.decode())


async def _connect(port: int) -> Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
    await connection.ready
    return connection


def start(plan: Plan, question: str, stack: ExitStack) -> Nats:
    """Start three servers.

    Raises:
        Unavailable: the server is not installed.
    """
    program = processes.find("nats-server", "nats-server", plan.peers)
    folder = plan.directory / question / "nats"
    folder.mkdir(parents=True, exist_ok=True)
    numbers = processes.ports(6)
    files = [folder / f"n{i}.conf" for i in range(3)]
    for i, file in enumerate(files):
        file.write_text(_settings(i, numbers, folder, "sync_interval: always"))
    synced = _takes(program, files[0])
    for i, file in enumerate(files):
        if not synced:
            file.write_text(_settings(i, numbers, folder, ""))
        processes.start([program, "-c", file], folder / f"n{i}.log", stack)
    return Nats(numbers[:3], synced=synced)


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
