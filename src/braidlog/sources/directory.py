"""Reads a log of a data directory, which one process may be writing meanwhile.

Theory of operation: the log has one stream, in which LLSNs are positions. Each reader
opens the directory read-only, which takes no lock. A look takes the end first: what is
appended later is in no plan, so a growing log is a consistent snapshot.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from braidlog.errors import NotFoundError
from braidlog.sources.plan import Extent, extents_of
from braidlog.sources.source import ALL_STREAMS, LogSource, Look
from braidlog.store.store import open_store

if TYPE_CHECKING:
    import pyarrow as pa

    from braidlog._native import Record
    from braidlog.archive import Archive
    from braidlog.store.log import Log


@dataclass(frozen=True, slots=True)
class _Look(Look):
    id: str
    stream: int
    first: int
    end: int
    segments: list[Extent]

    def cut(self, position: int) -> dict[int, int]:
        """Return the position: LLSNs are the same."""
        return {self.stream: position}

    def extents(
        self,
        begin: Mapping[int, int],  # noqa: ARG002, RUF100
        end: Mapping[int, int],  # noqa: ARG002, RUF100
    ) -> dict[int, list[Extent]]:
        """Return the segments."""
        return {self.stream: self.segments}


class DirectorySource(LogSource):
    """A log in a directory, followed beside its writer or without one."""

    def __init__(
        self, path: str | Path, log: str, *, name: str = "", skip_holes: bool = False
    ) -> None:
        """Open the directory; ``name`` is what a person calls it, if not its path.

        With ``skip_holes`` reading goes on behind records that a repair declared lost.

        Raises:
            NotFoundError: there is no such directory or log.
        """
        self.gaps = skip_holes
        self._where = Path(path).absolute()
        self._name = log
        self.name = name or str(path)
        self._node = open_store(self._where, read_only=True)
        try:
            self._log = self._find()
        except NotFoundError:
            self.close()
            raise

    def _find(self) -> Log:
        try:
            return self._node.log(self._name)
        except NotFoundError as error:
            raise NotFoundError(f"{self._where}: {error.message}") from None

    @property
    def id(self) -> str:
        """Random identity of the log, when it was looked at last."""
        return self._log.id

    def look(self) -> Look:
        """Return the log as it is now."""
        log = self._log = self._find()
        # The end first: segments seen later may reach beyond it, never fall short.
        end, first = log.end, log.first
        segments = extents_of(log.segments())
        return _Look(log.id, log.describe().stream, first, end, segments)

    def batches(
        self,
        begin: int,
        end: int,
        *,
        columns: Sequence[str],
        stream: int = ALL_STREAMS,  # noqa: ARG002, RUF100
        since: int | None = None,  # noqa: ARG002, RUF100
        until: int | None = None,  # noqa: ARG002, RUF100
        turn: int = 0,  # noqa: ARG002, RUF100
    ) -> Iterator[pa.RecordBatch]:
        """Yield a range, with stream and LLSN, which are not stored."""
        import pyarrow as pa

        log = self._log
        names = [name for name in columns if name not in ("stream", "llsn")]
        if names == list(columns):
            yield from log.batches(begin, end, columns=names, skip_holes=self.gaps)
            return
        number = pa.scalar(log.describe().stream, pa.int64())
        stored = list(dict.fromkeys(["position", *names]))
        for batch in log.batches(begin, end, columns=stored, skip_holes=self.gaps):
            arrays = [
                pa.repeat(number, len(batch))
                if name == "stream"
                else batch.column("position" if name == "llsn" else name)
                for name in columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, list(columns))

    def records(self, begin: int | None, end: int | None = None) -> Iterator[Record]:
        """Yield the records that are durable now."""
        log = self._log
        return log.read(*bounded(begin, end, log.end), skip_holes=self.gaps)

    def archive(self, location: str | os.PathLike[str] | None) -> Archive:
        """Open the archive at a location; None is the recorded one."""
        return self._log.archive(location)

    def close(self) -> None:
        """Let go of the directory. Idempotent."""
        self._node.close()


def bounded(begin: int | None, end: int | None, last: int) -> tuple[int | None, int]:
    """Return a range as far as a log goes, which ends at ``last``."""
    end = last if end is None else min(end, last)
    return (None if begin is None else min(begin, end)), end
