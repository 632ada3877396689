"""A scenario: a register on three nodes, read and written by majorities.

It is small and complete, so that loop, network, disks, storms and checkers can be tried
on something whose right behaviour is known: the register of Attiya, Bar-Noy and Dolev
for many writers. `Bug` takes one necessary step out of it, and the checker has to
notice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

from sim.checkers import Operation, check_register
from sim.disk import MemoryDisk
from sim.faults import Storm
from sim.world import Life, World

__all__ = ["Bug", "RegisterScenario"]

PORT = 7400
_FILE = "register"
_CALL_S = 1.0
_OPERATIONS = 12
_NODES = ("n1", "n2", "n3")
_CLIENTS = ("c1", "c2", "c3")

Stamp = tuple[int, str]
Versioned = tuple[Stamp, str | None]
_NOTHING: Versioned = ((0, ""), None)


class Bug(Enum):
    """A step that is left out."""

    NONE = "none"
    # A read does not write back what it found: a later one may find something older.
    NO_WRITE_BACK = "no write back"
    # A node answers before it synced: without power it forgets what it promised.
    NO_SYNC = "no sync"
    # One answer is taken for a majority.
    NO_QUORUM = "no quorum"


class _Node:
    """One of the nodes: it keeps the newest value it was told, durably."""

    def __init__(self, life: Life, bug: Bug) -> None:
        self._disk: MemoryDisk = life.disk
        self._bug = bug
        self._newest = _NOTHING
        for record in self._disk.read(_FILE):
            self._newest = max(self._newest, _decode(json.loads(record)))
        self._syncing = asyncio.Lock()

    async def serve(self) -> None:
        server = await asyncio.start_server(self._connected, "0.0.0.0", PORT)
        async with server:
            await server.serve_forever()

    async def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while line := await reader.readline():
                answer = await self._answer(json.loads(line))
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except OSError:
            # The connection broke, or the disk refused: either way no answer is sent.
            pass
        finally:
            writer.close()

    async def _answer(self, request: Any) -> Versioned:
        if request is not None:
            await self._store(_decode(request))
        return self._newest

    async def _store(self, versioned: Versioned) -> None:
        async with self._syncing:
            if versioned > self._newest:
                self._disk.append(_FILE, json.dumps(versioned).encode())
                if self._bug is not Bug.NO_SYNC:
                    await self._disk.sync(_FILE)
                self._newest = versioned


def _decode(value: Any) -> Versioned:
    (number, client), content = value
    return (number, client), content


@dataclass(slots=True)
class _Client:
    """Reads and writes, each in two rounds over a majority."""

    life: Life
    bug: Bug
    history: list[Operation]

    async def run(self) -> None:
        for count in range(_OPERATIONS):
            await asyncio.sleep(self.life.random.expovariate(0.5))
            if self.life.random.random() < 0.5:
                await self._write(f"{self.life.name}-{count}")
            else:
                await self._read()

    def _now(self) -> float:
        return self.life.world.now

    async def _write(self, value: str) -> None:
        begin = self._now()
        operation = Operation(self.life.name, True, value, begin)
        at = len(self.history)
        self.history.append(operation)
        newest = await self._round(None)
        if newest is None:
            # Nothing was sent that could be stored.
            self.history[at] = Operation(self.life.name, False, None, begin)
            return
        stamp = (newest[0][0] + 1, self.life.name)
        if await self._round((stamp, value)) is not None:
            done = Operation(self.life.name, True, value, begin, self._now())
            self.history[at] = done

    async def _read(self) -> bool:
        begin = self._now()
        newest = await self._round(None)
        if newest is None:
            return False
        if self.bug is not Bug.NO_WRITE_BACK and await self._round(newest) is None:
            return False
        value = newest[1]
        done = Operation(self.life.name, False, value, begin, self._now())
        self.history.append(done)
        return True

    async def read_for_sure(self) -> None:
        """Read until an answer comes; without faults, one has to."""
        while not await self._read():
            pass

    async def _round(self, request: Versioned | None) -> Versioned | None:
        """Ask all nodes; return the newest of a majority, or None."""
        calls = [asyncio.create_task(self._call(name, request)) for name in _NODES]
        needed = 1 if self.bug is Bug.NO_QUORUM else len(_NODES) // 2 + 1
        answers: list[Versioned] = []
        for call in asyncio.as_completed(calls):
            answer = await call
            if answer is not None:
                answers.append(answer)
            if len(answers) >= needed:
                break
        for task in calls:
            task.cancel()
        return max(answers) if len(answers) >= needed else None

    async def _call(self, name: str, request: Versioned | None) -> Versioned | None:
        try:
            async with asyncio.timeout(_CALL_S):
                reader, writer = await asyncio.open_connection(name, PORT)
                try:
                    writer.write(json.dumps(request).encode() + b"\n")
                    await writer.drain()
                    line = await reader.readline()
                finally:
                    writer.close()
        except OSError:
            # Refused, reset, or too late, which is an OSError as well.
            return None
        return _decode(json.loads(line)) if line.endswith(b"\n") else None


class RegisterScenario:
    """Three nodes and three clients; see the module."""

    def __init__(self, bug: Bug = Bug.NONE) -> None:
        """Begin with an empty history."""
        self._bug = bug
        self.history: list[Operation] = []

    def build(self, world: World, storm: Storm) -> None:
        """Start nodes and clients."""
        for name in _NODES:
            disk = MemoryDisk(world.random(f"disk {name}"))
            world.start(name, self._node, disk=disk)

    async def _node(self, life: Life) -> None:
        await _Node(life, self._bug).serve()

    def targets(self) -> Sequence[str]:
        """Return the nodes."""
        return _NODES

    def groups(self) -> Sequence[Sequence[str]]:
        """Return all nodes."""
        return [self.targets()]

    def rot(self, random: Random) -> bool:
        """Damage nothing: a register has no copies to be repaired from."""
        return False

    def others(self) -> Sequence[str]:
        """Return the clients."""
        return _CLIENTS

    async def begun(self) -> None:
        """Let faults begin at once."""

    async def workload(self, world: World) -> None:
        """Let the clients read and write; after the storm, each reads once more."""
        done = [asyncio.Event() for _ in _CLIENTS]
        for name, event in zip(_CLIENTS, done, strict=True):

            async def client(life: Life, event: asyncio.Event = event) -> None:
                worker = _Client(life, self._bug, self.history)
                await worker.run()
                await world.calm.wait()
                await worker.read_for_sure()
                event.set()

            world.start(name, client)
        for event in done:
            await event.wait()

    def check(self, world: World) -> None:
        """Find one order of all reads and writes."""
        reads = [op for op in self.history if not op.write]
        world.note("world", f"{len(self.history)} operations, {len(reads)} reads")
        check_register(self.history)
