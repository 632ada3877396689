"""The floor: three processes that pass bytes on, write and sync them.

They are a program of its own, in Rust (`benchmarks/cluster/chain`).
"""

import asyncio
import json
import struct
import subprocess
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.cluster import processes
from benchmarks.cluster.plan import Plan
from benchmarks.cluster.systems.system import Nodes, System
from benchmarks.contest import Unavailable

_COUNT = struct.Struct("<Q")
_REPOSITORY = Path(__file__).parents[3]
_BUILD = (
    *("cargo", "build", "--release", "--quiet", "--locked"),
    *("--manifest-path", "benchmarks/cluster/chain/Cargo.toml"),
    *("--target-dir", "target/peers"),
    *("--message-format", "json-render-diagnostics"),
)


class Chain(asyncio.Protocol):
    """The client: who appends waits until so many bytes are safe."""

    def __init__(self, port: int) -> None:
        """Speak to the first process."""
        self._port = port
        self._sent = 0
        self._out: list[bytes] = []
        self._data = b""
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._transport: Any = None

    async def open(self, log: str, streams: int, *, make: bool) -> None:
        """Connect; there are no logs."""
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, "127.0.0.1", self._port)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Get the socket."""
        self._transport = transport

    async def append(self, value: bytes) -> None:
        """Send one value."""
        await self.append_many((value,))

    async def append_many(self, values: Sequence[bytes]) -> None:
        """Send values together."""
        loop = asyncio.get_running_loop()
        if not self._out:
            loop.call_soon(self._flush)
        self._out += values
        self._sent += sum(map(len, values))
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((self._sent, done))
        await done

    def _flush(self) -> None:
        self._transport.write(b"".join(self._out))
        self._out = []

    def data_received(self, data: bytes) -> None:
        """Release who waits."""
        self._data += data
        whole = len(self._data) // 8 * 8
        if not whole:
            return
        (safe,) = _COUNT.unpack_from(self._data, whole - 8)
        self._data = self._data[whole:]
        while self._waiting and self._waiting[0][0] <= safe:
            self._waiting.popleft()[1].set_result(None)

    async def read(self, count: int) -> int:
        """Raise: nothing can be read.

        Raises:
            Unavailable: always.
        """
        raise Unavailable(f"the floor keeps none of {count} records")

    async def leader(self) -> int:
        """Return the process that is sent to."""
        return 0

    async def recover(self) -> None:
        """Raise: nobody takes over.

        Raises:
            Unavailable: always.
        """
        raise Unavailable("nobody takes over")

    async def close(self) -> None:
        """Disconnect."""
        if self._transport is not None:
            self._transport.close()


@cache
def _program() -> Path:
    try:
        done = subprocess.run(
            _BUILD, cwd=_REPOSITORY, stdout=subprocess.PIPE, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"the floor was not built: {error}") from error
    built = [json.loads(line).get("executable") for line in done.stdout.splitlines()]
    return Path(next(path for path in reversed(built) if path))


def _start(_: Plan, folder: Path, stack: ExitStack) -> Nodes:
    program = _program()
    numbers = processes.ports(3)
    folder.mkdir(parents=True, exist_ok=True)
    pids = []
    for i in (2, 1, 0):
        command: list[str | Path] = [program, str(numbers[i]), folder / f"n{i}"]
        if i == 0:
            command += map(str, numbers[1:])
        pids.append(processes.start(command, folder / f"n{i}.log", stack))
        processes.wait_listening(numbers[i])
    return Nodes(numbers[0], tuple(reversed(pids)))


SYSTEM = System("chain", _start, Chain, reads=False, fails_over=False)
