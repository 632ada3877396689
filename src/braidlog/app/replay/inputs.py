"""Where replay reads commands: any `LogSource`, such as an application's directory.

Nothing here needs to be the writer of the log, or stops it: a directory is followed
without a lock while its host goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from braidlog.app.execution.record import RecordLike
from braidlog.app.log.source import LOG_NAME
from braidlog.errors import CorruptionError
from braidlog.paths import local_path
from braidlog.sources.directory import DirectorySource


class Input(Protocol):
    """What replay needs of a `LogSource`: its records, as often as it takes."""

    @property
    def name(self) -> str:
        """What a person calls it."""

    @property
    def id(self) -> str:
        """What no other log has; empty where that is not known."""

    @property
    def gaps(self) -> bool:
        """Whether records may be missing in what is read."""

    def records(
        self, begin: int | None, end: int | None = None
    ) -> Iterator[RecordLike]:
        """Read records; see `LogSource.records`."""


def commands_of(path: str | Path) -> DirectorySource:
    """Follow the log of a directory that `Application.open` made.

    Raises:
        NotFoundError: there is none.
    """
    log = local_path(path, "the directory of a host") / "log"
    return DirectorySource(log, LOG_NAME, name=str(path))


def readable(records: Iterator[RecordLike]) -> Iterator[RecordLike]:
    """Yield records as far as they can be read: for what looks beyond where it ends.

    Of raw directories the damage that ends it is in the report all the same.
    """
    with contextlib.suppress(CorruptionError):
        yield from records
