"""What the catalog stores of a table, and how it is described to people. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from braidlog.errors import CorruptionError, InvalidArgumentError, NotFoundError

__all__ = [
    "MEMORY_BYTES_DEFAULT",
    "PARTS_MAX",
    "IndexDescription",
    "IndexEntry",
    "TableDescription",
    "TableEntry",
    "TableOptions",
    "TablePart",
    "TableStats",
    "index_given_up",
]

_DELETES: Final = ("null", "empty", "none", "header", "pattern")
_WITH_TEXT: Final = ("header", "pattern")

MEMORY_BYTES_DEFAULT: Final = 64 << 20
MEMORY_BYTES_MIN: Final = 1 << 16
MEMORY_BYTES_MAX: Final = 1 << 40
HISTORY_MAX: Final = (1 << 62) - 1
PARTS_MAX: Final = 1024
"""Parts into which a read is divided; beyond, each has more bytes."""

_KNOWN: Final = ("history", "memory_bytes", "deletes")
_AGAIN: Final = (
    "Append a record that the index can hold under the same key, or leave out "
    "`strict`, then create the index again"
)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How a table is kept."""

    history: int = 0
    """Positions behind the applied one that stay readable with `at`, at least."""
    memory_bytes: int = MEMORY_BYTES_DEFAULT
    """Bytes of its memory level, from which on it is written to a file."""
    deletes: str = "null"
    """Which records delete their key: those with a "null" value, an "empty" one too,
    "none", those with a header ("header:NAME"), or with a value that matches
    ("pattern:REGEX")."""
    # A dict has no hash; equal options have the same one without it.
    unknown: dict[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        _check("history", self.history, 0, HISTORY_MAX)
        _check("memory_bytes", self.memory_bytes, MEMORY_BYTES_MIN, MEMORY_BYTES_MAX)
        kind, text = self.rule
        if kind not in _DELETES or bool(text) != (kind in _WITH_TEXT):
            msg = (
                "deletes must be null, empty, none, header:NAME or pattern:REGEX, got "
                f"{self.deletes!r}"
            )
            raise InvalidArgumentError(msg)

    @property
    def rule(self) -> tuple[str, str]:
        """Kind and text of the rule for which records delete their key."""
        rule: object = self.deletes
        if not isinstance(rule, str):
            msg = f"deletes must be a str, not {type(rule).__name__}"
            raise InvalidArgumentError(msg)
        kind, _, text = rule.partition(":")
        return kind, text

    def encode(self) -> bytes:
        """Encode for the catalog; what a newer build added is kept."""
        known = {name: getattr(self, name) for name in _KNOWN}
        return json.dumps(self.unknown | known, sort_keys=True).encode()

    @classmethod
    @lru_cache(maxsize=256)  # All tables are looked at again and again.
    def decode(cls, data: bytes) -> TableOptions:
        """Decode what the catalog stores.

        Raises:
            CorruptionError: they are no options of a table.
        """
        try:
            stored = json.loads(data) if data else {}
            known = {name: stored.pop(name) for name in _KNOWN if name in stored}
            return cls(**known, unknown=stored)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            msg = f"the catalog has options of a table that are none: {error}"
            raise CorruptionError(msg) from error


def _check(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        msg = f"{name} must be an int, not {value!r}"
        raise InvalidArgumentError(msg)
    if not least <= value <= most:
        msg = f"{name} must be from {least} to {most}, got {value}"
        raise InvalidArgumentError(msg)


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An index as the catalog lists it."""

    name: str
    field: str
    tree: int
    active: bool
    position: int


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table as the catalog lists it; it needs its log from ``pin`` on."""

    name: str
    id: int
    log: str
    log_id: int
    stream: int
    created: int
    start: int
    primary: int
    options: TableOptions
    indexes: tuple[IndexEntry, ...]
    pin: int

    @classmethod
    def of(cls, row: dict[str, Any]) -> TableEntry:
        """Build from a row of the native catalog."""
        indexes = tuple(
            IndexEntry(
                index["name"],
                bytes(index["spec"]).decode(),
                index["tree"],
                index["active"],
                index["position"],
            )
            for index in row["indexes"]
        )
        options = TableOptions.decode(bytes(row["options"]))
        plain = {
            name: row[name]
            for name in (
                "name",
                "id",
                "log",
                "log_id",
                "stream",
                "created",
                "start",
                "primary",
                "pin",
            )
        }
        return cls(**plain, options=options, indexes=indexes)

    def index(self, name: str) -> IndexEntry | None:
        """Return the index of this name, if there is one."""
        return next((index for index in self.indexes if index.name == name), None)

    def is_of(self, other: TableEntry) -> bool:
        """Whether this is what became of another: renamed, truncated or rebuilt."""
        if self.id == other.id:
            return True
        mine = (self.log_id, self.created, self.name)
        return mine == (other.log_id, other.created, other.name)


def index_given_up(table: str, name: str, reason: str) -> NotFoundError:
    """Return the error of who asks for an index that could not be built."""
    msg = f"index {name!r} of table {table!r} was given up: {reason}"
    return NotFoundError(msg).advising(_AGAIN)


@dataclass(frozen=True, slots=True)
class IndexDescription:
    """An index: ``state`` is "active" or "building"."""

    name: str
    field: str
    state: Literal["active", "building"]
    missing: int
    """Records that should be in it and cannot: no JSON, or a value of another type."""
    missing_first: tuple[int, str] | None
    """Position of the first of them, and why it is missing."""


@dataclass(frozen=True, slots=True)
class TableDescription:
    """What there is to know of a table. Times in microseconds since the epoch."""

    name: str
    id: str
    log: str
    created: int
    start: int
    """Position of the first record that counts."""
    applied: int
    """Position of the last record that it has."""
    lag: int
    """Records of the log that it does not have yet."""
    pin: int
    """First position of the log that it still needs."""
    oldest: int
    """First position that `at` can read at."""
    history: int
    memory_bytes_max: int
    deletes: str
    indexes: tuple[IndexDescription, ...]
    left_out: int
    """Records without a key, or with one that is too long."""
    left_out_first: int | None
    """Position of the first of them."""
    failure: str | None = None
    """Why the table cannot be kept up to date at the moment."""


class TablePart(NamedTuple):
    """A part of a table or of an index, to be read by itself."""

    begin: bytes
    """First key of it, of an index as that orders them."""
    end: bytes | None
    """Key behind the last one; None: up to the end."""
    bytes: int
    """About how many bytes of files it has."""


@dataclass(frozen=True, slots=True)
class TableStats:
    """Figures of a table, of all its trees together. Sizes in bytes."""

    applied: int
    flushed: int
    """Everything up to this position is in files."""
    entries: int
    """Entries in files and in memory: versions and tombstones count."""
    memory_bytes: int
    file_bytes: int
    files: int
    ranges: int
    flushes: int
    merges: int
    left_out: int
