"""A key-value store whose write-ahead log is a shard, with fail-over.

    python examples/kv_store/server.py --cluster HOST:PORT --name a --listen 7501
    echo '{"op": "put", "key": "k", "value": "v"}' | nc -q 1 127.0.0.1 7501

Start several, each with a name of its own. One owns the log and answers; the others
follow the log, and one of them takes over when the owner was silent for `--ttl`
seconds. A request is a line of JSON, and so is its answer. Requests are `get`, `put`
and `delete` with a `key`, and `swap`, which puts a `value` if the present one is
`expected` (null: there is none). An answer with an `error` and the `outcome`
"not_stored" changed nothing; with "unknown" it may have.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import braidlog
from braidlog import Record
from braidlog.client import AsyncClusterLog, AsyncLogWriter, ClientSettings
from braidlog.errors import FencedError, LogError, TrimmedError

LOG = "kv"
SNAPSHOT_EVERY = 500


class StandbyError(Exception):
    """This server does not own the log."""


class State:
    """What the records of the log add up to, up to the position `next`."""

    def __init__(self, begin: int = 1) -> None:
        self.next = begin
        self.items: dict[str, str] = {}

    def apply(self, position: int, change: dict[str, Any]) -> None:
        if position < self.next:
            return  # An own append that was also read from the log.
        assert position == self.next, f"{position} is not {self.next}"
        match change:
            case {"snapshot": items}:
                self.items = dict(items)
            case {"key": key, "value": None}:
                self.items.pop(key, None)
            case {"key": key, "value": value}:
                self.items[key] = value
        self.next = position + 1


class Server:
    def __init__(self, log: AsyncClusterLog, name: str, ttl: float) -> None:
        self.log, self.name, self.ttl = log, name, ttl
        self.state = State()
        self.writer: AsyncLogWriter | None = None
        # One change at a time, so that `swap` compares with what is there.
        self.changing = asyncio.Lock()
        self.asked = asyncio.Event()
        self.round = asyncio.Event()
        self.trimming: asyncio.Task[None] | None = None

    # -- whose the log is --------------------------------------------------------

    async def run(self) -> None:
        """Stand by, serve until another server took over, stand by again."""
        while True:
            try:
                writer = await self.stand_by()
                say(f"{self.name} is active in epoch {writer.epoch}")
                self.writer, self.round = writer, asyncio.Event()
                try:
                    await self.keep(writer)
                finally:
                    self.writer = None  # Reads that wait wake up, and see that.
                    self.round.set()
            except LogError as error:
                # Fenced, or the outcome of an append is unknown, or too few nodes run.
                # In each case the log says what happened: follow it from here.
                say(f"{self.name} stands by: {error}")
                await asyncio.sleep(0.05)

    async def stand_by(self) -> AsyncLogWriter:
        """Follow the log until it has no owner that lives; then own it."""
        while True:
            try:
                await self.replay(self.log.subscribe(self.state.next, timeout=0.2))
                # Nothing new came. While the owner renews its time, this is refused.
                writer = await self.acquire()
                # Nobody else appends from here on, so this is all there is.
                await self.replay(self.log.read(self.state.next, writer.end))
            except FencedError:
                continue
            except TrimmedError as error:
                self.state = State(error.first)  # There is a snapshot; see `compact`.
            else:
                return writer

    async def acquire(self) -> AsyncLogWriter:
        try:
            return await self.log.acquire(self.name, ttl=self.ttl)
        except FencedError as error:
            if error.owner != self.name:
                raise
            # This server owned it before it was restarted, or before it lost track.
            return await self.log.acquire(
                self.name, ttl=self.ttl, expected=error.current
            )

    async def replay(self, records: AsyncIterator[Record]) -> None:
        async for record in records:
            self.state.apply(record.position, json.loads(record.value or b"{}"))

    async def keep(self, writer: AsyncLogWriter) -> None:
        """Renew in time, and whenever a read waits for it; until that fails."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.asked.wait(), self.ttl / 3)
            self.asked.clear()
            # Who comes from here on waits for the next round.
            confirmed, self.round = self.round, asyncio.Event()
            try:
                await writer.renew()
            finally:
                confirmed.set()

    # -- requests ----------------------------------------------------------------

    def owned(self) -> AsyncLogWriter:
        if self.writer is None:
            raise StandbyError(f"{self.name} is a stand-by")
        return self.writer

    async def confirm(self, writer: AsyncLogWriter) -> None:
        """Make sure that no other server has taken over since this call began.

        A server that was paused, or cut off, does not know that it was replaced, and no
        clock of its own can tell. So the group of the log has to: `renew` asks a
        majority and fails if the log belongs to another writer. That writes nothing;
        all reads that wait share one, which begins after the last of them came.
        """
        if self.writer is writer:
            self.asked.set()
            await self.round.wait()
        if self.writer is not writer:
            raise StandbyError(f"{self.name} was replaced meanwhile")

    async def get(self, key: str) -> str | None:
        await self.confirm(self.owned())
        return self.state.items.get(key)

    async def put(self, key: str, value: str | None) -> dict[str, Any]:
        async with self.changing:
            # Who could append owned the log until then: that needs no `confirm`.
            await self.append({"key": key, "value": value})
            if self.state.next % SNAPSHOT_EVERY == 0:
                await self.compact()
        return {"stored": True}

    async def swap(self, key: str, expected: str | None, value: str) -> dict[str, Any]:
        """Return whether the value was put, and the one that was there."""
        async with self.changing:
            writer, found = self.owned(), self.state.items.get(key)
            if found == expected:
                await self.append({"key": key, "value": value})
                return {"swapped": True, "value": found}
            await self.confirm(writer)  # That it differs was only read.
            return {"swapped": False, "value": found}

    async def append(self, change: dict[str, Any]) -> int:
        """Write to the log, then to memory: no answer is older than the log."""
        try:
            position = await self.owned().append(json.dumps(change).encode())
        except LogError:
            self.asked.set()  # `keep` finds out whether the log is still owned.
            raise
        self.state.apply(position, change)
        return position

    async def compact(self) -> None:
        """Log everything as one record, and let go of the records before it.

        So the first record that is kept is a snapshot, whoever appended it. A trim may
        come late, even from a server that was replaced: it does no harm.
        """
        # Whatever happens here, the change that came before is stored.
        with contextlib.suppress(LogError, StandbyError):
            position = await self.append({"snapshot": self.state.items})
            self.trimming = asyncio.create_task(self.trim(position))

    async def trim(self, before: int) -> None:
        with contextlib.suppress(LogError):  # The next one trims more.
            await self.log.trim(before)

    async def answer(self, line: bytes) -> dict[str, Any]:
        match json.loads(line):
            case {"op": "get", "key": str(key)}:
                return {"value": await self.get(key)}
            case {"op": "put", "key": str(key), "value": str(value)}:
                return await self.put(key, value)
            case {"op": "delete", "key": str(key)}:
                return await self.put(key, None)
            case {"op": "swap", "key": str(key), "expected": old, "value": str(new)}:
                return await self.swap(key, old, new)
        raise ValueError("no such request")

    async def connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                try:
                    answer = await self.answer(line)
                except LogError as error:
                    answer = {"error": str(error), "outcome": error.outcome}
                except (StandbyError, ValueError) as error:
                    answer = {"error": str(error), "outcome": "not_stored"}
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--listen", type=int, required=True, metavar="PORT")
    parser.add_argument("--ttl", type=float, default=3.0)
    given = parser.parse_args()
    # An append that nobody answers for so long makes its server stand by.
    settings = ClientSettings(timeout_s=2 * given.ttl, attempt_timeout_s=given.ttl / 2)
    async with braidlog.connect_async(given.cluster, settings=settings) as client:
        log = await client.create_log(LOG, kind="shard", replication=3, exist_ok=True)
        server = Server(log, given.name, given.ttl)
        async with await asyncio.start_server(
            server.connected, "127.0.0.1", given.listen
        ):
            await server.run()


if __name__ == "__main__":
    asyncio.run(main())
