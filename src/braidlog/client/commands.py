"""The commands of the metadata repository that clients send, and their results.

A command is a MessagePack array: its number, then its fields. Numbers are never reused.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from braidlog.errors import (
    AlreadyExistsError,
    FencedError,
    InvalidArgumentError,
    LogError,
    NotFoundError,
    RemoteProtocolError,
    TooLargeError,
    UnavailableError,
)

__all__ = [
    "AddLearner",
    "AlterLog",
    "Command",
    "CreateLog",
    "Created",
    "CursorRow",
    "Cursors",
    "DeleteCursor",
    "DeleteLog",
    "Done",
    "DrainNode",
    "DropLearner",
    "Epoch",
    "GetCursors",
    "MoveReplica",
    "Refused",
    "RemoveNode",
    "Result",
    "Seal",
    "SetCursor",
    "SetVoter",
    "Trim",
    "Trimmed",
    "Unseal",
    "decode_command",
    "decode_result",
    "encode",
]


class DrainNode(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Move everything off a node, or take that back."""

    node: int
    draining: bool = True


class RemoveNode(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Forget a node on which nothing is."""

    node: int


class SetVoter(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Make a node a member of the metadata repository, or no longer."""

    node: int
    voter: bool = True


class CreateLog(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Create a log."""

    log: bytes
    name: str
    streams: int
    replication: int
    min_replicas: int
    options: bytes = b""
    created: int = 0
    placement: tuple[tuple[int, ...], ...] = ()


class AlterLog(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Change what is given; None leaves it."""

    log: bytes
    name: str | None = None
    replication: int | None = None
    min_replicas: int | None = None
    options: bytes | None = None


class DeleteLog(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Delete a log and its records."""

    log: bytes


class AddLearner(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Let a node copy a stream."""

    stream: int
    node: int


class DropLearner(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Let a node stop copying a stream."""

    stream: int
    node: int


class MoveReplica(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Move a replica to another node."""

    stream: int
    source: int
    target: int


class Seal(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Begin an epoch in which nothing is committed."""

    stream: int


class Unseal(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """Begin the epoch after a seal."""

    stream: int


class Trim(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """Let records before a GLSN go, as far as no live pin holds them."""

    log: bytes
    glsn: int
    now: int = 0


class SetCursor(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Store the position of a reader."""

    log: bytes
    name: str
    position: int
    pin: bool = False
    lease: int = 0
    now: int = 0


class DeleteCursor(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """Forget a cursor."""

    log: bytes
    name: str


class GetCursors(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """Ask for all cursors of a log; changes nothing."""

    log: bytes


Command: TypeAlias = (
    DrainNode
    | RemoveNode
    | SetVoter
    | CreateLog
    | AlterLog
    | DeleteLog
    | AddLearner
    | DropLearner
    | MoveReplica
    | Seal
    | Unseal
    | Trim
    | SetCursor
    | DeleteCursor
    | GetCursors
)


class Done(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """It is so now."""


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Nothing was changed."""

    code: int
    message: str

    def error(self) -> LogError:
        """Return the error to raise."""
        return _ERRORS.get(self.code, InvalidArgumentError)(self.message)


class Created(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A log is there, with these streams."""

    log: bytes
    streams: tuple[int, ...]


class Epoch(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A stream is in this epoch, and where it began."""

    stream: int
    epoch: int
    start: int


class Trimmed(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The first GLSN that is kept."""

    first: int


class CursorRow(msgspec.Struct, frozen=True, array_like=True):
    """One cursor; times in microseconds."""

    name: str
    position: int
    pin: bool
    touched: int
    lease: int


class Cursors(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The cursors of a log."""

    rows: tuple[CursorRow, ...]


Result: TypeAlias = Done | Refused | Created | Epoch | Trimmed | Cursors

_ERRORS: Final[dict[int, type[LogError]]] = {
    each.code: each
    for each in (
        AlreadyExistsError,
        FencedError,
        InvalidArgumentError,
        NotFoundError,
        TooLargeError,
        UnavailableError,
    )
}
_encoder: Final = msgspec.msgpack.Encoder()
_commands: Final = msgspec.msgpack.Decoder(Command)
_results: Final = msgspec.msgpack.Decoder(Result)


def encode(value: Command | Result) -> bytes:
    """Return the bytes of a command or result."""
    return _encoder.encode(value)


def decode_command(data: bytes) -> Command:
    """Read a command.

    Raises:
        InvalidArgumentError: the bytes are no command.
    """
    try:
        command: Command = _commands.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        msg = f"not a command: {error}"
        raise InvalidArgumentError(msg) from error
    return command


def decode_result(data: bytes) -> Result:
    """Read a result.

    Raises:
        RemoteProtocolError: the bytes are no result.
    """
    try:
        result: Result = _results.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        msg = f"not a result: {error}"
        raise RemoteProtocolError(msg) from error
    return result
