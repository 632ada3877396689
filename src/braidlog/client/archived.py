"""Reads a log of a cluster that goes on below its first position, in its archive.

The archive is read in a thread, a step ahead: records of it come through no node.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from braidlog.errors import TrimmedError
from braidlog.store.archived import Archived, named
from braidlog.store.arguments import checked_position
from braidlog.store.threads import in_thread

if TYPE_CHECKING:
    from os import PathLike

    import pyarrow as pa

    from braidlog._native import Record
    from braidlog.archive import Archive
    from braidlog.archive.seam import Piece

__all__ = ["ArchivedReading", "Wanted", "stepwise"]

T = TypeVar("T")

Wanted: TypeAlias = tuple[bytes | None, int | None, int | None]
"""Key, since and until of the records that are wanted."""


class ArchivedLog(Protocol):
    """A log, as reading it with its archive needs it."""

    async def refresh(self) -> range:
        """Return the positions that the log has now."""

    async def archive(self, place: str | PathLike[str] | None = None) -> Archive:
        """Open the archive, which is at ``place`` unless the log says another."""


class ArchivedReading:
    """Positions ``begin`` to ``end`` of a log and its archive, piece by piece."""

    def __init__(self, log: ArchivedLog, include: Archived) -> None:
        """Begin with `open`."""
        self._log = log
        self._place = named(include)
        self._archive: Archive | None = None
        self.position = self.end = 0

    async def open(self, begin: int | None, end: int | None) -> None:
        """Find out what is to be read.

        Raises:
            TrimmedError: neither the log nor the archive has ``begin``.
            BeyondEndError: ``begin`` is above the end of the log.
        """
        from braidlog.archive import seam

        begin = None if begin is None else checked_position(begin, "begin")
        there = await self._log.refresh()
        if begin is None or begin < there.start:
            self._archive = await self._log.archive(self._place)
        self.position, self.end = seam.bounds(begin, end, there, self._archived())
        if self.position < self.end:
            await self.piece()

    def _archived(self) -> range:
        archive = self._archive
        return range(0) if archive is None else range(archive.begin, archive.end)

    async def piece(self) -> Piece:
        """Return where to read next.

        Raises:
            TrimmedError: neither the log nor the archive has it.
        """
        from braidlog.archive import seam

        first = (await self._log.refresh()).start
        piece = seam.next_piece(self.position, self.end, first, self._archived())
        if piece is not None:
            return piece
        if self._archive is None:
            self._archive = await self._log.archive(self._place)
        else:
            await in_thread(self._archive.refresh)
        archived = self._archived()
        piece = seam.next_piece(self.position, self.end, first, archived)
        if piece is None:
            location = self._archive.location
            raise seam.missing(self.position, first, archived, location)
        return piece

    def records(
        self,
        wanted: Wanted,
        of_log: Callable[
            [int, int, Wanted], AsyncGenerator[tuple[list[Record], int], None]
        ],
        *,
        reverse: bool = False,
    ) -> AsyncGenerator[list[Record], None]:
        """Iterate over chunks of wanted records; ``of_log`` goes the same way."""
        from braidlog.archive.rows import Choice

        choice = Choice(*wanted)

        def of_archive(
            archive: Archive, begin: int, end: int
        ) -> Iterator[tuple[list[Record], int]]:
            return archive.records(begin, end, choice=choice, reverse=reverse)

        walk = self.chunks_back if reverse else self.chunks
        return walk(of_archive, lambda begin, end: of_log(begin, end, wanted))

    def batches(
        self,
        columns: list[str],
        of_log: Callable[[int, int, list[str]], AsyncGenerator[pa.RecordBatch, None]],
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """Iterate over batches with these columns."""

        def archived(
            archive: Archive, begin: int, end: int
        ) -> Iterator[tuple[pa.RecordBatch, int]]:
            for batch in archive.batches(begin, end, columns=columns):
                begin += batch.num_rows
                yield batch, begin

        async def rest(
            begin: int, end: int
        ) -> AsyncGenerator[tuple[pa.RecordBatch, int], None]:
            async with contextlib.aclosing(of_log(begin, end, columns)) as batches:
                async for batch in batches:
                    begin += batch.num_rows
                    yield batch, begin

        return self.chunks(archived, rest)

    async def chunks(
        self,
        of_archive: Callable[[Archive, int, int], Iterator[tuple[T, int]]],
        of_log: Callable[[int, int], AsyncGenerator[tuple[T, int], None]],
    ) -> AsyncGenerator[T, None]:
        """Iterate over what the two give, with the position behind each."""
        while self.position < self.end:
            piece = await self.piece()
            if piece.archived:
                assert self._archive is not None  # noqa: S101, RUF100
                found = of_archive(self._archive, piece.begin, piece.end)
                async with contextlib.aclosing(stepwise(found)) as steps:
                    async for chunk, self.position in steps:
                        yield chunk
                self.position = piece.end  # Files of other times were passed over.
                continue
            try:
                rest = of_log(piece.begin, piece.end)
                async with contextlib.aclosing(rest):
                    async for chunk, self.position in rest:
                        yield chunk
            except TrimmedError:
                if self.position >= (await self._log.refresh()).start:
                    raise
            else:
                return

    async def chunks_back(
        self,
        of_archive: Callable[[Archive, int, int], Iterator[tuple[T, int]]],
        of_log: Callable[[int, int], AsyncGenerator[tuple[T, int], None]],
    ) -> AsyncGenerator[T, None]:
        """Iterate from the end over what the two give, with where each begins."""
        while self.position < self.end:
            first = (await self._log.refresh()).start
            if self.end <= first:
                piece = await self.piece()
                assert self._archive is not None  # noqa: S101, RUF100
                found = of_archive(self._archive, piece.begin, self.end)
                async with contextlib.aclosing(stepwise(found)) as steps:
                    async for chunk, self.end in steps:
                        yield chunk
                self.end = piece.begin
                continue
            begin = max(self.position, first)
            try:
                rest = of_log(begin, self.end)
                async with contextlib.aclosing(rest):
                    async for chunk, self.end in rest:
                        yield chunk
            except TrimmedError:
                if begin >= (await self._log.refresh()).start:
                    raise
            else:
                self.end = begin


async def stepwise(items: Iterator[T]) -> AsyncGenerator[T, None]:
    """Iterate in a thread, one item ahead of who takes them."""

    def step() -> tuple[T] | None:
        # StopIteration cannot leave a thread through a future.
        for item in items:
            return (item,)
        return None

    ahead = asyncio.ensure_future(in_thread(step))
    try:
        while (item := await ahead) is not None:
            ahead = asyncio.ensure_future(in_thread(step))
            yield item[0]
    finally:
        # A thread cannot be stopped; its step is short, and must not be left alone
        # with a file that is about to be closed.
        await asyncio.gather(ahead, return_exceptions=True)
