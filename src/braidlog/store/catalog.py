"""What the catalog stores of a log, and how it is described to people.

Pure: options are encoded as JSON in the catalog entry of the log; unknown keys of a
newer build are kept when options are rewritten.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast, get_args

from braidlog.errors import ForeignFormatError, InvalidArgumentError
from braidlog.types import Compression

# Milliseconds of a retention become microseconds, which are 64 bits wide.
_RETENTION_MAX: Final = (1 << 63) // 1000 - 1

_KNOWN: Final = ("compression", "retention_ms", "retention_bytes")
_OF_A_NODE: Final = (
    "Read the logs of a cluster through its nodes: `braidlog.connect`, or --cluster"
)
# Builds that do not know it keep it: it is stored among what is unknown.
_ARCHIVE: Final = "archive"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a log is stored and how long its records are kept."""

    compression: Compression = "none"
    retention_ms: int | None = None
    retention_bytes: int | None = None
    # A dict has no hash; equal options have the same one without it.
    unknown: dict[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.compression not in get_args(Compression):
            known = ", ".join(get_args(Compression))
            msg = f"compression must be one of {known}, got {self.compression!r}"
            raise InvalidArgumentError(msg)
        for name in ("retention_ms", "retention_bytes"):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                kinds = "an int, a timedelta" if name == "retention_ms" else "an int"
                msg = f"{name} must be {kinds} or None, not {value!r}"
                raise InvalidArgumentError(msg)
            if not 0 <= value <= _RETENTION_MAX:
                msg = f"{name} must be from 0 to {_RETENTION_MAX}, got {value}"
                raise InvalidArgumentError(msg)

    @property
    def archive(self) -> str | None:
        """Where the archive of the log is, if it has one: a path or a URI."""
        found = self.unknown.get(_ARCHIVE)
        return found if isinstance(found, str) else None

    def archived_at(self, location: str | None) -> LogOptions:
        """Return the same with another place of the archive; None for none."""
        rest = {key: value for key, value in self.unknown.items() if key != _ARCHIVE}
        if location is not None:
            rest[_ARCHIVE] = location
        return replace(self, unknown=rest)

    @property
    def lets_go(self) -> bool:
        """Whether there is any retention to apply."""
        return self.retention_ms is not None or self.retention_bytes is not None

    def encode(self) -> bytes:
        """Encode for the catalog."""
        known = {name: getattr(self, name) for name in _KNOWN}
        return json.dumps(self.unknown | known, sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> LogOptions:
        """Decode what the catalog stores; keeps what a newer build added.

        Raises:
            InvalidArgumentError: they are no options; nothing else is raised.
        """
        stored = _stored(data)
        known = {name: stored.pop(name) for name in _KNOWN if name in stored}
        return cls(**known, unknown=stored)

    @classmethod
    def decode_or_default(cls, data: bytes) -> LogOptions:
        """Decode options that no check may have seen; the defaults if they are none.

        Nodes of earlier versions took any bytes for the options of a log.
        """
        try:
            return cls.decode(data)
        except InvalidArgumentError:
            return cls()


def _stored(data: bytes) -> dict[str, Any]:
    """Return the JSON object in some bytes; an empty one of no bytes.

    Raises:
        InvalidArgumentError: it is none.
    """
    try:
        stored = json.loads(data) if data else {}
    # Arrays in arrays without end have an error of their own.
    except (ValueError, RecursionError) as error:
        msg = f"the options of the log are not valid JSON: {error}"
        raise InvalidArgumentError(msg) from error
    if not isinstance(stored, dict):
        kind = type(stored).__name__
        msg = f"the options of the log must be a JSON object, not {kind}"
        raise InvalidArgumentError(msg)
    return stored


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One log as the catalog lists it."""

    name: str
    id: int
    stream: int
    created: int
    options: LogOptions
    epoch: int
    cursors: dict[str, tuple[int, bool, int, int]]

    @classmethod
    def of(cls, name: str, row: tuple[Any, ...]) -> CatalogEntry:
        """Build from a row of the native state.

        Raises:
            ForeignFormatError: It is none of a log: a node of a cluster keeps its own
                streams in the same catalog, with options in other encodings.
        """
        log_id, stream, created, options, epoch, cursors = row
        try:
            _stored(cast("bytes", options))
        except InvalidArgumentError as error:
            msg = (
                f"{name!r} is not a log: this is the data directory of a cluster's node"
            )
            foreign = ForeignFormatError(msg)
            foreign.hint = _OF_A_NODE
            raise foreign from error
        decoded = LogOptions.decode(cast("bytes", options))
        return cls(name, log_id, stream, created, decoded, epoch, cursors)


@dataclass(frozen=True, slots=True)
class LogDescription:
    """What there is to know of a log. Times in microseconds since the epoch."""

    name: str
    id: str
    stream: int
    created: int
    epoch: int
    first: int
    end: int
    records: int
    bytes: int
    segments: int
    compression: Compression
    retention_ms: int | None
    retention_bytes: int | None
    cursors: int


@dataclass(frozen=True, slots=True)
class LogStats:
    """Figures of one log: ``first`` to ``end`` are positions, half-open."""

    first: int
    end: int
    records: int
    bytes: int
    segments: int
    timestamp_min: int | None
    timestamp_max: int | None


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Part of a log stored in one segment: positions ``begin`` to ``end``."""

    number: int
    begin: int
    end: int
    bytes: int
    frames: int
    timestamp_min: int
    timestamp_max: int
    moved: bool
