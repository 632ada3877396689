"""Entries of a ledger, and their encoding.

An entry is a record of the ledger: a JSON object with the version of the format
(``v``), the kind of the entry (``kind``) and its fields. The key of the record is what
the entry is about, for those who look with ``braidlog read``.

    {"v": 1, "kind": "batch", "query": "...", "batch": 7, ...}

Invariants: an encoded entry decodes to an equal one; what is not an entry of this
version is refused, never skipped: a reader that skipped an entry would decide otherwise
than those that know it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeAlias

from braidlog.errors import CorruptionError, NewerFormatError

__all__ = [
    "Batch",
    "Done",
    "Entry",
    "Resume",
    "StagedFile",
    "Summary",
    "Void",
    "decode",
    "encode",
    "key_of",
]

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Records of one task for one stream, in an Arrow file below the staging folder."""

    path: str
    stream: int
    records: int
    bytes: int
    checksum: int
    """CRC-32 of the whole file."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch of a query consists of, in the order in which it is stored.

    The first that is proposed for a batch counts, unless its attempt is void.
    """

    query: str
    batch: int
    attempt: str
    """Which run of the tasks staged the files."""
    producer: int
    """Id under which the query's records are stored; that of its first batch counts."""
    since: int
    """End of the log when this was proposed: none of the records is below it."""
    staging: str
    """Directory that the paths of the files begin in."""
    files: tuple[StagedFile, ...]
    once: bool = False
    """Whether nobody will ever ask for this batch again once it is done."""


@dataclass(frozen=True, slots=True)
class Done:
    """All records of a batch are in the log, in positions below ``end``."""

    query: str
    batch: int
    end: int


@dataclass(frozen=True, slots=True)
class Void:
    """Files of this attempt will not be part of the batch, so they may be removed."""

    query: str
    batch: int
    attempt: str


@dataclass(frozen=True, slots=True)
class Resume:
    """The stream has forgotten the producer: go on in a new epoch of it.

    Of the batch's records for the stream the first ``stored`` were found in the log.
    """

    query: str
    batch: int
    stream: int
    epoch: int
    stored: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What all entries below ``as_of`` come to, so that they may be trimmed."""

    as_of: int
    state: dict[str, Any] = field(hash=False)


Entry: TypeAlias = Batch | Done | Void | Resume | Summary

_KINDS: Final[dict[str, type[Entry]]] = {
    "batch": Batch,
    "done": Done,
    "void": Void,
    "resume": Resume,
    "summary": Summary,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def encode(entry: Entry) -> bytes:
    """Return the value of the record that holds an entry."""
    fields = {"v": _VERSION, "kind": _NAMES[type(entry)], **asdict(entry)}
    return json.dumps(fields, separators=(",", ":")).encode()


def key_of(entry: Entry) -> bytes:
    """Return the key of the record that holds an entry: what it is about."""
    match entry:
        case Summary():
            return b"summary"
        case _:
            return entry.query.encode()


def decode(value: bytes) -> Entry:
    """Return the entry that a record of a ledger holds.

    Raises:
        NewerFormatError: a newer version wrote it.
        CorruptionError: it is no entry.
    """
    try:
        fields = json.loads(value)
        version, name = fields.pop("v"), fields.pop("kind")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CorruptionError(f"a record of the ledger is no entry: {error}") from error
    if version != _VERSION or name not in _KINDS:
        msg = f"the ledger has an entry {name!r} of version {version}"
        raise NewerFormatError(msg, found=version, supported=_VERSION)
    entry: Entry = build(_KINDS[name], fields)
    return entry


def build(kind: Callable[..., Any], fields: Mapping[str, Any]) -> Any:
    """Make an entry, or a part of one, of its decoded fields.

    Raises:
        CorruptionError: fields are missing, unknown or of another type.
    """
    try:
        made = dict(fields)
        if "files" in made:
            made["files"] = tuple(build(StagedFile, each) for each in made["files"])
        _check_types(kind, made)
        return kind(**made)
    except (TypeError, ValueError) as error:
        msg = f"an entry of the ledger is not understood: {error}"
        raise CorruptionError(msg) from error


_TYPES: Final = {"int": int, "str": str, "bool": bool}


def _check_types(kind: Any, fields: Mapping[str, Any]) -> None:
    for name, wanted in kind.__annotations__.items():
        plain = _TYPES.get(wanted)
        if plain is not None and name in fields and type(fields[name]) is not plain:
            msg = f"{name} is {fields[name]!r}, not {wanted}"
            raise TypeError(msg)
