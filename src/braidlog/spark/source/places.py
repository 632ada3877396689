"""Opens the log that options of Spark name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from braidlog.errors import NotFoundError
from braidlog.sources.source import LogSource
from braidlog.spark.source.options import ReadOptions


def open_source(options: ReadOptions) -> LogSource:
    """Open the log to read.

    Raises:
        NotFoundError: there is no such directory or log.
        LogError: whatever else keeps it from being read.
    """
    with where_resolved(options.origin.path):
        # Copies of raw directories are compared by pipelines: a query reads one.
        return options.origin.open(compare=False)


@contextmanager
def where_resolved(path: str) -> Iterator[None]:
    """Say of what is not found where Spark looks for a relative path."""
    try:
        yield
    except NotFoundError as error:
        if not path or Path(path).is_absolute():
            raise
        where = f" (path is {path!r}: Spark resolves it where its JVM was started)"
        raise NotFoundError(error.message + where) from None


def check_same(name: str, planned: str, found: str) -> None:
    """Refuse a log that was made anew under the name of what a task or query reads.

    Either identity may be empty, which is not known.

    Raises:
        NotFoundError: it is another log.
    """
    if planned and found and planned != found:
        raise NotFoundError(
            f"log {name!r} was deleted, and a new log has its name: start the "
            "query again"
        )
