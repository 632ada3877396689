"""What clients and hosts of tables say to one another, and hosts among themselves.

Part of `braidlog.wire.messages`, under the same rules. Any node takes these requests;
it answers those about tables that it keeps, and refuses the others with
`NotReadyError`, so that the client looks where the table is.

A host that joins copies files of another one, and so does a client that backs them up:
it pins a version of them, fetches each in parts, checks them, and lets the version go.
A pin ends by itself when nobody has asked for a part of it for a while.
"""

from __future__ import annotations

from typing import Final

from braidlog.wire.base import Message, Number, Value

__all__ = [
    "SHARED_LEASE",
    "DivideTable",
    "FetchRun",
    "FlushTable",
    "GetRows",
    "GetTable",
    "PinRuns",
    "PinnedFile",
    "PinnedRuns",
    "ReleaseRows",
    "Rows",
    "RunPart",
    "ScanRows",
    "TableCheck",
    "TableParts",
    "TableStatus",
    "UnpinRuns",
    "VerifyTable",
]

SHARED_LEASE: Final = 2**63 - 1
"""Number of the lease that a position has once, for whoever reads there: it goes over
to the connection that asked last. Nobody releases it. Needs `Feature.TABLE_PARTS`."""


class GetRows(Message, frozen=True, array_like=True):
    """Look keys up in a table; answered in their order."""

    KIND = 64
    table: bytes
    keys: tuple[bytes, ...]
    at: Number = 0
    """Position to look at; 0: the newest that the host has applied."""
    after: Number = 0
    """Position that the host has to have applied."""
    wait_ms: Number = 0
    """How long it may wait for that."""


class ScanRows(Message, frozen=True, array_like=True):
    """Read keys of a table in order, or entries of one of its indexes."""

    KIND = 65
    table: bytes
    tree: bytes
    """Identity of the index; empty: by key."""
    begin: bytes
    end: bytes | None
    """Half-open, as the tree orders them; None: to the last."""
    reverse: bool
    """From the end to the begin."""
    count_max: Number
    bytes_max: Number
    at: Number = 0
    after: Number = 0
    wait_ms: Number = 0
    lease_ms: Number = 0
    """For how long the host has to be able to answer at the same position again."""
    lease: Number = 0
    """Which lease of this connection that is, for `ReleaseRows`; or `SHARED_LEASE`."""


class Rows(Message, frozen=True, array_like=True):
    """Answer: records as one batch in the payload; none if there are none."""

    KIND = 66
    position: Number
    """What it is as of: `at`, or what the host had applied."""
    positions: tuple[Number, ...]
    """Of each record."""
    found: tuple[Number, ...]
    """Which of the keys of a `GetRows` they are, counted from 0; else empty."""
    next: bytes | None = None
    """Where a scan goes on: as `begin`, or as `end` in reverse; None: it is over."""
    looked: Number = 0
    """How many of the keys of a `GetRows` were looked up, from the first."""


class GetTable(Message, frozen=True, array_like=True):
    """Ask a host how its copy of a table is."""

    KIND = 67
    table: bytes
    after: Number = 0
    wait_ms: Number = 0


class TableStatus(Message, frozen=True, array_like=True):
    """Answer: how far the copy is, and what it consists of."""

    KIND = 68
    applied: Number
    flushed: Number
    floor: Number
    """Lowest position that it can be read at."""
    joined: bool
    figures: dict[str, int | str]
    """Bytes, keys, files and more, by name."""


class PinRuns(Message, frozen=True, array_like=True):
    """Keep the files of a table as they are now, for me to copy."""

    KIND = 69
    table: bytes
    lease_ms: Number


class PinnedFile(Value, frozen=True, array_like=True):
    """A file of a pinned version."""

    path: str
    """Below the directory of the table."""
    bytes: Number
    checksum: Number
    """CRC-32 of all of it, as of zlib."""


class PinnedRuns(Message, frozen=True, array_like=True):
    """Answer: the files, from which a table can be opened that has all up to there."""

    KIND = 70
    pin: Number
    flushed: Number
    files: tuple[PinnedFile, ...]


class FetchRun(Message, frozen=True, array_like=True):
    """Fetch a part of a pinned file."""

    KIND = 71
    pin: Number
    path: str
    offset: Number
    bytes_max: Number


class RunPart(Message, frozen=True, array_like=True):
    """Answer: the part in the payload."""

    KIND = 72
    offset: Number


class UnpinRuns(Message, frozen=True, array_like=True):
    """Let go of the files: they were copied, or are not needed any more.

    Answered with a `RunPart` without bytes. Refused on another connection than that
    which pinned them, while that is open.
    """

    KIND = 73
    pin: Number


class FlushTable(Message, frozen=True, array_like=True):
    """Write to files what a host has applied, and let its log go on.

    Answered with a `TableStatus` when the pin of the host stands behind what is in
    files. Needs `Feature.TABLE_TASKS`.
    """

    KIND = 74
    table: bytes
    after: Number = 0
    """Position that the host has to have applied before."""
    wait_ms: Number = 0
    """How long it may wait for that."""


class VerifyTable(Message, frozen=True, array_like=True):
    """Have a host read all of its table, or ask how far it is with that.

    The host goes on as long as somebody asks. Needs `Feature.TABLE_TASKS`.
    """

    KIND = 75
    table: bytes
    check: bytes
    """Random identity, 16 bytes: a repeated request asks about the same check."""
    after: Number = 0
    """Position that the host has to have applied before it begins."""
    wait_ms: Number = 0
    """How long it may wait for that, and then for the end of the check."""


class TableCheck(Message, frozen=True, array_like=True):
    """Answer: how far a check is, and what it came to when it is done."""

    KIND = 76
    read: Number
    """Records and entries of indexes that were read so far."""
    done: bool
    records: Number = 0
    entries: Number = 0
    """Of all indexes."""
    damage: str = ""
    """What is damaged; empty: nothing, as far as it was read."""
    path: str = ""
    """The file that is damaged, and where in it."""
    offset: Number = 0


class ReleaseRows(Message, frozen=True, array_like=True):
    """Let go of a position that was kept by `ScanRows.lease_ms`, before its time.

    Answered with `Rows` without rows, also if it is kept no more. A shared lease stays.
    Needs `Feature.RELEASES`.
    """

    KIND = 77
    table: bytes
    position: Number
    lease: Number


class DivideTable(Message, frozen=True, array_like=True):
    """Ask where to divide a scan, so that several read a part each.

    Needs `Feature.TABLE_PARTS`.
    """

    KIND = 78
    table: bytes
    tree: bytes
    """Identity of the index; empty: by key."""
    begin: bytes
    end: bytes | None
    bytes_each: Number
    """About so many bytes of files in each part."""
    parts_max: Number
    at: Number = 0
    after: Number = 0
    wait_ms: Number = 0


class TableParts(Message, frozen=True, array_like=True):
    """Answer: parts in order, each up to the next one, and the last up to the end."""

    KIND = 79
    position: Number
    begins: tuple[bytes, ...]
    """The first key of each, as the tree orders them."""
    sizes: tuple[Number, ...]
    """About how many bytes of files each has."""
    whole: Number
    """About how many bytes of files the tree has."""
