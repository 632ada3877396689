"""Redis: a primary and two replicas that sync their files after every write.

An append adds to a stream, and WAITAOF waits until the files of all three are synced.
The client gathers: one WAITAOF stands behind all that is added over a connection at
the same time. It has a connection for each of many callers, because replicas tell how
far they have synced when another WAITAOF asks, or once a second: an append that is
alone waits for that second, and so do few.
"""

import asyncio
import re
import subprocess
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.cluster import processes
from benchmarks.cluster.plan import Plan
from benchmarks.cluster.systems.system import Nodes, System
from benchmarks.contest import Unavailable

_READY_S = 30.0
_REPLICAS = 2
_WAIT = (b"WAITAOF", b"1", b"%d" % _REPLICAS, b"10000")
_PAGE = 5_000
_POOL = 64
_VERSION = (7, 2)


def encode(*words: bytes) -> bytes:
    """Return a command as the protocol has it."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        parts += [b"$%d\r\n" % len(word), word, b"\r\n"]
    return b"".join(parts)


class Connection(asyncio.Protocol):
    """Sends commands, and gives answers in their order."""

    def __init__(self) -> None:
        """Wait for the socket."""
        import hiredis

        self._reader = hiredis.Reader()
        self._answers: deque[asyncio.Future[Any]] = deque()
        self._out: list[bytes] = []
        self._all: asyncio.Future[None] | None = None
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Get the socket."""
        self.transport = transport

    def call(self, data: bytes, answers: int = 1) -> "list[asyncio.Future[Any]]":
        """Send commands that were encoded, as many as they have answers."""
        loop = asyncio.get_running_loop()
        made = [loop.create_future() for _ in range(answers)]
        self._answers += made
        self.transport.write(data)
        return made

    def add(self, commands: Sequence[bytes]) -> "asyncio.Future[None]":
        """Send commands with others of now; done when their effects are synced."""
        self._out += commands
        if self._all is None:
            loop = asyncio.get_running_loop()
            self._all = loop.create_future()
            loop.call_soon(self._flush, self._all)
        return self._all

    def _flush(self, done: "asyncio.Future[None]") -> None:
        count, data = len(self._out), b"".join(self._out)
        self._out, self._all = [], None
        synced = self.call(data + encode(*_WAIT), count + 1)[-1]
        synced.add_done_callback(lambda answer: _settle(done, answer))

    def data_received(self, data: bytes) -> None:
        """Give what is whole."""
        self._reader.feed(data)
        # `False` says that nothing is whole: no answer of this protocol is it.
        while (answer := self._reader.gets()) is not False:
            waiter = self._answers.popleft()
            if waiter.done():
                continue
            if isinstance(answer, Exception):
                waiter.set_exception(answer)
            else:
                waiter.set_result(answer)


class Redis:
    """A stream."""

    def __init__(self, port: int) -> None:
        """Speak to the primary."""
        self._port = port
        self._stream = b""
        self._pool: list[Connection] = []
        self._turns: cycle[Connection] = cycle(())

    async def open(self, log: str, streams: int, *, make: bool) -> None:
        """Connect, and wait until both replicas have synced something."""
        self._stream = log.encode()
        loop = asyncio.get_running_loop()
        for _ in range(_POOL):
            _, connection = await loop.create_connection(
                Connection, "127.0.0.1", self._port
            )
            self._pool.append(connection)
        self._turns = cycle(self._pool)
        async with asyncio.timeout(_READY_S):
            while make and not await self._is_whole():  # noqa: ASYNC110, RUF100
                await asyncio.sleep(0.1)

    async def _is_whole(self) -> bool:
        ready = encode(b"SET", b"ready", b"1") + encode(*_WAIT[:-1], b"500")
        _, synced = self._pool[0].call(ready, 2)
        return bool((await synced) == [1, _REPLICAS])

    async def append(self, value: bytes) -> None:
        """Add one entry, and wait with all that are added now."""
        await self.append_many((value,))

    async def append_many(self, values: Sequence[bytes]) -> None:
        """Add entries, and wait with all that are added now."""
        added = [encode(b"XADD", self._stream, b"*", b"v", each) for each in values]
        await asyncio.shield(next(self._turns).add(added))

    async def read(self, count: int) -> int:
        """Read ranges of entries in their order."""
        found, begin = 0, b"-"
        while found < count:
            wanted = b"%d" % min(_PAGE, count - found)
            asked = encode(b"XRANGE", self._stream, begin, b"+", b"COUNT", wanted)
            entries = await self._pool[0].call(asked)[0]
            if not entries:
                break
            found += len(entries)
            begin = b"(" + entries[-1][0]
        return found

    async def leader(self) -> int:
        """Return the primary."""
        return 0

    async def recover(self) -> None:
        """Raise: nobody takes over.

        Raises:
            Unavailable: always.
        """
        raise Unavailable("nobody takes over without a sentinel")

    async def close(self) -> None:
        """Disconnect."""
        for connection in self._pool:
            connection.transport.close()
        self._pool = []


def _settle(done: "asyncio.Future[None]", answer: "asyncio.Future[Any]") -> None:
    if done.done():
        return
    if answer.exception() is not None:
        done.set_exception(answer.exception() or RuntimeError())
    elif answer.result() != [1, _REPLICAS]:
        done.set_exception(RuntimeError(f"synced on {answer.result()} of [1, 2]"))
    else:
        done.set_result(None)


def _start(plan: Plan, folder: Path, stack: ExitStack) -> Nodes:
    program = processes.find("redis-server", plan.peers)
    if (has := _version(program)) < _VERSION:
        raise Unavailable(
            f"redis {'.'.join(map(str, has))} has no WAITAOF (make peers)"
        )
    numbers = processes.ports(3)
    pids = []
    for i, port in enumerate(numbers):
        own = folder / f"n{i}"
        own.mkdir(parents=True, exist_ok=True)
        options: dict[str, object] = {
            "bind": "127.0.0.1",
            "port": port,
            "dir": own,
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "repl-diskless-sync-delay": 0,
        }
        command: list[str | Path] = [program]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        if i:
            command += ["--replicaof", "127.0.0.1", str(numbers[0])]
        pids.append(processes.start(command, folder / f"n{i}.log", stack))
        processes.wait_listening(port)
    return Nodes(numbers[0], tuple(pids))


def _version(program: Path) -> tuple[int, ...]:
    done = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=True, timeout=10
    )
    found = re.search(r"v=(\d+)\.(\d+)", done.stdout)
    return tuple(map(int, found.groups())) if found else (0, 0)


SYSTEM = System("redis", _start, Redis, fails_over=False)
