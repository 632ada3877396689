"""etcd: three members, spoken to over their JSON gateway.

Every put is synced by a majority before it is answered. A batch is one transaction. The
client has a connection for each caller, to the leader; the gateway costs the member an
HTTP request and a conversion for each call, which a gRPC client would not.
"""

import asyncio
import base64
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.cluster import processes
from benchmarks.cluster.plan import Plan
from benchmarks.cluster.systems.system import Nodes, System

_READY_S = 20.0
_TRANSACTION_MAX = 128
_PAGE = 5_000
_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Etcd:
    """Keys that rise, below the name of a log."""

    def __init__(self, ports: list[int]) -> None:
        """Speak to the member that leads."""
        self._ports = ports
        self._port = ports[0]
        self._free: list[_Connection] = []
        self._next = 0
        self._log = ""

    async def open(self, log: str, streams: int, *, make: bool) -> None:
        """Find the leader; a log is no more than a prefix."""
        self._log = log
        await self.recover()

    async def recover(self) -> None:
        """Find the leader."""
        async with asyncio.timeout(_READY_S):
            while not await self._found():  # noqa: ASYNC110, RUF100
                await asyncio.sleep(0.05)

    async def _found(self) -> bool:
        for port in self._ports:
            await self.close()
            self._port = port
            try:
                async with asyncio.timeout(1):
                    status = await self._call("/v3/maintenance/status", {})
            except (OSError, TimeoutError, asyncio.IncompleteReadError, RuntimeError):
                continue
            if status.get("leader", "0") == status["header"]["member_id"]:
                return True
        return False

    async def leader(self) -> int:
        """Return the member that leads."""
        return self._ports.index(self._port)

    def _key(self) -> str:
        self._next += 1
        return _text(b"%s/%d/%020d" % (self._log.encode(), os.getpid(), self._next))

    async def append(self, value: bytes) -> None:
        """Put one key."""
        await self._call("/v3/kv/put", {"key": self._key(), "value": _text(value)})

    async def append_many(self, values: Sequence[bytes]) -> None:
        """Put keys in one transaction."""
        for begin in range(0, len(values), _TRANSACTION_MAX):
            puts = [
                {"requestPut": {"key": self._key(), "value": _text(value)}}
                for value in values[begin : begin + _TRANSACTION_MAX]
            ]
            await self._call("/v3/kv/txn", {"success": puts})

    async def read(self, count: int) -> int:
        """Read ranges of keys in their order."""
        found, begin = 0, self._log.encode() + b"/"
        end = self._log.encode() + b"0"
        while found < count:
            wanted = {
                "key": _text(begin),
                "range_end": _text(end),
                "limit": min(_PAGE, count - found),
                "serializable": True,
            }
            rows = (await self._call("/v3/kv/range", wanted)).get("kvs", [])
            if not rows:
                break
            values = [base64.b64decode(row["value"]) for row in rows]
            found += len(values)
            begin = base64.b64decode(rows[-1]["key"]) + b"\0"
        return found

    async def _call(self, path: str, body: Any) -> Any:
        reader, writer = self._free.pop() if self._free else await self._connect()
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        status, answer = await _answer(reader)
        self._free.append((reader, writer))
        if status != b"200":
            raise RuntimeError(answer.decode(errors="replace")[:200])
        return json.loads(answer)

    async def _connect(self) -> _Connection:
        return await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 26)

    async def close(self) -> None:
        """Close all connections."""
        for _, writer in self._free:
            writer.close()
        self._free = []


async def _answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head[1:] if line)
    if b"content-length" in fields:
        body = await reader.readexactly(int(fields[b"content-length"]))
        return head[0].split()[1], body
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return head[0].split()[1], body


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _start(plan: Plan, folder: Path, stack: ExitStack) -> Nodes:
    program = processes.find("etcd", plan.peers)
    numbers = processes.ports(6)
    peers = [f"http://127.0.0.1:{port}" for port in numbers[3:]]
    members = ",".join(f"n{i}={url}" for i, url in enumerate(peers))
    pids = []
    for i, peer in enumerate(peers):
        client = f"http://127.0.0.1:{numbers[i]}"
        options = {
            "name": f"n{i}",
            "data-dir": folder / f"n{i}",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": members,
            "quota-backend-bytes": 4 << 30,
            "log-level": "error",
        }
        command = [f"--{name}={value}" for name, value in options.items()]
        pids.append(processes.start([program, *command], folder / f"n{i}.log", stack))
    for port in numbers[:3]:
        processes.wait_listening(port)
    return Nodes(numbers[:3], tuple(pids))


SYSTEM = System("etcd", _start, Etcd)
