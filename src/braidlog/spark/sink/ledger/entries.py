"""Entries of a ledger, and their encoding.

An entry is a record of the ledger: a JSON object with the version of the format
(``v``), the kind of the entry (``kind``) and its fields. The key of the record is what
the entry is about, for those who look with ``braidlog read``.

    {"v": 1, "kind": "batch", "query": "...", "batch": 7, ...}

The files of a batch are in its entry, or, if they are many, in a list that is staged
beside them (`FileList`); an entry that names such a list has version 2.

Invariants: an encoded entry decodes to an equal one; what is not an entry of this
version is refused, never skipped: a reader that skipped an entry would decide otherwise
than those that know it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from braidlog.errors import CorruptionError, NewerFormatError

_PLAIN: Final = 1
_LISTING: Final = 2
"""Version of an entry that names a list of files."""
_LIST_VERSION: Final = 1


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
class FileList:
    """A staged file that lists what a batch consists of; see `encode_files`."""

    path: str
    bytes: int
    checksum: int
    """CRC-32 of the whole list."""
    count: int
    """How many it lists."""
    content: str
    """`digest_of` the files: two runs that give the same rows have the same."""


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
    listed: FileList | None = None
    """Where the files are listed, if they are not in ``files``."""
    per_stream: tuple[tuple[int, int], ...] = ()
    """Each stream, and how many records listed files have for it."""


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
    fields = asdict(entry)
    version = _PLAIN
    match entry:
        case Batch():
            version = _stripped(fields)
        case Summary():
            queries = fields["state"].get("queries", {}).values()
            version = max(map(_stripped, queries), default=_PLAIN)
    whole = {"v": version, "kind": _NAMES[type(entry)], **fields}
    return json.dumps(whole, separators=(",", ":")).encode()


def _stripped(fields: dict[str, Any]) -> int:
    """Leave out what names no list; return the version that readers have to know."""
    if fields.get("listed") is not None:
        return _LISTING
    fields.pop("listed", None)
    fields.pop("per_stream", None)
    return _PLAIN


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
        raise CorruptionError(
            f"a record of the ledger cannot be decoded: {error}"
        ) from error
    newest = _LISTING if name in ("batch", "summary") else _PLAIN
    if version not in range(_PLAIN, newest + 1) or name not in _KINDS:
        msg = (
            f"the ledger has an entry {name!r} of version {version}, which "
            "this version cannot read: upgrade Braidlog"
        )
        raise NewerFormatError(msg, found=version, supported=newest)
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
        if made.get("listed") is not None:
            made["listed"] = build(FileList, made["listed"])
        if "per_stream" in made:
            counts = ((int(s), int(n)) for s, n in made["per_stream"])
            made["per_stream"] = tuple(counts)
        _check_types(kind, made)
        return kind(**made)
    except (TypeError, ValueError) as error:
        msg = f"an entry of the ledger cannot be read: {error}"
        raise CorruptionError(msg) from error


# -- lists of files ------------------------------------------------------------------


def encode_files(files: Iterable[StagedFile]) -> bytes:
    """Return the list of files as it is staged: a JSON object, a row for each file."""
    rows = [(f.path, f.stream, f.records, f.bytes, f.checksum) for f in files]
    whole = {"v": _LIST_VERSION, "files": rows}
    return json.dumps(whole, separators=(",", ":")).encode()


def decode_files(data: bytes) -> tuple[StagedFile, ...]:
    """Return the files that a list names.

    Raises:
        NewerFormatError: a newer version wrote it.
        CorruptionError: it is no list of files.
    """
    try:
        whole = json.loads(data)
        if whole["v"] != _LIST_VERSION:
            msg = (
                f"a list of staged files has version {whole['v']}, which this "
                "version cannot read: upgrade Braidlog"
            )
            raise NewerFormatError(msg, found=whole["v"], supported=_LIST_VERSION)
        names = tuple(StagedFile.__annotations__)
        rows = [dict(zip(names, row, strict=True)) for row in whole["files"]]
    except (ValueError, KeyError, TypeError) as error:
        msg = f"a list of staged files cannot be read: {error}"
        raise CorruptionError(msg) from error
    return tuple(build(StagedFile, row) for row in rows)


def digest_of(files: Iterable[StagedFile]) -> str:
    """Return a checksum of what files hold, wherever they are: BLAKE2b-128."""
    found = blake2b(digest_size=16)
    for f in files:
        found.update(f"{f.stream},{f.records},{f.bytes},{f.checksum};".encode())
    return found.hexdigest()


_TYPES: Final = {"int": int, "str": str, "bool": bool}


def _check_types(kind: Any, fields: Mapping[str, Any]) -> None:
    for name, wanted in kind.__annotations__.items():
        plain = _TYPES.get(wanted)
        if plain is not None and name in fields and type(fields[name]) is not plain:
            raise TypeError(f"{name} is {fields[name]!r}, not {wanted}")
