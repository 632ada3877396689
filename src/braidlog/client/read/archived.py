"""Reads a log of a cluster that goes on below its first position, in its archive.

The archive is read in a thread, a step ahead: records of it come through no node.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from braidlog.errors import TrimmedError
from braidlog.store.archived import Archived, counted_batches, named
from braidlog.store.arguments import checked_position
from braidlog.store.threads import in_thread

if TYPE_CHECKING:
    from os import PathLike

    import pyarrow as pa

    from braidlog._native import Record
    from braidlog.archive import Archive
    from braidlog.archive.seam import Piece

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
    """An `ArchivedReader` for a log whose calls are awaited."""

    def __init__(self, log: ArchivedLog, include: Archived) -> None:
        """Begin with `open`."""
        self._log = log
        self._place = named(include)
        self._archive: Archive | None = None

    async def open(self, begin: int | None, end: int | None) -> None:
        """Find out what is to be read.

        Raises:
            TrimmedError: neither the log nor the archive has ``begin``.
            BeyondEndError: ``begin`` is above the end of the log.
        """
        from braidlog.archive.seam import SeamProgress

        begin = None if begin is None else checked_position(begin, "begin")
        there = await self._log.refresh()
        if begin is None or begin < there.start:
            self._archive = await self._log.archive(self._place)
        self._progress = SeamProgress(begin, end, there, self._archive)
        if self._progress:
            await self._piece()

    async def _piece(self) -> Piece:
        first = (await self._log.refresh()).start
        piece = self._progress.next(first)
        if piece is None:
            if self._archive is None:
                self._archive = await self._log.archive(self._place)
            else:
                await in_thread(self._archive.refresh)
            piece = self._progress.required(first, self._archive)
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

        self._progress.reverse = reverse
        return self._chunks(of_archive, lambda begin, end: of_log(begin, end, wanted))

    def batches(
        self,
        columns: list[str],
        of_log: Callable[[int, int, list[str]], AsyncGenerator[pa.RecordBatch, None]],
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """Iterate over batches with these columns."""

        def archived(
            archive: Archive, begin: int, end: int
        ) -> Iterator[tuple[pa.RecordBatch, int]]:
            return counted_batches(begin, archive.batches(begin, end, columns=columns))

        async def rest(
            begin: int, end: int
        ) -> AsyncGenerator[tuple[pa.RecordBatch, int], None]:
            async with contextlib.aclosing(of_log(begin, end, columns)) as batches:
                async for batch in batches:
                    begin += batch.num_rows
                    yield batch, begin

        return self._chunks(archived, rest)

    async def _chunks(
        self,
        of_archive: Callable[[Archive, int, int], Iterator[tuple[T, int]]],
        of_log: Callable[[int, int], AsyncGenerator[tuple[T, int], None]],
    ) -> AsyncGenerator[T, None]:
        """Iterate over what the two give; see `ArchivedReader.chunks`."""
        progress = self._progress
        while progress:
            piece = await self._piece()
            if piece.archived:
                assert self._archive is not None  # noqa: S101, RUF100
                steps = stepwise(of_archive(self._archive, piece.begin, piece.end))
            else:
                steps = of_log(piece.begin, piece.end)
            try:
                async with contextlib.aclosing(steps):
                    async for chunk, position in steps:
                        progress.reached(position)
                        yield chunk
            except TrimmedError:
                if not progress.overtaken(piece, (await self._log.refresh()).start):
                    raise
            else:
                progress.finish(piece)


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
