"""The rows that looking at files gives. Pure.

Field names are what `--json` prints; the native core fills most of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Range:
    """Records of one stream in a segment; lanes above 0 are copies by the cleaner."""

    log: str | None
    stream: int
    lane: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Segment:
    """One slot; `number` is None where it is free."""

    number: int | None
    slot: int
    path: str
    state: str
    bytes: int
    end: int
    salt: str
    streams: int
    records: int
    live: bool
    side: str | None
    problem: str | None
    logs: list[Range]


@dataclass(frozen=True, slots=True)
class Batch:
    """What the head of a record batch says."""

    compression: str
    records: int
    raw_bytes: int
    timestamp_min: int
    timestamp_max: int
    producer: int
    producer_epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame, or bytes that are none: then `kind` and what follows it are None."""

    offset: int
    length: int
    ok: bool
    problem: str | None
    log: str | None
    kind: str | None = None
    stream: int | None = None
    epoch: int | None = None
    first: int | None = None
    count: int | None = None
    durable: int | None = None
    ordinal: int | None = None
    head: int | None = None
    batch: Batch | None = None


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """What a segment holds of a stream, in one lane."""

    segment: int
    log: str | None
    stream: int
    lane: int
    first: int
    end: int
    frames: int
    bytes: int
    samples: int
    runs: int
    cuts: int
    timestamp_min: int | None
    timestamp_max: int | None


@dataclass(frozen=True, slots=True)
class Sample:
    """A frame that the number index remembers."""

    segment: int
    log: str | None
    stream: int
    lane: int
    first: int
    offset: int


@dataclass(frozen=True, slots=True)
class Edit:
    """One operation of an edit; `number` is None for bytes that are none."""

    number: int | None
    file: str
    offset: int
    operation: str
    details: str
    problem: str | None


@dataclass(frozen=True, slots=True)
class Watermark:
    """How far the writer said the log is durable."""

    segment: int
    salt: str
    durable: int


@dataclass(frozen=True, slots=True)
class Producer:
    """Sequences of a producer whose positions are known."""

    id: int
    epoch: int
    first_sequence: int
    next_sequence: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """A named position; times in microseconds."""

    name: str
    position: int
    pin: bool
    touched: int
    lease: int


@dataclass(frozen=True, slots=True)
class LogState:
    """One log as recovery sees it."""

    name: str
    id: str
    stream: int
    created: int
    options: dict[str, Any]
    first: int
    committed: int
    end: int
    epoch: int
    epochs: list[tuple[int, int]]
    commit: dict[str, Any]
    producers: list[Producer]
    cursors: list[Cursor]


@dataclass(frozen=True, slots=True)
class IndexState:
    """An index of a table: `state` is "building" or "active", since `position`."""

    name: str
    tree: str
    field: str
    state: str
    position: int


@dataclass(frozen=True, slots=True)
class TableState:
    """One table as recovery sees it; it needs its log from `pin` on."""

    name: str
    id: str
    log: str
    created: int
    start: int
    pin: int
    primary: str
    options: dict[str, Any]
    indexes: list[IndexState]


@dataclass(frozen=True, slots=True)
class State:
    """What the next open would find.

    `recovery` is "clean", "not closed", "torn tail", "corruption", "in use" or "empty";
    `fault` says where and why. `guesses` is what had to be made up to show the rest.
    """

    recovery: str
    fault: str | None
    guesses: list[str]
    node: str | None
    segment_bytes: int | None
    segments: int
    end_segment: int | None
    end_offset: int | None
    watermark: Watermark | None
    holder: str | None
    orphans: list[str]
    foreign: list[str]
    salvaged: Any
    logs: list[LogState]
    tables: list[TableState]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that verification found: "corruption", "degraded" or a "note"."""

    severity: str
    path: str
    offset: int | None
    problem: str
    next_step: str


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """What becomes of a log."""

    log: str
    first: int
    end: int
    kept_first: int
    kept_end: int


@dataclass(frozen=True, slots=True)
class LostRange:
    """Records that a repair loses; `log` None, `records` 0 where nothing tells."""

    log: str | None
    first: int
    end: int
    records: int
    reason: str


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that cannot be trusted."""

    path: str
    offset: int
    end: int
    problem: str
