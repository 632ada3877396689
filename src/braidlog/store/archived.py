"""Reads a log that goes on below its first position, in its archive."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

from braidlog.errors import NotFoundError, TrimmedError
from braidlog.store.arguments import (
    TimestampLike,
    checked_count,
    checked_key,
    checked_position,
    checked_time,
    optional,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

    from braidlog._native import Record
    from braidlog.archive import Archive
    from braidlog.archive.seam import Piece

__all__ = [
    "Archived",
    "WithArchive",
    "located",
    "named",
    "read_batches",
    "read_records",
]

Archived: TypeAlias = "bool | str | os.PathLike[str]"
"""Whether to read the archive too: the recorded one, or the one at a place."""

T = TypeVar("T")

# Records that are taken from the log at a time: enough that the cost of a step does not
# count, few enough that the first ones come at once.
_CHUNK: Final = 1024


def named(include: Archived) -> str | os.PathLike[str] | None:
    """Return the place that a caller named; None is the recorded one."""
    return None if isinstance(include, bool) else include


class WithArchive(Protocol):
    """What reading needs of a log."""

    @property
    def name(self) -> str:
        """Name of the log."""

    @property
    def first(self) -> int:
        """First position of the log."""

    @property
    def end(self) -> int:
        """Next position of the log."""

    def archive(self, location: str | os.PathLike[str] | None = None) -> Archive:
        """Open the archive of the log."""

    def read(
        self,
        begin: int | None = None,
        end: int | None = None,
        *,
        key: Buffer | None = None,
        since: int | None = None,
        until: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Record]:
        """Iterate over records of the log."""

    def batches(
        self,
        begin: int | None = None,
        end: int | None = None,
        *,
        columns: list[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Iterate over batches of the log."""


def located(
    name: str, recorded: str | None, given: str | os.PathLike[str] | None
) -> str | os.PathLike[str]:
    """Return where the archive of a log is: where it was said, or recorded to be.

    Raises:
        NotFoundError: nobody said.
    """
    if given is not None:
        return given
    if recorded is None:
        msg = f"log {name!r} does not record where its archive is"
        hint = "Pass the location, or record it with `Log.set_archive`"
        raise NotFoundError(msg).advising(hint)
    return recorded


class _Reading:
    """Positions ``begin`` to ``end``, piece by piece."""

    def __init__(
        self, log: WithArchive, include: Archived, begin: int | None, end: int | None
    ) -> None:
        from braidlog.archive import seam

        self._log, self._place = log, named(include)
        begin = None if begin is None else checked_position(begin, "begin")
        self._archive: Archive | None = None
        # The first before the end: between them it can only rise.
        first, stop = log.first, log.end
        if begin is None or begin < first:
            self._archive = log.archive(self._place)
        there, archived = range(first, stop), self._archived()
        self.position, self.end = seam.bounds(begin, end, there, archived)
        if self.position < self.end:
            self.piece()  # What is missing is said before the first record is given.

    def _archived(self) -> range:
        archive = self._archive
        return range(0) if archive is None else range(archive.begin, archive.end)

    def piece(self) -> Piece:
        """Return where to read next.

        Raises:
            TrimmedError: neither the log nor the archive has it.
        """
        from braidlog.archive import seam

        first = self._log.first
        piece = seam.next_piece(self.position, self.end, first, self._archived())
        if piece is not None:
            return piece
        if self._archive is None:
            self._archive = self._log.archive(self._place)
        else:
            self._archive.refresh()
        archived = self._archived()
        piece = seam.next_piece(self.position, self.end, first, archived)
        if piece is None:
            location = self._archive.location
            raise seam.missing(self.position, first, archived, location)
        return piece

    def chunks(
        self,
        of_archive: Callable[[Archive, int, int], Iterator[tuple[T, int]]],
        of_log: Callable[[int, int], Iterator[tuple[T, int]]],
    ) -> Iterator[T]:
        """Iterate over what the two give, with the position behind each."""
        while self.position < self.end:
            piece = self.piece()
            if piece.archived:
                assert self._archive is not None  # noqa: S101, RUF100
                found = of_archive(self._archive, piece.begin, piece.end)
                for chunk, self.position in found:
                    yield chunk
                self.position = piece.end  # Files of other times were passed over.
                continue
            try:
                for chunk, self.position in of_log(piece.begin, piece.end):
                    yield chunk
            except TrimmedError:
                if self.position >= self._log.first:
                    raise
            else:
                return

    def chunks_back(
        self,
        of_archive: Callable[[Archive, int, int], Iterator[tuple[T, int]]],
        of_log: Callable[[int, int], Iterator[tuple[T, int]]],
    ) -> Iterator[T]:
        """Iterate from the end over what the two give, with where each begins."""
        while self.position < self.end:
            first = self._log.first
            if self.end <= first:
                piece = self.piece()
                assert self._archive is not None  # noqa: S101, RUF100
                found = of_archive(self._archive, piece.begin, self.end)
                for chunk, self.end in found:
                    yield chunk
                self.end = piece.begin
                continue
            begin = max(self.position, first)
            try:
                found = of_log(begin, self.end)
                for chunk, self.end in found:
                    yield chunk
            except TrimmedError:
                if begin >= self._log.first:
                    raise
            else:
                self.end = begin


def read_records(
    log: WithArchive,
    include: Archived,
    begin: int | None,
    end: int | None,
    *,
    key: Buffer | None = None,
    since: TimestampLike | None = None,
    until: TimestampLike | None = None,
    limit: int | None = None,
    reverse: bool = False,
) -> Iterator[Record]:
    """Iterate over records of a log and its archive; see `Log.read`."""
    from braidlog.archive.rows import Choice

    limit = None if limit is None else checked_count(limit, "limit")
    plain = optional(checked_key, key)
    since, until = optional(checked_time, since), optional(checked_time, until)
    choice = Choice(plain, since, until)
    reading = _Reading(log, include, begin, end)

    def of_log(begin: int, stop: int) -> Iterator[tuple[list[Record], int]]:
        records = log.read(
            begin, stop, key=plain, since=since, until=until, reverse=reverse
        )
        while chunk := list(itertools.islice(records, _CHUNK)):
            yield chunk, chunk[-1].position + (0 if reverse else 1)

    def of_archive(
        archive: Archive, begin: int, stop: int
    ) -> Iterator[tuple[list[Record], int]]:
        return archive.records(begin, stop, choice=choice, reverse=reverse)

    walk = reading.chunks_back if reverse else reading.chunks
    chunks = walk(of_archive, of_log)
    return itertools.islice(itertools.chain.from_iterable(chunks), limit)


def read_batches(
    log: WithArchive,
    include: Archived,
    begin: int | None,
    end: int | None,
    columns: list[str] | None,
) -> Iterator[pa.RecordBatch]:
    """Iterate over batches of a log and its archive; see `Log.batches`."""
    reading = _Reading(log, include, begin, end)

    def counted(
        begin: int, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        for batch in batches:
            begin += batch.num_rows
            yield batch, begin

    return reading.chunks(
        lambda archive, begin, stop: counted(
            begin, archive.batches(begin, stop, columns=columns)
        ),
        lambda begin, stop: counted(begin, log.batches(begin, stop, columns=columns)),
    )
