"""What a backup is: a list, and the parts that it names.

    <place>/lists/<backup>.json                       the list of a backup
    <place>/running/<backup>.json                     a backup that is being made
    <place>/parts/<source>/<log>/<stream>-<begin>-<end>-<backup>.part
    <place>/parts/<source>/<table>/<tree>/<number>-<backup>.run

Theory of operation: a *part* holds a range of records of one stream, and never changes.
Nor does the file of a table. The list of a backup says of each log and table what it
was like at one place of its source, and names its parts and files with lengths and
checksums. It is written last, in one step, so a backup is there as a whole or not at
all. Parts that an earlier backup has are named again
instead of being copied: each list is whole by itself, and an earlier backup may be
deleted.

Invariants, checked when a list is made and when one is read: the parts of a stream are
in order and leave no gap from its first record to its end; no two logs share a name,
and no two tables; the log of a table has what its files lack.

Pure: names and bytes only.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_type_hints

from braidlog import documents
from braidlog.documents import typed
from braidlog.errors import BackupDamagedError, InvalidArgumentError

FORMAT: Final = 2
"""Of lists with tables: a build that knows none would restore the logs without them."""

_WITHOUT_TABLES: Final = 1
LISTS: Final = "lists"
RUNNING: Final = "running"
PARTS: Final = "parts"

_ID: Final = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")
_IDENTITY: Final = re.compile(r"[0-9a-f]{32}")
_PART: Final = re.compile(
    rf"{PARTS}/[0-9a-f]{{32}}/[0-9a-f]{{32}}/"
    rf"\d{{10}}-\d{{20}}-\d{{20}}-({_ID.pattern})\.part"
)
# A name that builds without tables take for none of theirs, and leave alone.
_RUN: Final = re.compile(
    rf"{PARTS}/[0-9a-f]{{32}}/[0-9a-f]{{32}}/[0-9a-f]{{32}}/"
    rf"\d{{20}}-({_ID.pattern})\.run"
)

SourceKind: TypeAlias = Literal["directory", "cluster"]


@dataclass(frozen=True, slots=True)
class BackupSource:
    """Where the records come from."""

    kind: SourceKind
    id: str
    """Identity of the write-ahead log, or of the cluster; 32 hexadecimal digits."""
    name: str
    """Path of the directory or name of the cluster, for people."""


@dataclass(frozen=True, slots=True)
class BackupPart:
    """A file with records ``begin`` to ``end`` of a stream."""

    path: str
    """Relative to the place, with slashes."""
    begin: int
    end: int
    bytes: int
    checksum: str
    """BLAKE2b-128 of its bytes, in hexadecimal: what ``b2sum -l 128`` prints."""
    last: str
    """Digest of its last record, by which an increment knows its source again."""


@dataclass(frozen=True, slots=True)
class BackupStream:
    """One stream of a log: LLSNs ``first`` to ``end``."""

    stream: int
    first: int
    end: int
    producers: bytes
    """Producer windows, as in a preamble."""
    parts: tuple[BackupPart, ...]

    def __post_init__(self) -> None:
        """Refuse parts that are not the stream.

        Raises:
            InvalidArgumentError: a gap, an overlap, a part too many.
        """
        at = self.first
        for number, part in enumerate(self.parts):
            fits = part.begin <= at if number == 0 else part.begin == at
            if not fits or not at < part.end <= self.end or part.begin < 1:
                msg = f"{part.path} has {part.begin} to {part.end} instead of {at}"
                raise InvalidArgumentError(msg)
            at = part.end
        if at != self.end:
            msg = f"stream {self.stream} ends at {at} instead of {self.end}"
            raise InvalidArgumentError(msg)


@dataclass(frozen=True, slots=True)
class BackupCursor:
    """A cursor as it was."""

    name: str
    position: int
    pin: bool
    touched: int
    lease: int


@dataclass(frozen=True, slots=True)
class BackupLog:
    """A log as it was: positions ``first`` to ``end``."""

    id: str
    name: str
    created: int
    options: str
    """JSON, as the source has it."""
    first: int
    end: int
    cursors: tuple[BackupCursor, ...]
    streams: tuple[BackupStream, ...]
    replication: int = 0
    """Of a cluster: replicas of each stream; 0 in a directory."""
    min_replicas: int = 0

    @property
    def records(self) -> int:
        """How many records it has."""
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class BackupRunFile:
    """A file of a table, which never changes."""

    number: int
    path: str
    """Relative to the place, with slashes."""
    bytes: int
    checksum: str
    """As that of a part."""
    identity: str
    """Digest of what its tree lists of it, which tells it from others of its number."""


@dataclass(frozen=True, slots=True)
class BackupTree:
    """The records of a table by key, or by the field of an index."""

    id: str
    image: bytes
    """What it consists of: a manifest file without edits."""
    flushed: int
    """Everything up to this position is in its files."""
    runs: tuple[BackupRunFile, ...]


@dataclass(frozen=True, slots=True)
class BackupIndex:
    """An index of a table; one that is being built begins again after a restore."""

    name: str
    field: str
    tree: str
    active: bool
    position: int
    """It follows the log from there on, and has what the table had before."""
    reason: str = ""
    """Of a cluster: why it could not be built."""

    def __post_init__(self) -> None:
        """Refuse one that is used although it could not be built.

        Raises:
            InvalidArgumentError: it is.
        """
        if self.active and self.reason:
            raise InvalidArgumentError(f"index {self.name!r} is used: {self.reason}")


@dataclass(frozen=True, slots=True)
class BackupTable:
    """A table as it was."""

    id: str
    name: str
    log: str
    """Id of its log."""
    created: int
    start: int
    primary: str
    options: str
    """JSON, as the source has it."""
    pin: int
    """First position of the log that it needs."""
    indexes: tuple[BackupIndex, ...]
    counters: bytes | None
    """What it counted; None if nothing was saved."""
    trees: tuple[BackupTree, ...]
    replicas: int = 0
    """Of a cluster: how many nodes keep it; 0: as many as keep a stream of its log."""

    def __post_init__(self) -> None:
        """Refuse trees that are not its own.

        Raises:
            InvalidArgumentError: one is missing, or one too many.
        """
        trees = {self.primary, *(each.tree for each in self.indexes if each.active)}
        if {tree.id for tree in self.trees} != trees or len(self.trees) != len(trees):
            msg = f"table {self.name!r} has other trees than its indexes say"
            raise InvalidArgumentError(msg)

    @property
    def files(self) -> tuple[BackupRunFile, ...]:
        """The files of its trees."""
        return tuple(run for tree in self.trees for run in tree.runs)


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup: everything that it has, and where."""

    id: str
    source: BackupSource
    base: str | None
    """The backup whose parts were used again; None if all were copied."""
    time: int
    """When the state was taken, microseconds since the epoch."""
    version: str
    segment_bytes: int
    wal_bytes_max: int | None
    segment: int
    """The place of the state in the write-ahead log; 0 for a cluster."""
    offset: int
    new_bytes: int
    """Bytes that this backup copied."""
    logs: tuple[BackupLog, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What builds of later versions add and this one need not know."""
    tables: tuple[BackupTable, ...] = ()
    hosts: Mapping[str, int] = field(default_factory=dict)
    """Of a cluster: the node that gave the files of each table."""

    def __post_init__(self) -> None:
        """Refuse what is no backup.

        Raises:
            InvalidArgumentError: a name that none has, or two logs of one name.
        """
        ids = [self.source.id, *(log.id for log in self.logs)]
        if not _ID.fullmatch(self.id) or not all(map(_IDENTITY.fullmatch, ids)):
            raise InvalidArgumentError(f"{self.id!r} is no list of a backup")
        names = [log.name for log in self.logs]
        if len(set(names)) < len(names):
            raise InvalidArgumentError("two logs have one name")
        for part in self.parts:
            if not (_PART.fullmatch(part.path) or _RUN.fullmatch(part.path)):
                msg = f"{part.path!r} is not the name of a part"
                raise InvalidArgumentError(msg)
        self._check_tables()

    def _check_tables(self) -> None:
        names = [table.name for table in self.tables]
        if len(set(names)) < len(names):
            raise InvalidArgumentError("two tables have one name")
        logs = {log.id: log for log in self.logs}
        for table in self.tables:
            ids = [table.id, *(tree.id for tree in table.trees)]
            log = logs.get(table.log)
            if log is None or not all(map(_IDENTITY.fullmatch, ids)):
                msg = f"table {table.name!r} is of no log"
                raise InvalidArgumentError(msg)
            flushed = [tree.flushed for tree in table.trees]
            # What is in no file is applied from the log, which must not begin later.
            if not (log.first <= table.pin <= min(flushed) + 1 <= log.end) or (
                max(flushed) >= log.end
            ):
                msg = f"the files of table {table.name!r} do not fit its log"
                raise InvalidArgumentError(msg)

    @property
    def log_parts(self) -> tuple[BackupPart, ...]:
        """The files with records."""
        streams = (stream for log in self.logs for stream in log.streams)
        return tuple(part for stream in streams for part in stream.parts)

    @property
    def parts(self) -> tuple[BackupPart | BackupRunFile, ...]:
        """The files that it needs."""
        tables = (file for table in self.tables for file in table.files)
        return (*self.log_parts, *tables)

    @property
    def records(self) -> int:
        """How many records it has."""
        return sum(log.records for log in self.logs)

    @property
    def bytes(self) -> int:
        """Bytes of its parts."""
        return sum(part.bytes for part in self.parts)


# -- names ---------------------------------------------------------------------------


def is_backup(name: str) -> bool:
    """Tell whether a backup may have this name."""
    return _ID.fullmatch(name) is not None


def list_name(backup: str) -> str:
    """Return the name of a list.

    Raises:
        InvalidArgumentError: no backup has this name.
    """
    return f"{LISTS}/{_checked(backup)}.json"


def running_name(backup: str) -> str:
    """Return the name of the note about a backup that is being made."""
    return f"{RUNNING}/{_checked(backup)}.json"


def part_name(
    source: str, log: str, stream: int, begin: int, end: int, backup: str
) -> str:
    """Return the name of a part that a backup makes."""
    numbers = f"{stream:010}-{begin:020}-{end:020}"
    return f"{PARTS}/{source}/{log}/{numbers}-{_checked(backup)}.part"


def run_name(source: str, table: str, tree: str, number: int, backup: str) -> str:
    """Return the name of the file of a table that a backup makes."""
    return f"{PARTS}/{source}/{table}/{tree}/{number:020}-{_checked(backup)}.run"


def owner_of(path: str) -> str | None:
    """Return which backup made a part, or its unfinished file; None: it is no part."""
    name = path.removesuffix(".tmp")
    found = _PART.fullmatch(name) or _RUN.fullmatch(name)
    return found and found[1]


def _checked(backup: str) -> str:
    if _ID.fullmatch(backup):
        return backup
    raise InvalidArgumentError(f"{backup!r} is not the name of a backup")


# -- bytes ---------------------------------------------------------------------------


def encode(backup: Backup) -> bytes:
    """Return a list as it is stored."""
    body = asdict(backup)
    for log in body["logs"]:
        for stream in log["streams"]:
            stream["producers"] = _text(stream["producers"])
    for table in body["tables"]:
        counters = table["counters"]
        table["counters"] = None if counters is None else _text(counters)
        for tree in table["trees"]:
            tree["image"] = _text(tree["image"])
    for name in ("tables", "hosts"):
        if not body[name]:
            del body[name]
    version = FORMAT if backup.tables else _WITHOUT_TABLES
    return documents.encode("backup", version, body)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def decode(data: bytes, path: str) -> Backup:
    """Return the list that was stored at a path.

    Raises:
        NewerFormatError: a later version wrote it.
        BackupDamagedError: it is not what was written.
    """
    what, damaged = "the list of a backup", BackupDamagedError
    return documents.decode(
        data, path, "backup", FORMAT, _backup, what=what, damaged=damaged
    )


def _backup(body: dict[str, Any]) -> Backup:
    known = get_type_hints(Backup)
    extra = {name: body[name] for name in body if name not in known}
    rest = {name: body[name] for name in body if name in known}
    return typed(
        Backup,
        rest
        | {
            "source": typed(BackupSource, body["source"]),
            "logs": tuple(_log(row) for row in body["logs"]),
            "tables": tuple(_table(row) for row in body.get("tables", ())),
            "extra": {**body.get("extra", {}), **extra},
        },
    )


def _log(row: dict[str, Any]) -> BackupLog:
    cursors = tuple(typed(BackupCursor, each) for each in row["cursors"])
    streams = tuple(_stream(each) for each in row["streams"])
    return typed(BackupLog, row | {"cursors": cursors, "streams": streams})


def _stream(row: dict[str, Any]) -> BackupStream:
    parts = tuple(typed(BackupPart, each) for each in row["parts"])
    producers = _bytes(row["producers"])
    return typed(BackupStream, row | {"parts": parts, "producers": producers})


def _table(row: dict[str, Any]) -> BackupTable:
    counters = row["counters"]
    made = {
        "indexes": tuple(typed(BackupIndex, each) for each in row["indexes"]),
        "counters": None if counters is None else _bytes(counters),
        "trees": tuple(_tree(each) for each in row["trees"]),
    }
    return typed(BackupTable, row | made)


def _tree(row: dict[str, Any]) -> BackupTree:
    runs = tuple(typed(BackupRunFile, each) for each in row["runs"])
    return typed(BackupTree, row | {"image": _bytes(row["image"]), "runs": runs})


def newest(backups: Iterable[Backup]) -> Backup | None:
    """Return the backup that was taken last."""
    return max(backups, key=lambda each: (each.time, each.id), default=None)


def forgotten(first: int) -> bytes:
    """Return windows that know of nobody, but that some may have been below ``first``.

    `producer_window` of id 0, as docs/formats.md has it.
    """
    if first <= 1:
        return struct.pack("<I", 0)
    return struct.pack("<IQIIQQQ", 1, 0, 0, 1, 1, 1, first - 1)
