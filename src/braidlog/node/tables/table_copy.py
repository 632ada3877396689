"""The end of a copy that lacks the table: all files of a pinned version, in parts.

*Theory of operation.* Files of a table never change once they have a name, so what an
earlier attempt has copied of them stays, whoever it came from: the list of the next
version says what of it is still good. What is there already of a file is checked with
the rest of it. The copy takes its place when it is whole, in one step.

*Invariants.* Until then the table that was here before is not touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from braidlog.errors import CorruptionError, LogError, RemoteProtocolError
from braidlog.node.tables.engine import TableFiles
from braidlog.node.tables.questions import Questions
from braidlog.node.tables.settings import TableSettings
from braidlog.node.tables.worker import Worker
from braidlog.wire.messages import Message
from braidlog.wire.rows import (
    FetchRun,
    PinnedFile,
    PinnedRuns,
    PinRuns,
    RunPart,
    UnpinRuns,
)

__all__ = ["Copied", "TableCopy"]

T = TypeVar("T", bound=Message)


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy was made of."""

    source: int
    flushed: int
    bytes: int
    files: int


class TableCopy:
    """Copies one table from another host."""

    def __init__(
        self,
        table: bytes,
        files: TableFiles,
        questions: Questions,
        worker: Worker,
        settings: TableSettings,
    ) -> None:
        """Copy into these files; nothing happens before `copy`."""
        self._table = table
        self._files = files
        self._questions = questions
        self._worker = worker
        self._settings = settings
        self.copied_bytes = 0
        """Of this attempt, so far."""

    async def copy(self, source: int) -> Copied:
        """Copy the table as a host has it, and put it in its place.

        Raises:
            LogError: it could not be done; what was copied is used by the next attempt.
        """
        lease_ms = int(self._settings.pin_s * 1000)
        # The other host reads the runs that it has no checksums of yet.
        answer, _ = await self._questions.node(
            source, PinRuns(self._table, lease_ms), within=self._settings.pin_s
        )
        pinned = _expected(answer, PinnedRuns)
        try:
            run, files = self._worker.run, self._files
            _check_paths(pinned.files)
            staged = await run(partial(files.staged, self._table, pinned.files))
            for file in pinned.files:
                await self._copy_file(source, pinned.pin, file, staged[file.path])
            await run(partial(files.install, self._table, pinned.files))
        finally:
            await self._let_go(source, pinned.pin)
        size = sum(file.bytes for file in pinned.files)
        return Copied(source, pinned.flushed, size, len(pinned.files))

    async def _copy_file(
        self, source: int, pin: int, file: PinnedFile, offset: int
    ) -> None:
        check = partial(self._files.check, self._table, file)
        begun = offset
        await self._fetch(source, pin, file, offset)
        if await self._worker.run(check):
            return
        # What an earlier attempt left may be of another file of that name.
        if begun:
            await self._fetch(source, pin, file, 0)
        if not begun or not await self._worker.run(check):
            msg = f"{file.path!r} was damaged on its way from node {source}"
            raise CorruptionError(msg)

    async def _fetch(
        self, source: int, pin: int, file: PinnedFile, offset: int
    ) -> None:
        run, files = self._worker.run, self._files
        while offset < file.bytes:
            size = min(self._settings.part_bytes, file.bytes - offset)
            ask = FetchRun(pin, file.path, offset, size)
            answer, part = await self._questions.node(source, ask)
            if _expected(answer, RunPart).offset != offset or not part:
                msg = f"{len(part)} bytes came of {file.path!r} at {offset}"
                raise RemoteProtocolError(msg)
            part = part[:size]
            await run(partial(files.write, self._table, file.path, offset, part))
            offset += len(part)
            self.copied_bytes += len(part)

    async def _let_go(self, source: int, pin: int) -> None:
        try:
            await self._questions.node(source, UnpinRuns(pin))
        except LogError:
            return  # It ends by itself.


def _expected(answer: Message, kind: type[T]) -> T:
    if not isinstance(answer, kind):
        msg = f"{type(answer).__name__} came instead of {kind.__name__}"
        raise RemoteProtocolError(msg)
    return answer


def _check_paths(files: tuple[PinnedFile, ...]) -> None:
    """Refuse what would lie elsewhere than below the directory of the table."""
    for file in files:
        parts = file.path.split("/")
        if any(part in {"", ".", ".."} or "\0" in part for part in parts):
            raise RemoteProtocolError(f"{file.path!r} is no path of a table's file")
    if len({file.path for file in files}) != len(files):
        raise RemoteProtocolError("a file of a table was listed twice")
