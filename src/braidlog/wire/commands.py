"""Commands of the metadata repository, and their bytes.

A command is a MessagePack array: a number that is never reused, then the fields in the
order of this file. Fields may be added at the end with a default. In the Raft log a
command stands in a `Call`, which adds the identity that makes it happen once.

*Invariants.* Everything that a command needs is in it: who is alive, what time it is
and where replicas go was decided before it was logged, by the leader.
"""
# One file: the commands of the protocol are read side by side.

from __future__ import annotations

import enum
import re
from typing import ClassVar, Final, Literal, TypeAlias, TypeVar

import msgspec

from braidlog.errors import InvalidArgumentError, TooLargeError
from braidlog.wire.base import Number
from braidlog.wire.messages import LogCut, LogKind, StreamStatus
from braidlog.wire.tables import TableChange

__all__ = [
    "COMMAND_BYTES_MAX",
    "AddLearner",
    "AdmitNode",
    "AlterLog",
    "Call",
    "ChangeFaults",
    "ChangeTables",
    "Command",
    "CreateLog",
    "CursorChange",
    "Cut",
    "DeleteCursor",
    "DeleteLog",
    "DrainNode",
    "DropLearner",
    "GetCursors",
    "MoveReplica",
    "OfferReplicas",
    "PlaceHosts",
    "ReadmitNode",
    "Reconfigure",
    "RegisterNode",
    "RemoveNode",
    "ReportShards",
    "Retain",
    "Seal",
    "SetCursor",
    "SetStreams",
    "SetVoter",
    "SettleHost",
    "ShardNews",
    "StoredReplica",
    "Trim",
    "Unseal",
    "decode",
    "decode_call",
    "encode",
    "encode_call",
    "encode_checked",
]

COMMAND_BYTES_MAX: Final = 1 << 20
"""Bytes of one command: one Raft message carries it with room to spare."""

_T = TypeVar("_T")
Needed: TypeAlias = Literal["read", "append", "admin", "peer", "leader"]


class _Command(msgspec.Struct, frozen=True, array_like=True):
    """What all commands have."""

    ROLE: ClassVar[Needed]
    """Role of the token that may send it; `leader`: only the leader itself makes it.

    Each command names its own: a default would let in what nobody thought of."""


class RegisterNode(_Command, frozen=True, array_like=True, tag=1):
    """Make a node known, or say that it started again or moved to another address."""

    ROLE: ClassVar[Needed] = "peer"
    node: Number
    address: str
    incarnation: Number
    identity: bytes = b""
    """Identity of its directory, 16 bytes; empty: of an earlier version."""
    features: Number = 0
    """`braidlog.wire.messages.Feature`s that it knows."""


class DrainNode(_Command, frozen=True, array_like=True, tag=2):
    """Move everything off a node, or take that back."""

    ROLE: ClassVar[Needed] = "admin"
    node: int
    draining: bool = True


class RemoveNode(_Command, frozen=True, array_like=True, tag=3):
    """Forget a node on which nothing is; its id never comes back."""

    ROLE: ClassVar[Needed] = "admin"
    node: int


class SetVoter(_Command, frozen=True, array_like=True, tag=4):
    """Make a node a member of the metadata repository, or no longer."""

    ROLE: ClassVar[Needed] = "admin"
    node: int
    voter: bool = True


class CreateLog(_Command, frozen=True, array_like=True, tag=5):
    """Create a log; the same again with the same identity is the same log."""

    ROLE: ClassVar[Needed] = "admin"
    log: bytes
    name: str
    streams: int
    replication: int
    min_replicas: int
    options: bytes = b""
    created: Number = 0
    """Microseconds since the Unix epoch. The leader fills it in."""
    placement: tuple[tuple[int, ...], ...] = ()
    """Replicas of each stream. The leader fills it in with nodes that are alive; empty:
    any that are known."""
    allow_missing: bool = False
    """Whether there may be fewer nodes than `replication`. The leader decides."""
    kind: LogKind = LogKind.STREAMS


class AlterLog(_Command, frozen=True, array_like=True, tag=6):
    """Change what is given; None leaves it."""

    ROLE: ClassVar[Needed] = "admin"
    log: bytes
    name: str | None = None
    replication: int | None = None
    min_replicas: int | None = None
    options: bytes | None = None
    known: bytes | None = None
    """Options that the new ones were made of; if they are others now it is refused."""
    allow_missing: bool = False
    """Whether there may be fewer nodes than `replication`. The leader decides."""
    expected: int | None = None
    """Revision of the log that is changed; with another one it is refused."""
    counted: bool = False
    """Whether this is a new revision. The leader says so when all nodes count them: an
    earlier version applies the same command without."""


class DeleteLog(_Command, frozen=True, array_like=True, tag=7):
    """Delete a log and its records."""

    ROLE: ClassVar[Needed] = "admin"
    log: bytes


class Cut(_Command, frozen=True, array_like=True, tag=8):
    """Commit records: what every replica of a stream holds gets its place."""

    ROLE: ClassVar[Needed] = "leader"
    cuts: tuple[LogCut, ...]
    forget: tuple[tuple[bytes, int], ...] = ()
    """(log, version): cuts up to it are durable on all replicas."""


class Reconfigure(_Command, frozen=True, array_like=True, tag=9):
    """End the epoch `expected` of a stream and begin the next, in one step."""

    ROLE: ClassVar[Needed] = "leader"
    stream: int
    expected: int
    replicas: tuple[int, ...]
    """The first is the primary."""
    learners: tuple[int, ...]
    status: StreamStatus
    entered: tuple[int, ...] = ()
    """Replicas that reported in `expected`: they hold everything committed."""
    learned: tuple[int, ...] = ()
    """Learners that were seen to hold all but a bounded rest."""
    forced: bool = False
    """Whether fewer than `min_replicas` will do."""


class AddLearner(_Command, frozen=True, array_like=True, tag=10):
    """Let a node copy a stream."""

    ROLE: ClassVar[Needed] = "admin"
    stream: int
    node: int
    expected: int | None = None
    """Epoch of the stream that is changed; with another one it is refused."""


class DropLearner(_Command, frozen=True, array_like=True, tag=11):
    """Let a node stop copying a stream; a move to it is given up."""

    ROLE: ClassVar[Needed] = "admin"
    stream: int
    node: int
    expected: int | None = None
    """As in `AddLearner`."""


class MoveReplica(_Command, frozen=True, array_like=True, tag=12):
    """Move a replica to another node: a learner first, then an epoch."""

    ROLE: ClassVar[Needed] = "admin"
    stream: int
    source: int
    target: int
    expected: int | None = None
    """As in `AddLearner`."""


class Seal(_Command, frozen=True, array_like=True, tag=13):
    """Begin an epoch in which nothing is committed."""

    ROLE: ClassVar[Needed] = "admin"
    stream: int
    expected: int | None = None
    """As in `AddLearner`."""


class Unseal(_Command, frozen=True, array_like=True, tag=14):
    """Begin the epoch after a seal."""

    ROLE: ClassVar[Needed] = "admin"
    stream: int
    expected: int | None = None
    """As in `AddLearner`."""


class Trim(_Command, frozen=True, array_like=True, tag=15):
    """Let records before a GLSN go, as far as no live pin of a cursor holds them."""

    ROLE: ClassVar[Needed] = "admin"
    log: bytes
    glsn: int
    now: int = 0
    """Microseconds since the Unix epoch. The leader fills it in, here and in all
    commands that have a time: a client's clock says nothing about a lease."""
    ignore_pins: bool = False


class CursorChange(enum.IntEnum):
    """What `SetCursor` does."""

    SET = 0
    """Store all of it, creating it if there is none."""
    CREATE = 1
    """Store it if there is none; otherwise nothing."""
    MOVE = 2
    """Store the position; there must be one, and it keeps what else it has."""


class SetCursor(_Command, frozen=True, array_like=True, tag=16):
    """Store the position of a reader."""

    ROLE: ClassVar[Needed] = "append"
    log: bytes
    name: str
    position: int
    pin: bool = False
    lease: int = 0
    """Microseconds after `now` that the pin holds; 0 for ever."""
    now: int = 0
    """Of the leader, as in `Trim`."""
    change: CursorChange = CursorChange.SET


class DeleteCursor(_Command, frozen=True, array_like=True, tag=17):
    """Forget a cursor."""

    ROLE: ClassVar[Needed] = "append"
    log: bytes
    name: str


class GetCursors(_Command, frozen=True, array_like=True, tag=19):
    """Ask for all cursors of a log; changes nothing."""

    ROLE: ClassVar[Needed] = "read"
    log: bytes


class ChangeFaults(_Command, frozen=True, array_like=True, tag=20):
    """Begin the next configuration of the cluster, or take nodes for viable."""

    ROLE: ClassVar[Needed] = "leader"
    epoch: int
    """Number of the configuration that it follows."""
    sequence: int
    failed: tuple[int, ...] = ()
    """Members to be listed as failed."""
    back: tuple[int, ...] = ()
    """Members to be listed no more."""
    joined: tuple[int, ...] = ()
    """Nodes to become members."""
    viable: tuple[int, ...] = ()
    """Members that recorded themselves as viable; no new configuration."""


class StoredReplica(msgspec.Struct, frozen=True, array_like=True):
    """What a node has on its disk of one stream; see `OfferReplicas`."""

    stream: Number
    epoch: Number
    """The last epoch that was entered."""
    about: bytes
    """What was stored beside the replica when it entered, see
    `metarepo.machine.adoption`."""
    committed: Number
    end: Number
    version: Number
    high_watermark: Number


class OfferReplicas(_Command, frozen=True, array_like=True, tag=21):
    """Say what a node has, to a repository that begins anew after a rescue."""

    ROLE: ClassVar[Needed] = "peer"
    node: int
    epoch: int
    """The fault epoch that the rescue wrote."""
    part: int
    parts: int
    replicas: tuple[StoredReplica, ...] = ()


class Retain(_Command, frozen=True, array_like=True, tag=22):
    """What retention may let go of, as the primary of one stream sees it."""

    ROLE: ClassVar[Needed] = "peer"
    stream: int
    options: bytes
    """Options of the log that this was worked out with; others make it void."""
    keep: int
    """First GLSN that is young enough in this stream; 0 without a bound on age."""
    bytes_max: int = 0
    """What the whole log has to keep; 0 without a bound on size."""
    sizes: tuple[tuple[int, int], ...] = ()
    """(GLSN, bytes of the stream from there on), GLSNs rising."""
    now: int = 0
    """Microseconds since the Unix epoch."""


class ReadmitNode(_Command, frozen=True, array_like=True, tag=23):
    """Give up the directory of a node, so that the id can come back with an empty one.

    The node is taken out of all streams and loses its vote; then `AdmitNode` follows.
    """

    ROLE: ClassVar[Needed] = "admin"
    node: int
    votes: bool = False
    """Whether it votes; the leader fills it in."""


class AdmitNode(_Command, frozen=True, array_like=True, tag=24):
    """Let the next directory that comes have the id of a node that was given up."""

    ROLE: ClassVar[Needed] = "leader"
    node: int


class ChangeTables(_Command, frozen=True, array_like=True, tag=25):
    """Make changes to the catalog of tables: all of them, or none."""

    ROLE: ClassVar[Needed] = "admin"
    changes: tuple[TableChange, ...]
    now: int = 0
    """Of the leader, as in `Trim`."""


class PlaceHosts(_Command, frozen=True, array_like=True, tag=26):
    """Let other nodes keep a table."""

    ROLE: ClassVar[Needed] = "leader"
    table: bytes
    expected: tuple[int, ...]
    """Its hosts until now; with others the command is void."""
    hosts: tuple[int, ...]


class SettleHost(_Command, frozen=True, array_like=True, tag=27):
    """Say that a node has all of a table now, or no longer."""

    ROLE: ClassVar[Needed] = "peer"
    table: bytes
    node: int
    joined: bool


class SetStreams(_Command, frozen=True, array_like=True, tag=28):
    """Give a log so many streams for keys: new ones, or the last ones are sealed.

    Needs `Feature.STREAM_CHANGES`.
    """

    ROLE: ClassVar[Needed] = "admin"
    log: bytes
    streams: int
    expected: int | None = None
    """As in `AlterLog`."""
    placement: tuple[tuple[int, ...], ...] = ()
    """Replicas of the new streams, as in `CreateLog`."""


class ShardNews(msgspec.Struct, frozen=True, array_like=True):
    """Where a shard stands, as its leader says."""

    stream: Number
    term: Number
    next: Number
    """Position of the next record."""
    plan: Number = 0
    """The decision of the repository that the group follows; 0: none yet."""
    wanted: tuple[Number, ...] = ()
    """Who should vote, as that says."""
    epoch: Number = 0
    """Index of the entry that gave the group its members; 0: the first ones."""
    voters: tuple[Number, ...] = ()
    learners: tuple[Number, ...] = ()
    generation: Number = 0
    """The greatest of all that belong to the group or ever did."""


class ReportShards(_Command, frozen=True, array_like=True, tag=29):
    """Say which shards a node leads, and where they end by now."""

    ROLE: ClassVar[Needed] = "peer"
    node: Number
    shards: tuple[ShardNews, ...]
    damaged: tuple[tuple[Number, Number], ...] = ()
    """(stream, member) of the node, of which entries cannot be read."""


class PlaceShard(_Command, frozen=True, array_like=True, tag=30):
    """Decide who should vote in a shard; its leader brings it there.

    A member is added on each node of ``add``; the members of ``drop`` go.
    """

    ROLE: ClassVar[Needed] = "leader"
    stream: Number
    expected: Number
    """The plan that is changed; with another one it is refused."""
    add: tuple[Number, ...] = ()
    drop: tuple[Number, ...] = ()


Command: TypeAlias = (
    RegisterNode
    | DrainNode
    | RemoveNode
    | SetVoter
    | CreateLog
    | AlterLog
    | DeleteLog
    | Cut
    | Reconfigure
    | AddLearner
    | DropLearner
    | MoveReplica
    | Seal
    | Unseal
    | Trim
    | SetCursor
    | DeleteCursor
    | GetCursors
    | ChangeFaults
    | OfferReplicas
    | Retain
    | ReadmitNode
    | AdmitNode
    | ChangeTables
    | PlaceHosts
    | SettleHost
    | SetStreams
    | ReportShards
    | PlaceShard
)


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A command in the Raft log."""

    command: Command
    call: bytes = b""
    """Identity: a command with one that is known is not executed again."""


# What msgspec says of a field with the wrong type.
_FIELD: Final = re.compile(
    r"Expected `(?P<wanted>[^`]+)`, got `[^`]+` - at `\$\[(?P<item>\d+)\]`"
)

_encoder: Final = msgspec.msgpack.Encoder()
_commands: Final[msgspec.msgpack.Decoder[Command]] = msgspec.msgpack.Decoder(Command)
_calls: Final[msgspec.msgpack.Decoder[Call]] = msgspec.msgpack.Decoder(Call)


def encode(command: Command) -> bytes:
    """Return the bytes of a command."""
    return _encoder.encode(command)


def encode_checked(command: Command) -> bytes:
    """Return the bytes of a command whose fields are what somebody passed.

    A node refuses the same, but can only say which number of the array is wrong.

    Raises:
        TypeError: a field has the wrong type.
        InvalidArgumentError: a number does not fit 64 bits.
        TooLargeError: the command is over its limit.
    """
    try:
        data = encode(command)
        if len(data) > COMMAND_BYTES_MAX:
            raise _over_limit(data)
        _commands.decode(data)
    except OverflowError as error:
        msg = f"{_too_large(command) or 'a number'} does not fit 64 bits"
        raise InvalidArgumentError(msg) from error
    except msgspec.ValidationError as error:
        found = _FIELD.search(str(error))
        if found is None:
            raise InvalidArgumentError(str(error)) from error
        # The number of the command is the first item of the array.
        name = command.__struct_fields__[int(found["item"]) - 1]
        got = type(getattr(command, name)).__name__
        wanted = found["wanted"].replace("null", "None").replace(" | ", " or ")
        article = "an" if wanted.startswith("int") else "a"
        msg = f"{name} must be {article} {wanted}, not {got}"
        raise TypeError(msg) from error
    return data


def _too_large(command: Command) -> str:
    values = ((name, getattr(command, name)) for name in command.__struct_fields__)
    return ", ".join(
        f"{name} = {value}"
        for name, value in values
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64
    )


def decode(data: bytes) -> Command:
    """Read a command.

    Raises:
        TooLargeError: it is over its limit.
        InvalidArgumentError: the bytes are no command.
    """
    return _decode(data, _commands)


def encode_call(command: Command, call: bytes = b"") -> bytes:
    """Return what goes into the Raft log."""
    return _encoder.encode(Call(command, call))


def decode_call(data: bytes) -> Call:
    """Read an entry of the Raft log.

    Raises:
        TooLargeError: it is over its limit.
        InvalidArgumentError: the bytes are no call.
    """
    return _decode(data, _calls)


def _decode(data: bytes, decoder: msgspec.msgpack.Decoder[_T]) -> _T:
    if len(data) > COMMAND_BYTES_MAX:
        raise _over_limit(data)
    try:
        return decoder.decode(data)
    # Arrays in arrays without end have an error of their own.
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        msg = f"the bytes are not a command: {error}"
        raise InvalidArgumentError(msg) from error


def _over_limit(data: bytes) -> TooLargeError:
    msg = f"the command has {len(data)} bytes, at most {COMMAND_BYTES_MAX} are allowed"
    return TooLargeError(msg, size=len(data), limit=COMMAND_BYTES_MAX)
