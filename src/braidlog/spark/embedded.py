"""Reads a log of a data directory, which one process may be writing meanwhile.

Theory of operation: the log has one stream, in which LLSNs are positions. Driver and
tasks each open the directory read-only, which takes no lock. A look takes the end
first: what is appended later is in no plan, so a growing log is a consistent snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import braidlog
from braidlog.archive import Archive
from braidlog.errors import NotFoundError
from braidlog.spark.closing import Closing
from braidlog.spark.options import ReadOptions
from braidlog.spark.places import check_same
from braidlog.spark.plan import Extent
from braidlog.spark.schema import Rows
from braidlog.spark.tasks import Task

__all__ = ["EmbeddedPlace"]


@dataclass(frozen=True, slots=True)
class _Look:
    """The log at one moment."""

    log: str
    stream: int
    first: int
    end: int
    segments: list[Extent]

    def cut(self, position: int) -> dict[int, int]:
        """Return the position: LLSNs are the same."""
        return {self.stream: position}

    def extents(
        self, begin: Mapping[int, int], end: Mapping[int, int]
    ) -> dict[int, list[Extent]]:
        """Return the segments; a plan takes of them what it asks for."""
        return {self.stream: self.segments}


class EmbeddedPlace(Closing):
    """A log in a directory, open to read."""

    def __init__(self, options: ReadOptions) -> None:
        """Open; a missing directory or log is named with what is there.

        Raises:
            NotFoundError: there is no such directory or log.
        """
        self._name = options.log
        self._where = Path(options.path).absolute()
        self._stack = ExitStack()
        try:
            opened = braidlog.open(self._where, read_only=True)
        except NotFoundError as error:
            raise NotFoundError(error.message + _origin(options.path)) from None
        self._node = self._stack.enter_context(opened)
        try:
            self._log()
        except NotFoundError:
            self.close()
            raise

    def _log(self) -> Any:
        try:
            return self._node.log(self._name)
        except NotFoundError as error:
            raise NotFoundError(f"{self._where}: {error.message}") from None

    def look(self) -> _Look:
        """Return the log as it is now."""
        log = self._log()
        # The end first: segments seen later may reach beyond it, never fall short.
        first, end = log.first, log.end
        segments = [
            Extent(
                segment.begin,
                segment.end,
                segment.bytes,
                segment.timestamp_min,
                segment.timestamp_max,
            )
            for segment in log.segments()
        ]
        return _Look(log.id, log.describe().stream, first, end, segments)

    def read(self, task: Task, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Yield what a task reads, with stream and LLSN, which are not stored."""
        log = self._log()
        check_same(self._name, task.log, log.id)
        names = rows.stored
        stored = [name for name in names if name not in ("stream", "llsn")]
        stream = (
            pa.scalar(log.describe().stream, pa.int32()) if "stream" in names else None
        )
        for batch in log.batches(task.begin, task.end, columns=stored):
            arrays = [
                pa.repeat(stream, len(batch))
                if name == "stream"
                else batch.column("position" if name == "llsn" else name)
                for name in names
            ]
            yield pa.RecordBatch.from_arrays(arrays, names)

    def archive(self, location: str | None) -> Archive:
        """Open the archive at a location; None is the recorded one."""
        found: Archive = self._log().archive(location)
        return found

    def close(self) -> None:
        """Let go of the directory. Idempotent."""
        self._stack.close()


def _origin(path: str) -> str:
    if Path(path).is_absolute():
        return ""
    return f" (path is {path!r}: Spark resolves it where its JVM was started)"
