"""Where a log is: a data directory, a cluster, directories of nodes that do not run.

Readers know only this: a place gives looks at the log, and what a task reads. So
another place, or one in front of another (an archive before the log), is one more class
here.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import pyarrow as pa

from braidlog.errors import NotFoundError
from braidlog.spark.options import ReadOptions
from braidlog.spark.schema import Rows
from braidlog.spark.tasks import Look, Task

if TYPE_CHECKING:
    from braidlog.spark.cluster import ClusterPlace
    from braidlog.spark.embedded import EmbeddedPlace

__all__ = ["Place", "check_same", "open_place"]


class Place(Protocol):
    """A log where it is, open; a context manager."""

    def look(self) -> Look:
        """Return the log as it is now.

        Raises:
            NotFoundError: there is no such log.
        """

    def read(self, task: Task, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Yield the stored columns that ``rows`` names, for what a task reads.

        Raises:
            TrimmedError: it was trimmed, at the latest while it was read.
            NotFoundError: the log was deleted.
        """

    def close(self) -> None:
        """Let go of it. Idempotent."""

    def __enter__(self) -> Self:
        """Return the place."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""


def open_place(options: ReadOptions) -> Place:
    """Open the place that the options name."""
    if options.include_archive:
        from braidlog.spark.archived import ArchivedPlace

        return ArchivedPlace(_running(options), options)
    return _running(options) if not options.raw else _raw(options)


def _running(options: ReadOptions) -> EmbeddedPlace | ClusterPlace:
    if options.cluster:
        from braidlog.spark.cluster import ClusterPlace

        return ClusterPlace(options)
    from braidlog.spark.embedded import EmbeddedPlace

    return EmbeddedPlace(options)


def _raw(options: ReadOptions) -> Place:
    from braidlog.spark.raw import RawPlace

    return RawPlace(options)


def check_same(name: str, planned: str, found: str) -> None:
    """Refuse a log that was made anew under the name of what a task or query reads.

    Raises:
        NotFoundError: it is another log.
    """
    if planned not in ("", found):
        msg = f"log {name!r} was deleted; the one of this name is another"
        raise NotFoundError(msg)
