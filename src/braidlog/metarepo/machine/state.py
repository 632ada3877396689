"""The replicated state: what every node of the group has after the same entries.

*Invariants.* GLSNs of a log are dense: a cut begins behind the one before. Stream
numbers rise and are never used again. An epoch of a stream is given out once. At least
one replica of a stream is in `holders`: it has everything that is committed on its
disk.
"""

from __future__ import annotations

from typing import Final

import msgspec

from braidlog.errors import CorruptionError
from braidlog.wire.commands import OfferReplicas
from braidlog.wire.members import nodes_of
from braidlog.wire.messages import LogCut, LogKind, Spread, StreamStatus
from braidlog.wire.tables import TableInfo

NODES_MAX: Final = 256
LOGS_MAX: Final = 4096
STREAMS_MAX: Final = 32768
STREAMS_OF_LOG_MAX: Final = 1024
REPLICAS_MAX: Final = 9
CURSORS_MAX: Final = 1024
"""Cursors of one log."""
NAME_BYTES_MAX: Final = 255
OPTIONS_BYTES_MAX: Final = 4096
EPOCHS_MAX: Final = 64
"""Earlier epochs of a stream that are remembered."""
HISTORY_CUTS_MAX: Final = 4096
"""Cuts of a log that are kept for a replica that is behind."""
HISTORY_CUTS_MIN: Final = 32
"""Cuts that are kept although all replicas have them on their disks: what a replica
lacks in memory is not reported."""
CALLS_MAX: Final = 4096
"""Results that are remembered for repeated calls."""
CALL_BYTES_MAX: Final = 1 << 20
"""Bytes of those results: that of a log with many streams is long."""


class NodeState(msgspec.Struct, array_like=True):
    """A registered node."""

    node: int
    address: str
    incarnation: int
    draining: bool = False
    voter: bool | None = None
    """Whether it has to be a member of the group; None: as it is."""
    identity: bytes = b""
    """Identity of its directory; empty: not known yet, the next one that comes."""
    bound: int = 0
    """The entry that gave the id to this directory."""
    former: tuple[bytes, ...] = ()
    """Identities of directories that were given up: they never count again."""
    readmitting: bool = False
    """Whether an operator gave the directory up: all it held is taken off it."""
    features: int = 0
    """`Feature`s that its version knows."""


class StreamState(msgspec.Struct, array_like=True):
    """A stream and its current epoch."""

    stream: int
    log: bytes
    replicas: tuple[int, ...]
    learners: tuple[int, ...] = ()
    epoch: int = 1
    status: StreamStatus = StreamStatus.RUNNING
    start: int = 1
    committed: int = 1
    """First LLSN that is not committed."""
    last_version: int = 0
    """The last cut that gave it something."""
    epochs: tuple[tuple[int, int], ...] = ()
    version: int = 0
    """Last cut of the log when the epoch began."""
    high_watermark: int = 0
    """Last GLSN of the log when the epoch began."""
    holders: tuple[int, ...] = ()
    """Replicas that are known to hold everything committed."""
    move: tuple[int, int] | None = None
    """(source, target) of a move that is under way."""
    changed: int = 0
    """Index of the last change of what its replicas have to know."""
    keep: int = 0
    """First GLSN that is young enough, as the primary said last; 0: not known."""
    sizes: tuple[tuple[int, int], ...] = ()
    """(GLSN, bytes from there on), as the primary said last."""


class ShardPlace(msgspec.Struct, array_like=True):
    """Where a shard is, and what its leader said of it last.

    Members are numbered by `braidlog.wire.members`.
    """

    stream: int
    """Its number among the streams of all logs."""
    log: bytes
    voters: tuple[int, ...]
    """Who votes, as a leader said last; before any did, who founds the group."""
    leader: int = 0
    """Node; 0: nobody has said yet that he leads."""
    term: int = 0
    """Term of that leader."""
    wanted: tuple[int, ...] = ()
    """Who should vote; the first should lead until somebody does."""
    plan: int = 0
    """Number of that decision; 0: the first."""
    kept: tuple[int, ...] = ()
    """Who may hold something that counts: nobody else belongs to the group, or will."""
    generation: int = 0
    """The greatest of a member so far."""
    epoch: int = 0
    """Index of the entry that gave the group its members, as a leader said last."""
    settled: bool = True
    """Whether a leader has said that the group is as it should be."""
    lost: tuple[int, ...] = ()
    """Members whose directory was given up."""
    damaged: tuple[int, ...] = ()
    """Members of whose log something cannot be read."""

    def __post_init__(self) -> None:
        """Begin with the founders."""
        if not self.wanted:
            self.wanted = self.kept = self.voters

    @property
    def nodes(self) -> tuple[int, ...]:
        """Return the nodes on which something of it may be."""
        return nodes_of(self.kept)


class CursorState(msgspec.Struct, array_like=True):
    """A reader's stored position."""

    position: int
    pin: bool
    lease: int
    touched: int


class LogState(msgspec.Struct, array_like=True):
    """A log, and the cuts that replicas may still need."""

    log: bytes
    name: str
    replication: int
    min_replicas: int
    options: bytes
    created: int
    streams: tuple[int, ...]
    version: int = 0
    high_watermark: int = 0
    trim: int = 1
    history: list[LogCut] = msgspec.field(default_factory=list)
    cursors: dict[str, CursorState] = msgspec.field(default_factory=dict)
    revision: int = 0
    """The entry that changed a setting last; 0: none did."""
    spread: Spread | None = None
    """None as long as it has the streams that it was created with."""
    kind: LogKind = LogKind.STREAMS


class FaultState(msgspec.Struct, array_like=True):
    """The configuration of the cluster, as the fault logs of the nodes record it."""

    epoch: int
    sequence: int
    members: tuple[int, ...]
    failed: tuple[int, ...] = ()
    viable: tuple[int, ...] = ()
    """Members that are not listed and recorded themselves as complete."""
    since: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    """The configuration from which on a record as viable counts, by node."""
    awaited: tuple[int, ...] = ()
    """Nodes that have to say what they hold before a rescued cluster goes on."""
    offers: dict[int, dict[int, OfferReplicas]] = msgspec.field(default_factory=dict)
    """What they said so far, by node and part."""
    seed: bytes = b""
    """`State` of the repository before the rescue, until they have said it."""
    complete: bool = False
    """Whether nothing that the one before answered is missing in the seed."""

    @property
    def number(self) -> tuple[int, int]:
        """Return epoch and sequence, in the order in which they are compared."""
        return self.epoch, self.sequence


class State(msgspec.Struct, array_like=True):
    """Everything."""

    index: int = 0
    """The last entry that is in it."""
    revision: int = 0
    """The last entry that changed more than a cut does."""
    nodes: dict[int, NodeState] = msgspec.field(default_factory=dict)
    removed: tuple[int, ...] = ()
    logs: dict[bytes, LogState] = msgspec.field(default_factory=dict)
    streams: dict[int, StreamState] = msgspec.field(default_factory=dict)
    stream_next: int = 1
    reserved_number: int = 1
    """Not used; a state is stored as an array, where what follows keeps its place."""
    reserved_table: dict[int, int] = msgspec.field(default_factory=dict)
    calls: dict[bytes, bytes] = msgspec.field(default_factory=dict)
    """Results of commands that had an identity, in the order of execution."""
    faults: FaultState | None = None
    """None as long as nobody keeps fault logs."""
    orphans: tuple[int, ...] = ()
    """Streams that a rescue found only in part: they stay where they are."""
    tables: dict[bytes, TableInfo] = msgspec.field(default_factory=dict)
    """Replaced as a whole, never changed in place."""
    shards: dict[int, ShardPlace] = msgspec.field(default_factory=dict)
    """By the number of the stream; those are not in `streams`: no cut has them."""


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(State)


def encode_state(state: State) -> bytes:
    """Return the bytes of a state."""
    return _encoder.encode(state)


def decode_state(data: bytes | memoryview) -> State:
    """Read a state.

    Raises:
        CorruptionError: it is none.
    """
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        msg = f"the snapshot of the metadata repository cannot be read: {error}"
        raise CorruptionError(msg) from error
