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

Archived: TypeAlias = "bool | str | os.PathLike[str]"
"""Whether to read the archive too: the recorded one, or the one at a place."""

T = TypeVar("T")

# Records that are taken from the log at a time: enough that the cost of a step does not
# count, few enough that the first ones come at once.
_CHUNK: Final = 1024


def named(include: Archived) -> str | os.PathLike[str] | None:
    """Return the place that a caller named; None is the recorded one."""
    return None if isinstance(include, bool) else include


class TrimmedLog(Protocol):
    """The log that an archive is in front of, as reading both needs it."""

    @property
    def first(self) -> int:
        """First position of the log."""

    @property
    def end(self) -> int:
        """Next position of the log."""

    def archive(self, location: str | os.PathLike[str] | None = None) -> Archive:
        """Open the archive of the log."""


class WithArchive(TrimmedLog, Protocol):
    """A log whose records and batches are read."""

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


class ArchivedReader:
    """Positions ``begin`` to ``end`` of a log and the archive in front of it.

    `braidlog.archive.seam` decides where to read next; this asks log and archive.
    """

    def __init__(
        self, log: TrimmedLog, include: Archived, begin: int | None, end: int | None
    ) -> None:
        """Find out what is to be read.

        Raises:
            TrimmedError: neither the log nor the archive has ``begin``.
            BeyondEndError: ``begin`` is above the end of the log.
            NotFoundError: ``begin`` is below the log, and there is no archive.
        """
        from braidlog.archive.seam import SeamProgress

        self._log, self._place = log, named(include)
        begin = None if begin is None else checked_position(begin, "begin")
        self._archive: Archive | None = None
        # The first before the end: between them it can only rise.
        first, stop = log.first, log.end
        if begin is None or begin < first:
            self._archive = log.archive(self._place)
        self._progress = SeamProgress(begin, end, range(first, stop), self._archive)
        if self._progress:
            self._piece()  # What is missing is said before the first record is given.

    def _piece(self) -> Piece:
        first = self._log.first
        piece = self._progress.next(first)
        if piece is None:
            if self._archive is None:
                self._archive = self._log.archive(self._place)
            else:
                self._archive.refresh()
            piece = self._progress.required(first, self._archive)
        return piece

    def chunks(
        self,
        of_archive: Callable[[Archive, int, int], Iterator[tuple[T, int]]],
        of_log: Callable[[int, int], Iterator[tuple[T, int]]],
        *,
        reverse: bool = False,
    ) -> Iterator[T]:
        """Iterate over what the two give, each chunk with the position behind it.

        In ``reverse`` it goes from the end, and each comes with where it begins.

        Raises:
            TrimmedError: neither the log nor the archive has what comes next.
        """
        progress = self._progress
        progress.reverse = reverse
        while progress:
            piece = self._piece()
            if piece.archived:
                assert self._archive is not None  # noqa: S101, RUF100
                found = of_archive(self._archive, piece.begin, piece.end)
            else:
                found = of_log(piece.begin, piece.end)
            try:
                for chunk, position in found:
                    progress.reached(position)
                    yield chunk
            except TrimmedError:
                if not progress.overtaken(piece, self._log.first):
                    raise
            else:
                progress.finish(piece)


def counted_batches(
    begin: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Iterate over batches from a position on, with the position behind each."""
    for batch in batches:
        begin += batch.num_rows
        yield batch, begin


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
    reader = ArchivedReader(log, include, begin, end)

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

    chunks = reader.chunks(of_archive, of_log, reverse=reverse)
    return itertools.islice(itertools.chain.from_iterable(chunks), limit)


def read_batches(
    log: WithArchive,
    include: Archived,
    begin: int | None,
    end: int | None,
    columns: list[str] | None,
) -> Iterator[pa.RecordBatch]:
    """Iterate over batches of a log and its archive; see `Log.batches`."""
    reader = ArchivedReader(log, include, begin, end)

    return reader.chunks(
        lambda archive, begin, stop: counted_batches(
            begin, archive.batches(begin, stop, columns=columns)
        ),
        lambda begin, stop: counted_batches(
            begin, log.batches(begin, stop, columns=columns)
        ),
    )
