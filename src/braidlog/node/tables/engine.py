"""What a host needs of whatever holds the records of a table, and of its files.

Every call that touches a disk, or takes long, is made by a worker and never by the
event loop. All of them may be made by several threads at a time, but for `apply`, which
one makes after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from braidlog.wire.rows import PinnedFile
from braidlog.wire.tables import IndexInfo, TableInfo

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "Divided",
    "Engine",
    "FoundRows",
    "HostedTable",
    "Lease",
    "LogPiece",
    "Pinned",
    "ScanBounds",
    "TableFiles",
]


class LogPiece(NamedTuple):
    """Records ``skip`` to ``skip + records`` of a batch, the first one at ``first``."""

    batch: Buffer
    first: int
    skip: int
    records: int


@dataclass(frozen=True, slots=True)
class ScanBounds:
    """Which rows a scan is after; ``begin`` and ``end`` as the tree orders them."""

    tree: bytes
    begin: bytes
    end: bytes | None
    reverse: bool
    count_max: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows as of a position."""

    position: int
    batch: bytes
    """The records as one batch; empty if there are none."""
    positions: tuple[int, ...] = ()
    found: tuple[int, ...] = ()
    """Which of the keys that were asked for they have."""
    looked: int = 0
    """How many of these keys were looked up."""
    next: bytes | None = None
    """Where the scan goes on; None: it is over."""


@dataclass(frozen=True, slots=True)
class Divided:
    """Where to divide a scan, as of a position."""

    position: int
    parts: tuple[tuple[bytes, int], ...]
    """First key and bytes of files of each part, in order."""
    whole: int
    """Bytes of files of all of the tree."""


class Lease(Protocol):
    """Keeps what a position sees, until it is let go of."""

    def release(self) -> None:
        """Let go of it."""


class Pinned(Protocol):
    """The files of one version of a table; none of them goes away or changes."""

    @property
    def flushed(self) -> int:
        """Everything up to this position is in them."""

    @property
    def files(self) -> tuple[PinnedFile, ...]:
        """What there is to copy."""

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Read a part of one of them; shorter at its end.

        Raises:
            NotFoundError: it is none of them.
            CorruptionError: it cannot be read.
        """

    def release(self) -> None:
        """Let go of them."""


class HostedTable(Protocol):
    """A table that is open."""

    @property
    def applied(self) -> int:
        """Everything up to this position is applied.

        After an open that may be said of less, to be given the last record once more.
        """

    @property
    def reached(self) -> int:
        """Last position of which something is here."""

    @property
    def flushed(self) -> int:
        """Everything up to this position is in files."""

    @property
    def floor(self) -> int:
        """Lowest position that it can be read at."""

    @property
    def is_full(self) -> bool:
        """Whether memory has to be flushed before more is applied."""

    @property
    def memory_bytes(self) -> int:
        """What is in memory and not in files; what is being flushed counts."""

    def apply(self, pieces: Sequence[LogPiece]) -> None:
        """Apply what the log has next. What was applied before is passed over.

        Raises:
            CorruptionError: the log is not the one that the table was made of.
        """

    def get_rows(self, keys: Sequence[bytes], at: int, bytes_max: int) -> FoundRows:
        """Look keys up, as many as ``bytes_max`` allows, one at least; ``at`` 0: now.

        Raises:
            TrimmedError: it cannot be read at that position any more.
            BeyondEndError: it is not applied yet.
        """

    def scan_rows(self, bounds: ScanBounds, at: int) -> FoundRows:
        """Read rows in order, one at least; ``at`` 0: now.

        Raises:
            TrimmedError, BeyondEndError: as `get_rows`.
            NotFoundError: there is no such index.
            NotReadyError: the index is still being built here.
        """

    def divide(self, bounds: ScanBounds, at: int) -> Divided:
        """Divide what a scan reads into parts of about ``bytes_max`` bytes of files.

        There are ``count_max`` parts at most.

        Raises:
            LogError: as `scan_rows`.
        """

    def lease(self, position: int) -> Lease:
        """Keep what a position sees.

        Raises:
            TrimmedError: some of it is gone.
        """

    def flush(self) -> bool:
        """Write what is in memory; False if there was nothing to do."""

    def merge(self) -> bool:
        """Merge some files; False if there was nothing to do."""

    def attach(self, index: IndexInfo) -> None:
        """Begin an index, if there is none of its identity."""

    def build(self, tree: bytes, goes_on: Callable[[], bool]) -> bool:
        """Build an index; False if ``goes_on`` said no. Nothing if it is built.

        Raises:
            InvalidArgumentError: a record cannot be in it; it is aborted everywhere.
        """

    def detach(self, tree: bytes) -> None:
        """Give an index up, built or not."""

    def pin(self) -> Pinned:
        """Keep the files as they are.

        Raises:
            CorruptionError: some of it is damaged.
        """

    def verify(self, goes_on: Callable[[int], bool]) -> tuple[int, int] | None:
        """Read everything, and compare indexes with records.

        ``goes_on`` is told how many records and entries were read, and says whether to
        read on; None if not. Else returns how many records there are, and how many
        entries of indexes.

        Raises:
            CorruptionError: some of it cannot be read, or an index has not what it
                should.
        """

    def stats(self) -> dict[str, int | str]:
        """Return figures by name."""

    def close(self) -> None:
        """Let go of it; what is not flushed is applied again after the next open."""


class TableFiles(Protocol):
    """Directories of tables: those in use, and copies that are not whole yet."""

    def tables(self) -> list[bytes]:
        """Return the tables of which there is something, in use or not."""

    def has(self, table: bytes) -> bool:
        """Tell whether a table is here. A copy that became whole is put in use."""

    def trash(self, table: bytes) -> None:
        """Take everything of a table away. It may be repeated."""

    def staged(self, table: bytes, files: Sequence[PinnedFile]) -> dict[str, int]:
        """Begin or go on with a copy: drop what is not of these files.

        Returns how many bytes there are of each.
        """

    def write(self, table: bytes, path: str, offset: int, data: Buffer) -> None:
        """Write a part of a file behind what there is of it."""

    def check(self, table: bytes, file: PinnedFile) -> bool:
        """Tell whether a file is whole; one that is not is dropped."""

    def install(self, table: bytes, files: Sequence[PinnedFile]) -> None:
        """Make the copy durable, and put it in the place of what is there.

        All of it happens or nothing, whenever it is cut short.
        """


class Engine(Protocol):
    """Opens tables."""

    @property
    def files(self) -> TableFiles:
        """Where their files are."""

    def open(self, table: TableInfo, first: int) -> HostedTable:
        """Open a table; make it if nothing is here. The log begins at ``first``.

        Raises:
            MissingFileError: something is not here, and the log does not reach back to
                where the table began.
            CorruptionError: it cannot be read.
        """
