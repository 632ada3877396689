"""What the processes of a cluster say to one another.

A message is a frozen struct with a number (`KIND`) that is never reused. Its fields go
over the wire as one MessagePack array in the order of this file: fields may be added at
the end with a default, never moved or removed. Record batches are not fields: they are
the payload of a frame, as encoded by the core, one behind the other; `sizes` says where
each ends.

Sources: reports, cuts and commit contexts are Varlog's; epochs in every message, the
pulled synchronization and the one-step seal are ours (`docs/design/0006-cluster.md`).
"""
# One file: the messages of the protocol are read side by side.

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

from braidlog.wire.application import (
    AppStatus,
    Call,
    CallResult,
    FetchSnapshot,
    GetAppStatus,
    Promote,
    Resize,
    SnapshotPart,
    SnapshotProgress,
    TakeSnapshot,
)
from braidlog.wire.base import LogId, Message, Number, Value
from braidlog.wire.rows import (
    DivideTable,
    FetchRun,
    FlushTable,
    GetRows,
    GetTable,
    PinnedFile,
    PinnedRuns,
    PinRuns,
    ReleaseRows,
    Rows,
    RunPart,
    ScanRows,
    TableCheck,
    TableParts,
    TableStatus,
    UnpinRuns,
    VerifyTable,
)
from braidlog.wire.tables import TableInfo

__all__ = [
    "FEATURES",
    "FEATURES_OF_TABLES",
    "MESSAGES",
    "Acquire",
    "Acquired",
    "AppStatus",
    "Append",
    "AppendTo",
    "Appended",
    "Call",
    "CallResult",
    "Challenge",
    "Commit",
    "Configure",
    "Consensus",
    "DivideTable",
    "Entries",
    "Execute",
    "Executed",
    "Failed",
    "Faults",
    "Feature",
    "Fetch",
    "FetchRun",
    "FetchSnapshot",
    "FlushTable",
    "GetAppStatus",
    "GetLogEnd",
    "GetMetadata",
    "GetRows",
    "GetShardEnd",
    "GetTable",
    "GetTimestamps",
    "Goodbye",
    "Hello",
    "LogCut",
    "LogEnd",
    "LogId",
    "LogInfo",
    "LogKind",
    "Message",
    "Metadata",
    "NodeInfo",
    "Number",
    "PinRuns",
    "Ping",
    "PinnedFile",
    "PinnedRuns",
    "Place",
    "Pong",
    "Promote",
    "Proof",
    "Read",
    "Recorded",
    "Records",
    "Release",
    "ReleaseRows",
    "Reload",
    "Reloaded",
    "Replicate",
    "Report",
    "Resize",
    "Rows",
    "Run",
    "RunPart",
    "ScanRows",
    "ShardEnd",
    "SnapshotPart",
    "SnapshotProgress",
    "Spread",
    "StreamConfig",
    "StreamInfo",
    "StreamReport",
    "StreamRun",
    "StreamStatus",
    "TableCheck",
    "TableParts",
    "TableStatus",
    "TakeSnapshot",
    "Timestamps",
    "UnpinRuns",
    "Value",
    "VerifyTable",
    "Welcome",
]


class Feature(IntFlag):
    """What a node knows that earlier versions do not.

    What all nodes have to know is let in only when all of them say that they do.
    """

    TABLES = 1
    """Commands and metadata about tables."""
    NULL_VALUES = 2
    """A value may be null, of a record or of a header."""
    TABLE_TASKS = 4
    """Tables that begin behind the first record of their log, `FlushTable`,
    `VerifyTable`."""
    LOG_ENDS = 8
    """`GetLogEnd`."""
    RELEASES = 16
    """`ReleaseRows`."""
    TABLE_PARTS = 32
    """`DivideTable`, and positions that are kept for whoever reads there."""
    LIFE_SIGNS = 64
    """As the leader, it takes a message of the group for a sign of life."""
    CORE_SOCKETS = 128
    """Its core reads and writes its sockets. Nobody has to know it, but who looks."""
    STREAM_CHANGES = 256
    """`SetStreams`, `Spread`, and the revision that a command expects."""
    RELOADS = 512
    """`Reload`."""
    SHARDS = 1024
    """Logs that one Raft group replicates."""
    SHARD_PLANS = 2048
    """`PlaceShard`, and what a leader of a shard says of its members."""
    TIMESTAMPS = 4096
    """`GetTimestamps`."""


FEATURES: Final = (
    Feature.NULL_VALUES
    | Feature.LOG_ENDS
    | Feature.LIFE_SIGNS
    | Feature.STREAM_CHANGES
    | Feature.RELOADS
    | Feature.SHARDS
    | Feature.SHARD_PLANS
    | Feature.TIMESTAMPS
)
"""What every node of this version knows."""
FEATURES_OF_TABLES: Final = (
    Feature.TABLES | Feature.TABLE_TASKS | Feature.RELEASES | Feature.TABLE_PARTS
)
"""What one knows besides that keeps tables."""


class LogKind(IntEnum):
    """How the records of a log are replicated, and who orders them."""

    STREAMS = 0
    """Streams: all replicas have a record, and the metadata repository orders them."""
    SHARD = 1
    """One Raft group: a majority has a record, and its leader orders them."""


class StreamStatus(IntEnum):
    """What the metadata repository has decided for a stream."""

    RUNNING = 1
    SEALED = 2
    """No cut will commit anything until it is unsealed."""


class Run(Value, frozen=True, array_like=True):
    """Consecutive records of one stream that got consecutive places in the log."""

    llsn_begin: Number
    glsn_begin: Number
    length: Number


class StreamRun(Value, frozen=True, array_like=True):
    """What one cut gave to one stream."""

    stream: Number
    llsn_begin: Number
    glsn_begin: Number
    length: Number
    epoch: Number = 0
    """The epoch of the stream that was cut: a replica that missed the end of its own
    would take the run for its uncommitted tail otherwise. Never 0 in a cut."""


class LogCut(Value, frozen=True, array_like=True):
    """One cut of one log: number `version`, and where the log ended with it.

    Runs of streams that got nothing are left out; the high watermark tells them that
    the log went on without them.
    """

    log: LogId
    version: Number
    high_watermark: Number
    """Last GLSN of the cut."""
    runs: tuple[StreamRun, ...] = ()


class Spread(Value, frozen=True, array_like=True):
    """Which streams of a log take what, since they were changed first.

    Without one the log has the streams that it was created with.
    """

    generation: Number
    """Rises with each change. Who knows an earlier one sends no key anywhere."""
    keyed: tuple[Number, ...]
    """Streams over which keys are spread, in the order in which they count."""
    producers: tuple[Number, ...]
    """Those over which the producers are that callers bring. They never change, because
    what a producer has stored is known in its stream only."""
    removed: tuple[tuple[Number, Number], ...] = ()
    """(stream, last GLSN that it may have) of those that are sealed for good."""


class Place(Value, frozen=True, array_like=True):
    """Where a stream is in the `Spread` of its log: all of them make it up again."""

    generation: Number
    key: Number
    """Its place among those for keys, from 1 on; 0: it is none of them."""
    keys: Number
    """How many those are."""
    producer: Number
    """The same among those for producers."""


class StreamReport(Value, frozen=True, array_like=True):
    """What one replica holds on its disk."""

    stream: Number
    epoch: Number
    """The epoch that the replica has durably entered."""
    version: Number
    """The last cut whose commit context is durable here."""
    committed: Number
    """First LLSN that is not committed here, in memory."""
    end: Number
    """First LLSN that is not durable here. Everything before it is."""
    state: Number
    """A `braidlog.logstream.ReplicaState`."""
    damaged: bool = False
    """Some of its records cannot be read; it serves the others."""


class StreamConfig(Value, frozen=True, array_like=True):
    """What a replica has to be from now on."""

    stream: Number
    log: LogId
    name: str
    """Name of the log."""
    epoch: Number
    status: StreamStatus
    replicas: tuple[Number, ...]
    """Node ids, the primary first. All hold what is committed, or fetch it first."""
    learners: tuple[Number, ...]
    """Nodes that copy what is committed and take no part in cuts."""
    start: Number
    """First LLSN of the epoch: what lies behind it from earlier epochs never was."""
    epochs: tuple[tuple[Number, Number], ...]
    """(epoch, first LLSN) of earlier epochs, rising; the oldest may be forgotten."""
    version: Number
    high_watermark: Number
    """Last cut of the log when the epoch began, and its last GLSN."""
    trim: Number
    """First GLSN that is kept."""
    options: bytes
    """Options of the log, as `braidlog.store.retention` encodes them."""
    replication: Number = 0
    """What a rescue has to know of the log, with the next two."""
    min_replicas: Number = 0
    created: Number = 0
    features: Number = 0
    """`Feature`s that all nodes of the cluster know."""
    place: Place | None = None
    """For a rescue, too: None as long as the streams of the log were not changed."""


class NodeInfo(Value, frozen=True, array_like=True):
    """A node of the cluster."""

    node: Number
    address: str
    """host:port."""
    alive: bool
    voter: bool
    """Whether it is a member of the metadata repository."""
    draining: bool = False
    identity: bytes = b""
    """Identity of the directory of the node; empty: of the next one that comes."""
    readmitting: bool = False
    """Whether it lost its directory, and all it held is being taken off it."""
    silent_ms: Number = 0
    """How long ago a node that is not alive was heard last; 0: not known."""
    features: Number = 0
    """`Feature`s that it knows; 0 of an earlier version."""
    slow_ms: Number = 0
    """For how long it has been slow, as the leader knows; 0: it is not."""
    incarnation: Number = 0
    """Which start of it is registered; 0: an earlier version does not say."""


class ShardMembers(Value, frozen=True, array_like=True):
    """Who belongs to a shard; members are numbered by `braidlog.wire.members`."""

    plan: Number
    """Number of the decision on who should belong to it; 0: the first."""
    wanted: tuple[Number, ...]
    """Who should vote."""
    voters: tuple[Number, ...]
    """Who votes, as a leader said last."""
    kept: tuple[Number, ...]
    """Who may hold something of it that counts."""
    lost: tuple[Number, ...] = ()
    """Members whose directory was given up: they are never made again."""
    settled: bool = True
    """Whether a leader has said that the group is as it should be."""


class StreamInfo(Value, frozen=True, array_like=True):
    """A stream as clients see it."""

    stream: Number
    epoch: Number
    status: StreamStatus
    replicas: tuple[Number, ...]
    learners: tuple[Number, ...]
    committed: Number
    """First LLSN not committed."""
    in_sync: tuple[Number, ...] | None = None
    """Replicas that live and are in the epoch; None: the leader was not asked."""
    damaged: tuple[Number, ...] = ()
    """Replicas that lost records, as far as the leader knows."""
    lacking_ms: Number = 0
    """For how long the stream has lacked a replica, as far as the leader knows."""
    move: tuple[Number, Number] | None = None
    """(source, target) of a move that is under way."""
    lacking_why: str = ""
    """What the stream lacks in the words of the leader."""
    members: ShardMembers | None = None
    """Of a shard."""


class LogInfo(Value, frozen=True, array_like=True):
    """A log as clients see it."""

    log: LogId
    name: str
    streams: tuple[StreamInfo, ...]
    version: Number
    high_watermark: Number
    trim: Number
    replication: Number
    min_replicas: Number
    options: bytes
    created: Number
    """Microseconds since the Unix epoch."""
    revision: Number = 0
    """Entry that changed a setting last; 0: none did."""
    spread: Spread | None = None
    kind: LogKind = LogKind.STREAMS


# --- connection --------------------------------------------------------------


class Hello(Message, frozen=True, array_like=True):
    """First frame of whoever connects."""

    KIND = 1
    version_min: Number
    version_max: Number
    cluster: str
    """Name of the cluster; empty for any."""
    node: Number = 0
    """Node id of a peer, 0 for clients."""
    token: str = ""
    software: str = ""
    identity: bytes = b""
    """Identity of the directory of a peer, 16 bytes; empty for clients."""
    bound: Number = 0
    """Entry of the repository that gave the id to that directory; 0: not known."""
    nonce: bytes = b""
    """Of a peer that proves its token and does not send it: 32 random bytes."""
    key: bytes = b""
    """Which token that is, see `braidlog.wire.proof`."""


class Welcome(Message, frozen=True, array_like=True):
    """Answer: the version that is spoken from here on, and the credit."""

    KIND = 2
    version: Number
    cluster: str
    node: Number
    role: str
    """`read`, `append` or `admin`: what the token allows."""
    window_bytes: Number
    """Bytes of requests that may be unanswered on this connection."""
    frame_bytes_max: Number
    identity: bytes = b""
    """Identity of the directory of the node."""
    bound: Number = 0


class Goodbye(Message, frozen=True, array_like=True):
    """Nothing follows; requests that were not answered may be sent elsewhere."""

    KIND = 3
    reason: str = ""


class Ping(Message, frozen=True, array_like=True):
    """Ask for a `Pong`."""

    KIND = 4
    sent: float = 0.0


class Pong(Message, frozen=True, array_like=True):
    """Answer to a `Ping`, with its `sent`."""

    KIND = 5
    sent: float = 0.0


class Failed(Message, frozen=True, array_like=True):
    """Answer: the error, as `braidlog.wire.failures` encodes it."""

    KIND = 6
    code: Number
    message: str
    details: dict[str, int | str]
    unknown: bool = False
    """Whether the outcome of the request is unknown."""


class Challenge(Message, frozen=True, array_like=True):
    """Answer to a `Hello` with a nonce: the node proves that it knows the token."""

    KIND = 7
    node: Number
    nonce: bytes
    proof: bytes


class Proof(Message, frozen=True, array_like=True):
    """Answer to a `Challenge` that is right: the token, under a mask."""

    KIND = 8
    token: bytes


# --- clients -----------------------------------------------------------------


class Append(Message, frozen=True, array_like=True):
    """Append the batch in the payload to a stream; goes to its primary.

    The batch names its producer, its epoch and sequence; an `epoch` of 0 is any.
    """

    KIND = 16
    stream: Number
    epoch: Number
    repeat: bool = False
    """An attempt before may have stored it: of a forgotten producer it is refused."""


class Appended(Message, frozen=True, array_like=True):
    """Answer: the batch is durable on all replicas and has its place."""

    KIND = 17
    llsn: Number
    glsn: Number
    count: Number
    version: Number


class Read(Message, frozen=True, array_like=True):
    """Read committed records of one stream from `begin`, which is a GLSN or LLSN."""

    KIND = 18
    stream: Number
    begin: Number
    by_glsn: bool
    bytes_max: Number
    wait_ms: Number
    """How long to wait if there is nothing yet."""


class Records(Message, frozen=True, array_like=True):
    """Answer: whole batches in the payload, which may begin before what was asked for.

    Every record of the stream whose GLSN is at most `complete` and not before the first
    batch is in it or before `next`: a merge of streams may go on to `complete`.
    """

    KIND = 19
    stream: Number
    runs: tuple[Run, ...]
    llsns: tuple[Number, ...]
    """First LLSN of each batch."""
    sizes: tuple[Number, ...]
    complete: Number
    first: Number
    """First LLSN that this replica has."""
    next: Number
    """LLSN to go on from."""


class GetMetadata(Message, frozen=True, array_like=True):
    """Ask for the metadata if it is newer than `known`, waiting for so long."""

    KIND = 20
    known: Number = 0
    wait_ms: Number = 0
    linearizable: bool = False
    by_leader: bool = False
    """The leader answers: it alone knows which nodes live and which replicas are in
    sync. Other nodes pass the request on."""


class Metadata(Message, frozen=True, array_like=True):
    """Answer: nodes and logs as of `index`."""

    KIND = 21
    index: Number
    leader: Number
    cluster: str
    nodes: tuple[NodeInfo, ...]
    logs: tuple[LogInfo, ...]
    tables: tuple[TableInfo, ...] = ()
    settled: bool = True
    """False after a rescue, until nodes have said what they hold: something that is not
    listed may exist."""


class Execute(Message, frozen=True, array_like=True):
    """Execute a command of the metadata repository; the payload is the command."""

    KIND = 22
    call: bytes = b""
    """Random identity: a repeated call returns its first result. Empty: none."""


class Executed(Message, frozen=True, array_like=True):
    """Answer: the result in the payload, applied at `index`."""

    KIND = 23
    index: Number


class GetLogEnd(Message, frozen=True, array_like=True):
    """Ask where a log ends, as of some moment after this.

    For who reads its tables: all metadata would be large where there are many logs.
    Needs `Feature.LOG_ENDS`.
    """

    KIND = 24
    log: LogId
    known: Number = 0
    """Index of the metadata that the client has."""


class LogEnd(Message, frozen=True, array_like=True):
    """Answer: where it ends, as of `index`."""

    KIND = 25
    index: Number
    high_watermark: Number
    """Its last GLSN."""
    tables: tuple[TableInfo, ...] | None = None
    """The tables that follow it; None if nothing was decided since `known`."""


class Reload(Message, frozen=True, array_like=True):
    """Ask a node to read its settings, tokens and certificates again.

    It goes to the node that is meant, and is not passed on. Needs `Feature.RELOADS`.
    """

    KIND = 26


class Reloaded(Message, frozen=True, array_like=True):
    """Answer: what the node read is in force."""

    KIND = 27
    changed: tuple[str, ...]
    """What differs from before, for people."""
    ignored: tuple[str, ...] = ()
    """Settings that differ and take a restart, such as `[node] listen`."""
    warnings: tuple[str, ...] = ()
    closed: Number = 0
    """Connections that are closed, for their tokens do not allow them any more."""


class AppendTo(Message, frozen=True, array_like=True):
    """Append the batch in the payload to a shard, as a writer or at a position.

    Its leader answers with `Appended`.
    """

    KIND = 80
    stream: Number
    writer: Number = 0
    """Epoch of the writer that owns the log; 0: nobody does."""
    expected: Number = 0
    """Position that the first record must get; 0: any."""
    repeat: bool = False
    """As in `Append`."""


class Acquire(Message, frozen=True, array_like=True):
    """Become the only writer of a shard; its leader answers with `Acquired`."""

    KIND = 81
    stream: Number
    owner: str
    ttl_ms: Number = 0
    """How long the writer may be silent before others may take over; 0: for ever."""
    expected: int | None = None
    """The epoch that is known to be the latest, which is taken over."""
    force: bool = False


class Acquired(Message, frozen=True, array_like=True):
    """Answer: appends need this epoch from here on; `next` is the next position."""

    KIND = 82
    epoch: Number
    next: Number


class Release(Message, frozen=True, array_like=True):
    """Give a shard up; its leader answers with `ShardEnd`."""

    KIND = 83
    stream: Number
    writer: Number


class GetShardEnd(Message, frozen=True, array_like=True):
    """Ask where a shard ends, as of some moment after this; any member answers."""

    KIND = 84
    stream: Number
    writer: Number = 0
    """The writer that asks: it is still there. Its leader answers."""


class ShardEnd(Message, frozen=True, array_like=True):
    """Answer: the first position kept, the next one, and whose the log is."""

    KIND = 85
    first: Number
    next: Number
    epoch: Number
    """Epoch of the latest writer."""
    owner: str
    """Empty: the log belongs to nobody."""


class GetTimestamps(Message, frozen=True, array_like=True):
    """Ask a shard for timestamps that nobody else gets; its leader answers."""

    KIND = 86
    stream: Number
    count: Number = 1
    wall: bool = False
    """Whether the first one must not be behind the clock of the leader."""


class Timestamps(Message, frozen=True, array_like=True):
    """Answer: the timestamps from this one on, as many as were asked for."""

    KIND = 87
    first: Number


# --- peers -------------------------------------------------------------------


class Consensus(Message, frozen=True, array_like=True):
    """A message of a Raft group, in the payload."""

    KIND = 32
    group: Number


class Replicate(Message, frozen=True, array_like=True):
    """Primary to backup: the next batches of the epoch, in the payload."""

    KIND = 33
    stream: Number
    epoch: Number
    llsn_begin: Number
    sizes: tuple[Number, ...]


class Fetch(Message, frozen=True, array_like=True):
    """Backup or learner to any replica: what follows `llsn_begin`?

    Of the same epoch also what is not committed, of an older epoch or a learner only
    what is. `number` repeats in the answer, so that an old answer is known.
    """

    KIND = 34
    stream: Number
    epoch: Number
    number: Number
    llsn_begin: Number
    bytes_max: Number
    committed_only: bool


class Entries(Message, frozen=True, array_like=True):
    """Answer: batches in the payload and the commit context of what is committed."""

    KIND = 35
    stream: Number
    epoch: Number
    """The epoch that the source is a replica of; 0 if it is in none."""
    number: Number
    llsn_begin: Number
    """Greater if the source was trimmed: start from here, with producer windows."""
    sizes: tuple[Number, ...]
    runs: tuple[Run, ...]
    """Commit runs of the batches sent, up to `committed`."""
    version: Number
    high_watermark: Number
    committed: Number
    """First LLSN not committed at the source."""
    end: Number
    """First LLSN that the source does not have."""
    trim: Number = 0
    """First GLSN that the source keeps."""


class Report(Message, frozen=True, array_like=True):
    """Node to the leader of the metadata repository; also its sign of life."""

    KIND = 36
    node: Number
    incarnation: Number
    """Number of this start of the node; greater than that of any earlier start."""
    number: Number
    """Rises with each report of an incarnation: an older one is dropped."""
    full: bool
    """Whether replicas that are not named do not exist on the node."""
    streams: tuple[StreamReport, ...]
    features: Number = 0
    """`Feature`s that the node knows: what earlier versions do not."""
    sync_us: Number = 0
    """How long its syncs take, of three in four at least; 0: not known, or not full."""
    usual_us: Number = 0
    """How long they usually take; 0: not known."""


class Commit(Message, frozen=True, array_like=True):
    """Leader of the metadata repository to a node: cuts, in the order of versions."""

    KIND = 37
    cuts: tuple[LogCut, ...]


class Configure(Message, frozen=True, array_like=True):
    """Leader of the metadata repository to a node: what its replicas have to be.

    Repeated until the node reports the epochs. `dropped` are streams that the node has
    and is no replica of any more.
    """

    KIND = 38
    index: Number
    streams: tuple[StreamConfig, ...]
    dropped: tuple[Number, ...] = ()


class Faults(Message, frozen=True, array_like=True):
    """Leader of the metadata repository to a node: write this into the fault log.

    Repeated until the node says that it did. Nothing that was decided under this
    configuration is said to the node before.
    """

    KIND = 39
    epoch: Number
    sequence: Number
    members: tuple[Number, ...]
    failed: tuple[Number, ...]
    viable: bool
    """Whether the replicas of the node are complete; else it stays what it was."""


class Recorded(Message, frozen=True, array_like=True):
    """Node to the leader of the metadata repository: the newest record of its log."""

    KIND = 40
    node: Number
    epoch: Number
    sequence: Number
    viable: bool


MESSAGES: Final[dict[int, type[Message]]] = {
    each.KIND: each
    for each in sorted(Message.__subclasses__(), key=lambda message: message.KIND)
}
