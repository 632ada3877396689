"""Where requests go: the client's view of the cluster's metadata.

Theory of operation: `Routes` is made of one `Metadata` answer and never changes; the
shell replaces it as a whole by one with a greater index. A record with a key goes to
the stream that the hash of its key names, whatever that stream's state is: it waits for
a sealed one, because elsewhere it could overtake an earlier record of the same key. A
record without a key goes to any running stream.

The hash is the CRC-32 of zlib of the key, modulo the number of streams that take keys.
As long as they were not changed, these are the streams that the log had when it was
created, in the order of their numbers; then the metadata name them (`Spread`). So every
client that knows the generation of the spread agrees.

Invariants: the index of the routes in use never falls; a key maps to one stream within
a generation, and the id of a producer to one for as long as the log exists.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import reduce
from operator import and_
from typing import Final

from braidlog.errors import (
    InvalidArgumentError,
    NotFoundError,
    NotReadyError,
    OlderNodesError,
)
from braidlog.suggestions import does_not_exist
from braidlog.wire.messages import (
    Feature,
    LogInfo,
    Metadata,
    NodeInfo,
    StreamInfo,
    StreamStatus,
)
from braidlog.wire.spread import KEY_STREAMS, first_streams

__all__ = [
    "KEY_STREAMS",
    "PORT",
    "RoundRobin",
    "Routes",
    "parse_seeds",
    "replicas_there",
    "stream_index",
]

PORT: Final = 7400
"""Where a node listens if nothing else is said."""

_PORT_MAX: Final = (1 << 16) - 1
# Names of logs in an error.


def parse_seeds(seeds: str | Iterable[str]) -> tuple[str, ...]:
    """Return the addresses ``host:port`` in ``seeds``, which commas separate.

    Raises:
        TypeError: one is no ``str``.
        InvalidArgumentError: there is none, or one is not an address.
    """
    try:
        parts = seeds.split(",") if isinstance(seeds, str) else list(seeds)
    except TypeError:
        msg = f"addresses must be a str or a list of them, not {type(seeds).__name__}"
        raise TypeError(msg) from None
    found = tuple(dict.fromkeys(map(_address, parts)))
    if not found:
        raise InvalidArgumentError(
            "no address was given: pass the address of at least one node, such "
            f"as 'host:{PORT}'"
        )
    return found


def _address(seed: object) -> str:
    if not isinstance(seed, str):
        raise TypeError(f"an address must be a str such as 'host:{PORT}', not {seed!r}")
    text = seed.strip()
    if "/" in text:
        msg = f"{text!r} is not an address: write host:port, such as 'localhost:{PORT}'"
        raise InvalidArgumentError(f"{msg}, without a scheme or path")
    if text.split() != [text] and text:
        msg = f"{text!r} is not an address: write commas between addresses"
        raise InvalidArgumentError(msg)
    host, colon, port = text.rpartition(":")
    # An IPv6 address has colons of its own: only in brackets can a port follow it.
    if not colon or "]" in port or (":" in host and not host.endswith("]")):
        host, port = text, str(PORT)
    if not host or not port.isdecimal() or not 0 < int(port) <= _PORT_MAX:
        msg = f"{text!r} is not an address: write host:port, such as 'localhost:{PORT}'"
        raise InvalidArgumentError(msg)
    try:
        host.encode("idna")
    except UnicodeError as error:
        msg = f"{text!r} is not an address: its host name is invalid ({error})"
        raise InvalidArgumentError(msg) from error
    return f"{host}:{port}"


def stream_index(key: bytes, streams: int) -> int:
    """Return the index of the key's stream among ``streams``."""
    return zlib.crc32(key) % streams


def replicas_there(stream: StreamInfo, nodes: Iterable[NodeInfo]) -> int:
    """Return how many replicas of a stream are in sync.

    Nodes of earlier builds do not say it: then those on live nodes count.
    """
    if stream.in_sync is not None:
        return len(stream.in_sync)
    alive = {node.node for node in nodes if node.alive}
    return len(alive & set(stream.replicas))


class Routes:
    """Nodes, logs and streams as of one index of the metadata repository."""

    def __init__(self, metadata: Metadata) -> None:
        """Index the metadata."""
        self.metadata = metadata
        self.index = metadata.index
        self._nodes = {node.node: node for node in metadata.nodes}
        said = (Feature(node.features) for node in metadata.nodes)
        self.features = reduce(and_, said, ~Feature(0))
        """What all nodes know, alive or not."""
        self._logs = {info.log: info for info in metadata.logs}
        self._names = {info.name: info for info in metadata.logs}
        self._streams = {
            stream.stream: stream for info in metadata.logs for stream in info.streams
        }
        # Worked out when first asked for: each append asks.
        self._keyed: dict[bytes, tuple[int, ...]] = {}
        self._running: dict[bytes, tuple[int, ...]] = {}

    @property
    def nodes(self) -> tuple[NodeInfo, ...]:
        """All nodes of the cluster."""
        return self.metadata.nodes

    def names(self) -> list[str]:
        """Return the names of all logs, sorted."""
        return sorted(self._names)

    def named(self, name: str) -> LogInfo:
        """Return the log of that name.

        Raises:
            NotFoundError: there is none.
        """
        if (info := self._names.get(name)) is not None:
            return info
        raise NotFoundError(does_not_exist("log", name, self._names))

    def log(self, log: bytes) -> LogInfo:
        """Return the log of that identity.

        Raises:
            NotFoundError: it was deleted.
        """
        if (info := self._logs.get(log)) is None:
            raise NotFoundError(f"the log with identity {log.hex()} was deleted")
        return info

    def stream(self, stream: int) -> StreamInfo:
        """Return a stream.

        Raises:
            NotFoundError: its log was deleted, or it was removed and is trimmed.
        """
        if (info := self._streams.get(stream)) is None:
            msg = f"stream {stream} does not exist any more: its log was deleted"
            raise NotFoundError(f"{msg}, or it was removed and all of it is trimmed")
        return info

    def older(self, features: int) -> tuple[int, ...]:
        """Return the nodes, alive or not, that do not know all of some features."""
        return tuple(n.node for n in self.nodes if features & ~n.features)

    def require(self, features: int) -> None:
        """Refuse what some node, alive or not, could not store.

        Raises:
            OlderNodesError: there is one.
        """
        if older := self.older(features):
            nodes, one = ", ".join(map(str, older)), len(older) == 1
            raise OlderNodesError(
                f"a value is null, but node{'' if one else 's'} {nodes} of the cluster "
                f"{'is' if one else 'are'} of a version without null values",
                nodes=older,
            )

    def address(self, node: int) -> str | None:
        """Return the address of a node, None if it is not of the cluster."""
        info = self._nodes.get(node)
        return None if info is None else info.address

    def primary(self, stream: int) -> int | None:
        """Return the node that takes appends of a stream; None while nobody does."""
        info = self.stream(stream)
        if info.status is not StreamStatus.RUNNING or not info.replicas:
            return None
        return info.replicas[0]

    def next_member(self, stream: int, node: int | None) -> int:
        """Return who may lead a shard if a node does not; 0 of other streams."""
        info = self.stream(stream)
        if info.members is None or not info.replicas:
            return 0
        at = info.replicas.index(node) + 1 if node in info.replicas else 0
        return info.replicas[at % len(info.replicas)]

    def readers(self, stream: int) -> tuple[int, ...]:
        """Return nodes that can serve what is committed, the best first.

        Live ones come first, backups before the primary, which has more to do; replicas
        before learners, which may be far behind.
        """
        info = self.stream(stream)
        nodes = (*info.replicas[1:], *info.replicas[:1], *info.learners)
        return tuple(sorted(nodes, key=lambda node: not self._is_alive(node)))

    def _is_alive(self, node: int) -> bool:
        info = self._nodes.get(node)
        return info is not None and info.alive

    def anyone(self) -> tuple[int, ...]:
        """Return all nodes in the order in which to ask them: leader, live, others."""
        leader = self.metadata.leader
        ranked = sorted(
            self.nodes,
            key=lambda info: (info.node != leader, not info.alive, info.node),
        )
        return tuple(info.node for info in ranked)

    def running(self, log: bytes) -> tuple[int, ...]:
        """Return the streams of a log that take appends without a key, by number."""
        if (running := self._running.get(log)) is None:
            spread = self.log(log).spread
            running = self._running[log] = tuple(
                sorted(
                    info.stream
                    for info in self.log(log).streams
                    if info.status is StreamStatus.RUNNING
                    and (spread is None or info.stream in spread.keyed)
                )
            )
        return running

    def generation(self, log: bytes) -> int:
        """Return how often the streams of a log were changed; 0 of a deleted one."""
        found = self._logs.get(log)
        return found.spread.generation if found and found.spread else 0

    def removed(self, log: bytes) -> dict[int, int]:
        """Return the streams that are sealed for good, and the last GLSN of each."""
        spread = self.log(log).spread
        return {} if spread is None else dict(spread.removed)

    def key_streams(self, log: bytes) -> tuple[int, ...]:
        """Return the streams that keys are spread over, in the order they count in."""
        if (keyed := self._keyed.get(log)) is None:
            keyed = self._keyed[log] = _key_streams(self.log(log))
        if not keyed:
            raise NotReadyError(f"log {self.log(log).name!r} has no stream yet")
        return keyed

    def stream_of(self, log: bytes, key: bytes) -> int:
        """Return the stream of a key, running or not."""
        keyed = self.key_streams(log)
        return keyed[stream_index(key, len(keyed))]

    def stream_of_producer(self, log: bytes, producer: int) -> int:
        """Return the stream of a producer that a caller brings, by its id.

        It stays when the streams of the log are changed: another one would not know
        what the producer has stored.
        """
        spread = self.log(log).spread
        streams = self.key_streams(log) if spread is None else spread.producers
        return streams[stream_index(producer.to_bytes(8, "little"), len(streams))]


def _key_streams(info: LogInfo) -> tuple[int, ...]:
    if info.spread is not None:
        return info.spread.keyed
    try:
        return first_streams((each.stream for each in info.streams), info.options)
    except (ValueError, TypeError, AttributeError) as error:
        msg = f"the options of log {info.name!r} cannot be read: {error}"
        raise InvalidArgumentError(msg) from error


class RoundRobin:
    """Takes turns among streams, and stays with one until told to go on."""

    def __init__(self) -> None:
        """Begin with the first."""
        self._current = 0

    def current(self, streams: tuple[int, ...]) -> int:
        """Return the stream whose turn it is; the next one if it is not there."""
        for stream in streams:
            if stream >= self._current:
                self._current = stream
                return stream
        self._current = streams[0]
        return self._current

    def advance(self, stream: int) -> None:
        """Go on behind ``stream``, if it is its turn."""
        if stream == self._current:
            self._current = stream + 1
