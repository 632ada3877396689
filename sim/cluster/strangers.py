"""Clients that mean no good, or too much of it, and what they leave room for.

*Theory of operation.* Each host of strangers holds many connections at a time, and does
with each what real ones do by mistake or on purpose: nothing; half a greeting; a large
frame that does not end; polls that wait; questions whose answers it does not take; or
all that is allowed, as fast as it is answered. Nodes have small limits then
(`LIMITS`, `SHARES`, `FILES_MAX`), so that all of them are reached.

*Invariants* that `Bounds` looks for. Connections, memory for frames that are not whole,
answers that were not taken, requests in work and polls never exceed their bounds, as
the sockets have it and not as the nodes count. When the strangers have gone nothing is
left of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from braidlog.errors import LogError
from braidlog.serving.admission import RESERVED_FILES, capacity
from braidlog.serving.intake import SMALL_BYTES
from braidlog.serving.shares import ShareBounds
from braidlog.wire.client import ClientConnection
from braidlog.wire.commands import DeleteCursor
from braidlog.wire.commands import encode as encode_command
from braidlog.wire.connection import VERSION_MAX, VERSION_MIN
from braidlog.wire.messages import Append, Execute, GetMetadata, Hello, Message, Read
from sim.errors import ViolationError
from sim.network import LinkSettings
from sim.world import Life, World

if TYPE_CHECKING:
    from sim.cluster.watch import Live
    from sim.network import Host

__all__ = [
    "CONNECTIONS_MAX",
    "FILES_MAX",
    "INCOMING_BYTES_MAX",
    "LINKS",
    "SHARES",
    "Bounds",
    "run_strangers",
]

CONNECTIONS_MAX: Final = 24
FILES_MAX: Final = RESERVED_FILES + 64
LINKS: Final = LinkSettings(window_bytes=32 << 10, socket_bytes=16 << 10)
"""What kernels take of answers that nobody reads; more is the node's."""
INCOMING_BYTES_MAX: Final = 300 << 10
SHARES: Final = ShareBounds(
    rate=600,
    burst=50,
    work_max=16,
    unread_max=96 << 10,
    unread_of_all_max=384 << 10,
    stalled_s=1.0,
)
_PLACES: Final = capacity(CONNECTIONS_MAX, FILES_MAX)
_LARGE_BYTES: Final = 200 << 10
_ANSWER_BYTES: Final = 16 << 10
"""One answer more than there is room for may be on its way."""
_CLOSING: Final = 4
"""Connections that end within this turn of the loop."""
_HELD: Final = 50
"""Connections that a host of strangers holds at a time."""
_STAYS_S: Final = (0.05, 4.0)
_FOR_EVER_S: Final = 3600.0
_PIECE_BYTES_MAX: Final = SMALL_BYTES
"""One read takes no more than a node takes of anybody before it asks for memory."""
_RETRY_S: Final = 0.05
_LATER: Final = 1 << 40

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def run_strangers(life: Life, seeds: Sequence[str]) -> None:
    """Hold connections until the storm is over; then all of them break at once."""
    strangers = _Strangers(life, seeds)
    async with asyncio.TaskGroup() as group:
        held = [group.create_task(strangers.come_and_go()) for _ in range(_HELD)]
        await life.world.calm.wait()
        for each in held:
            each.cancel()


class _Strangers:
    """One host with many connections."""

    def __init__(self, life: Life, seeds: Sequence[str]) -> None:
        self._random = life.random
        self._seeds = list(seeds)
        self._kinds: list[Callable[[ClientConnection, Streams], Awaitable[None]]]
        self._kinds = [
            self._unfinished,
            self._unfinished,
            self._polls,
            self._untaken,
            self._untaken,
            self._greedy,
            self._greedy,
        ]

    async def come_and_go(self) -> None:
        """Connect, do harm, and break off, again and again."""
        while True:
            host, _, port = self._random.choice(self._seeds).rpartition(":")
            with contextlib.suppress(OSError, EOFError, LogError):
                await self._hold(await asyncio.open_connection(host, int(port)))
            await asyncio.sleep(_RETRY_S)

    async def _hold(self, streams: Streams) -> None:
        """Use a connection for some time, or till the end."""
        stays_s = self._random.choice([self._random.uniform(*_STAYS_S), _FOR_EVER_S])
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(stays_s):
                    await self._live(streams)
        finally:
            streams[1].transport.abort()

    async def _live(self, streams: Streams) -> None:
        hello = Hello(VERSION_MIN, VERSION_MAX, "", 0, "", "stranger", b"")
        rules = ClientConnection(hello)
        greeting = b"".join(bytes(part) for part in rules.outgoing())
        if self._random.random() < 0.45:
            # Nothing at all, or half of what everybody says first.
            streams[1].write(greeting[: self._random.choice([0, 0, 1, 9, 20])])
            await asyncio.sleep(_FOR_EVER_S)
            return
        streams[1].write(greeting)
        rules.receive(await _read(streams))
        await self._random.choice(self._kinds)(rules, streams)
        await asyncio.sleep(_FOR_EVER_S)

    async def _unfinished(self, rules: ClientConnection, streams: Streams) -> None:
        """Send a large frame slowly, and never all of it."""
        rules.request(Append(1, 1, False), [bytes(1)])
        whole = bytearray(b"".join(rules.outgoing()))
        # The length comes first, and says more than there is.
        whole[:4] = _LARGE_BYTES.to_bytes(4, "little")
        whole += bytes(_LARGE_BYTES - 2 * len(whole))
        at = 0
        while at < len(whole):
            size = self._random.choice([20, 9_000, _PIECE_BYTES_MAX])
            streams[1].write(bytes(whole[at : at + size]))
            at += size
            await asyncio.sleep(self._random.uniform(0.0, 0.05))

    async def _polls(self, rules: ClientConnection, streams: Streams) -> None:
        """Wait for news many times over."""
        for _ in range(self._random.choice([1, 30, 200])):
            rules.request(GetMetadata(_LATER, 60_000))
        await _write(rules, streams)
        while True:
            await _read(streams)

    async def _untaken(self, rules: ClientConnection, streams: Streams) -> None:
        """Ask, and take no answer."""
        streams[1].transport.pause_reading()  # type: ignore[attr-defined]
        while True:
            for _ in range(self._random.choice([10, 100, 400])):
                rules.request(Read(self._random.randrange(1, 3), 1, False, 9000, 0))
            await _write(rules, streams)
            await asyncio.sleep(self._random.uniform(0.0, 0.5))

    async def _greedy(self, rules: ClientConnection, streams: Streams) -> None:
        """Do what is allowed, as fast as it is answered."""
        while True:
            for _ in range(self._random.choice([1, 5, 40])):
                rules.request(self._valid(), self._payload)
            await _write(rules, streams)
            while len(rules.unanswered) > self._random.choice([0, 20]):
                rules.receive(await _read(streams))

    def _valid(self) -> Message:
        random = self._random
        self._payload: list[bytes] = []
        drawn = random.random()
        if drawn < 0.02:
            self._payload = [encode_command(DeleteCursor(bytes(16), "none"))]
            return Execute(random.randbytes(16))
        if drawn < 0.3:
            leader = random.random() < 0.2
            return GetMetadata(linearizable=random.random() < 0.3, by_leader=leader)
        at, wait = random.randrange(1, 60), random.choice([0, 0, 1000])
        return Read(random.randrange(1, 3), at, random.random() < 0.5, 9000, wait)


async def _read(streams: Streams) -> bytes:
    data = await streams[0].read(1 << 16)
    if not data:
        raise EOFError
    return data


async def _write(rules: ClientConnection, streams: Streams) -> None:
    streams[1].writelines(memoryview(part) for part in rules.outgoing())
    await streams[1].drain()


class Bounds:
    """What each node may have at any moment, and what is left in the end."""

    def __init__(self, world: World) -> None:
        """Look at the nodes of a world."""
        self._network: Any = world.network

    def look(self, live: Live) -> None:
        """Compare a node with its bounds.

        Raises:
            ViolationError: it is beyond one.
        """
        for what, found, bound in self._found(live):
            if found > bound:
                raise ViolationError(f"{live.name}: {found} {what}, at most {bound}")

    def _found(self, live: Live) -> Sequence[tuple[str, int, int]]:
        sessions: Any = live.node.sessions
        open_: list[Any] = list(sessions._sessions)
        clients = [each for each in open_ if not each.connection.peer]
        places = _PLACES.strangers + _PLACES.clients + _PLACES.peers
        unread = sum(each.unread_bytes for each in clients)
        buffered = [each.connection.buffered_bytes for each in clients]
        large = sum(max(0, size - SMALL_BYTES) for size in buffered)
        polls: Any = live.node.requests.answers._polls
        own = sum(not isinstance(who, tuple) for who in polls._polls)
        work = max((len(each._working) for each in clients), default=0)
        late = SHARES.unread_of_all_max + len(clients) * _ANSWER_BYTES
        return (
            ("connections", self._sockets(live), places + _CLOSING),
            ("greeted clients", sessions.admission.clients, _PLACES.clients),
            ("bytes of frames that are not whole", large, INCOMING_BYTES_MAX),
            ("bytes of answers that were not taken", unread, late),
            ("polls of clients", own, len(clients)),
            ("requests in work of a connection", work, SHARES.work_max),
        )

    def _sockets(self, live: Live) -> int:
        """Return how many connections the process has that others made."""
        ends: list[Any] = list(self._network._servers)
        accepted = [end for end in ends if end._protocol is not None]
        return sum(end.host.name == live.name for end in accepted)

    def left(self, live: Live, strangers: Sequence[str]) -> str:
        """Return what a node still has of strangers; empty if nothing."""
        hosts: list[Host] = [self._network.host(name) for name in strangers]
        origins = {host.address for host in hosts}
        sessions: Any = live.node.sessions
        if any(each.origin in origins for each in sessions._sessions):
            return f"{live.name} has connections of strangers"
        known: set[Any] = set(sessions._sessions)
        shares, intake = sessions.shares, sessions.intake
        polls: Any = live.node.requests.answers._polls
        asking = {who[0] if isinstance(who, tuple) else who for who in polls._polls}
        holding = {
            "polls": asking,
            "frames": set(intake._unfinished),
            "requests": {*shares._line, *shares._paced, *shares._held},
            "answers": set(shares._unread),
        }
        for what, holders in holding.items():
            if holders - known:
                return f"{live.name} has {what} of connections that have gone"
        return ""
