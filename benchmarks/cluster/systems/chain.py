"""The floor: three processes on uvloop that pass bytes on, write and sync them."""

import asyncio
import struct
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.cluster import processes
from benchmarks.cluster.plan import Plan
from benchmarks.contest import Unavailable

_COUNT = struct.Struct("<Q")
_READY_S = 20.0


class Chain(asyncio.Protocol):
    """The client: who appends waits until so many bytes are safe."""

    note = ""

    def __init__(self, port: int) -> None:
        """Speak to the first process."""
        self._port = port
        self._sent = 0
        self._out: list[bytes] = []
        self._data = b""
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._transport: Any = None

    async def open(self) -> None:
        """Connect."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_READY_S):
            while self._transport is None:
                try:
                    await loop.create_connection(lambda: self, "127.0.0.1", self._port)
                except OSError:
                    await asyncio.sleep(0.05)

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

    async def close(self) -> None:
        """Disconnect."""
        if self._transport is not None:
            self._transport.close()


def start(plan: Plan, question: str, stack: ExitStack) -> Chain:
    """Start a primary and two backups."""
    folder = plan.directory / question / "chain"
    numbers = processes.ports(3)
    program: list[str | Path] = [sys.executable, "-m", "benchmarks.cluster.echo"]
    folder.mkdir(parents=True, exist_ok=True)
    for i in (1, 2):
        command = [*program, str(numbers[i]), folder / f"n{i}"]
        processes.start(command, folder / f"n{i}.log", stack)
    for number in numbers[1:]:
        processes.wait_listening(number)
    backups = map(str, numbers[1:])
    command = [*program, str(numbers[0]), folder / "n0", *backups]
    processes.start(command, folder / "n0.log", stack)
    return Chain(numbers[0])
