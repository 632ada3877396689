"""Where replay reads commands: the directory of an application, or a cluster.

Nothing here needs to be the writer of the log, or stops it: a directory is followed
without a lock while its host goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from braidlog.app.execution.record import RecordLike
from braidlog.app.log.source import LOG_NAME
from braidlog.errors import CorruptionError
from braidlog.paths import local_path
from braidlog.storage.node import open_store

if TYPE_CHECKING:
    from braidlog.client.blocking import Client

__all__ = ["ClusterInput", "DirectoryInput", "Input", "readable"]


class Input(Protocol):
    """A log of commands, read in order, as often as it takes."""

    @property
    def name(self) -> str:
        """What a person calls it."""

    @property
    def identity(self) -> str:
        """What no other log has; empty where that is not known."""

    @property
    def gaps(self) -> bool:
        """Whether records may be missing in what is read."""

    def read(self, begin: int | None, end: int | None = None) -> Iterator[RecordLike]:
        """Read the records from ``begin`` up to ``end``, or to the last durable one.

        Without ``begin`` from the first that can be read; none if ``begin`` is behind
        the last.

        Raises:
            TrimmedError: ``begin`` is no longer in the log.
        """

    def close(self) -> None:
        """Release it."""


def readable(records: Iterator[RecordLike]) -> Iterator[RecordLike]:
    """Yield records as far as they can be read: for what looks beyond where it ends.

    Of raw directories the damage that ends it is in the report all the same.
    """
    with contextlib.suppress(CorruptionError):
        yield from records


class DirectoryInput:
    """The log of an application in a directory, beside its host or without one."""

    gaps: Final = False

    def __init__(self, path: str | Path) -> None:
        """Follow the log of a directory that `Application.open` made.

        Raises:
            NotFoundError: there is none.
        """
        self.name = str(path)
        self._node = open_store(
            local_path(path, "the directory of a host") / "log", read_only=True
        )
        self._log = self._node.log(LOG_NAME)
        self.identity = self._log.id

    def read(self, begin: int | None, end: int | None = None) -> Iterator[RecordLike]:
        """Read the records that are durable now."""
        return self._log.read(*_bounds(begin, end, self._log.end))

    def close(self) -> None:
        """Stop following."""
        self._node.close()


class ClusterInput:
    """A log of a cluster. The client remains the caller's."""

    gaps: Final = False

    def __init__(self, client: Client, log: str) -> None:
        """Read a log by its name.

        Raises:
            NotFoundError: the cluster has no such log.
        """
        self.name = log
        self._log = client.log(log)
        self.identity = self._log.id

    def read(self, begin: int | None, end: int | None = None) -> Iterator[RecordLike]:
        """Read the records that are committed now."""
        self._log.refresh()
        return self._log.read(*_bounds(begin, end, self._log.end))

    def close(self) -> None:
        """Do nothing."""


def _bounds(begin: int | None, end: int | None, last: int) -> tuple[int | None, int]:
    end = last if end is None else min(end, last)
    return (None if begin is None else min(begin, end)), end
