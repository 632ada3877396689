"""Records of the command log: what each kind holds, and its bytes.

A record's value is ``[format, kind, field, ...]`` in deterministic CBOR. Kinds are
stored: their numbers are never given to another kind.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, TypeAlias

from braidlog.app.determinism.codec import decode, encode
from braidlog.app.errors import EncodingError
from braidlog.errors import CorruptionError, InvalidArgumentError, NewerFormatError

FORMAT: Final = 1

_ISSUED_BYTES: Final = 7
_CALL_BYTES: Final = 16


class CallId(bytes):
    """Name of a call: the end of the log when it was made, then random bits.

    16 bytes: 7 of position, big-endian, and 9 random ones. A retry repeats it, also
    after a restart: `hex` and `CallId.parse` carry it through text. The position tells
    how old a call is, so that one whose result may be forgotten is refused.
    """

    __slots__ = ()

    def __new__(cls, data: bytes) -> CallId:
        """Make one of its 16 bytes.

        Raises:
            InvalidArgumentError: it does not have 16 bytes.
        """
        if len(data) != _CALL_BYTES:
            msg = f"a call id has {_CALL_BYTES} bytes, not {len(data)}"
            raise InvalidArgumentError(msg)
        return super().__new__(cls, data)

    @classmethod
    def make(cls, issued: int, entropy: bytes) -> CallId:
        """Make one of a position and 9 random bytes."""
        return cls(issued.to_bytes(_ISSUED_BYTES, "big") + entropy)

    @classmethod
    def parse(cls, text: str) -> CallId:
        """Return the call id of a text that `hex` gave.

        Raises:
            InvalidArgumentError: the text is not 32 hexadecimal digits.
        """
        if not re.fullmatch(r"[0-9a-f]{32}", text):
            msg = f"{text!r} is not a call id (32 hexadecimal digits)"
            raise InvalidArgumentError(msg)
        return cls(bytes.fromhex(text))

    @property
    def issued(self) -> int:
        """End of the log when the call was made; its command is not below."""
        return int.from_bytes(self[:_ISSUED_BYTES], "big")


# Named tuples: one is made for each record that is executed, and a tuple costs a
# third of a frozen dataclass.


class Command(NamedTuple):
    """Kinds 1 and 10: a call, logged as what was asked for.

    ``routing`` is the position of the RESIZE entry that ``partitions`` follow from; 0,
    which kind 1 stands for, is the number of CREATE.
    """

    call: bytes
    seed: bytes
    procedure: str
    content: bytes
    partitions: list[int] | None
    arguments: list[Any]
    routing: int = 0


class Effect(NamedTuple):
    """Kind 2: a call, logged as what it changed; void if ``base`` has moved."""

    call: bytes
    procedure: str
    content: bytes
    partitions: list[int]
    base: list[int]
    changes: list[list[Any]]
    result: bytes


class Outcomes(NamedTuple):
    """Kind 3: what commands gave on the active host: [position, digest] each."""

    epoch: int
    digests: list[tuple[int, bytes]]


class AbortEntry(NamedTuple):
    """Kind 8: the command at ``position`` was given up and has no effects.

    It counts if no host with a greater epoch was active before it. Kind 4 is the same
    without an epoch, which is 0 then, and always counts; only older versions write it.
    """

    position: int
    reason: str
    epoch: int


class Catalog(NamedTuple):
    """Kind 5: the code and schema that are in force from here on.

    A procedure is [name, content hash, source, flags]; the schema is its steps, of
    which a later catalog has all and possibly more.
    """

    version: int
    procedures: list[list[Any]]
    schema: list[str]
    fingerprint: dict[str, Any]


class Host(NamedTuple):
    """Kind 6: this host is active from here on."""

    host: bytes
    epoch: int


class Create(NamedTuple):
    """Kind 7: the first record."""

    application: bytes
    name: str
    partitions: int
    results_kept: int


class Resize(NamedTuple):
    """Kind 9: the application has so many partitions from here on.

    It counts for nothing if ``base`` is not the routing in force before it, which is
    the position of the last RESIZE entry that counts. ``row_keys`` names the column of
    each table that has the partition key of a row, or None if every partition has the
    same rows.
    """

    partitions: int
    base: int
    row_keys: dict[str, str | None]


Entry: TypeAlias = (
    Command | Effect | Outcomes | AbortEntry | Catalog | Host | Create | Resize
)

_KINDS: Final[dict[int, Any]] = {
    1: Command,
    2: Effect,
    3: Outcomes,
    5: Catalog,
    6: Host,
    7: Create,
    8: AbortEntry,
    9: Resize,
    10: Command,
}
_NUMBERS: Final = {entry: kind for kind, entry in _KINDS.items()}
_COMMAND_OF_CREATE: Final = 1
_ABORT_WITHOUT_EPOCH: Final = 4


def pack(entry: Entry) -> bytes:
    """Return the value of a record.

    Raises:
        EncodingError: an argument is no value of the log.
    """
    try:
        if type(entry) is Command and not entry.routing:
            # As every version reads it: most logs never see a RESIZE.
            return encode([FORMAT, _COMMAND_OF_CREATE, *entry[:-1]])
        return encode([FORMAT, _NUMBERS[type(entry)], *entry])
    except EncodingError as error:
        # Arguments are the only part that a caller made: start the path there.
        path = re.sub(r"^\[\d+\]", "", error.path)
        if not isinstance(entry, Command) or path == error.path:
            raise
        msg = error.message.replace(error.path, "argument " + path, 1)
        raise EncodingError(msg, path=path) from error


def unpack(value: bytes | None, position: int) -> Entry:
    """Return what a record's value says.

    Raises:
        NewerFormatError: a newer version wrote it.
        CorruptionError: it is no entry.
    """
    if value is None:
        msg = f"the record at {position} is null, which is no entry of a command log"
        raise CorruptionError(msg)
    fields = decode(value)
    try:
        form, kind, *rest = fields
        if kind == _COMMAND_OF_CREATE:
            rest.append(0)
        if form == FORMAT and kind == _ABORT_WITHOUT_EPOCH:
            kind, rest = _NUMBERS[AbortEntry], [*rest, 0]
        if form == FORMAT and kind in _KINDS:
            entry: Entry = _KINDS[kind]._make(rest)
            return entry
    except (TypeError, ValueError) as error:
        msg = f"the record at {position} is not an entry of a command log: {error}"
        raise CorruptionError(msg) from error
    msg = f"the record at {position} has format {form}, kind {kind}"
    raise NewerFormatError(msg, found=form, supported=FORMAT)


def key_of(partitions: list[int] | None) -> bytes | None:
    """Return the key of a command's record: its partition, if there is one alone."""
    if partitions is None or len(partitions) != 1:
        return None
    return partitions[0].to_bytes(4, "big")
