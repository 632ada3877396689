"""Who may change what a log keeps: cursors, trims, where its archive is.

A data directory has one writer, which need not be the one who runs the pipeline. So it
is opened for writing for a moment, before the work and after it, and reading goes on
beside whoever writes. A program that is the writer passes its open log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import braidlog
from braidlog.errors import InvalidArgumentError, TrimmedError
from braidlog.sources.origin import Origin


class TrimControl(Protocol):
    """What the calls of embedded and cluster logs have in common."""

    @property
    def id(self) -> str:
        """Identity of the log."""

    @property
    def name(self) -> str:
        """Name of the log."""

    @property
    def first(self) -> int:
        """First position of the log."""

    @property
    def options(self) -> Any:
        """How the log is kept."""

    def cursors(self) -> list[Any]:
        """Return the cursors of the log."""

    def set_cursor(
        self, name: str, position: int, *, pin: bool = False, lease: float | None = None
    ) -> Any:
        """Store all of a cursor."""

    def set_archive(self, location: Any) -> None:
        """Record where the archive is."""

    def trim(self, before: int, *, ignore_pins: bool = False) -> int:
        """Let records go."""


@contextmanager
def trim_control(origin: Origin, log: TrimControl | None) -> Iterator[TrimControl]:
    """Give the log for changes: the one that is open, or opened for a moment.

    Raises:
        InvalidArgumentError: raw directories are of nodes that do not run.
        LockedError: another process writes to the directory.
        NotFoundError: the log is not there.
    """
    if origin.raw:
        raise InvalidArgumentError(
            "directories of stopped nodes have no cursors: archive the "
            "running log instead"
        )
    if log is not None:
        yield log
    elif origin.path:
        # A follower looks first: it tells of a log that is not there beside a writer.
        with braidlog.open(origin.path, read_only=True) as node:
            node.log(origin.log)
        with braidlog.open(origin.path, create=False) as node:
            yield node.log(origin.log)
    else:
        with origin.client() as client:
            found: TrimControl = client.log(origin.log)
            yield found


def pinned(
    kept: TrimControl, cursor: str, position: int | None, lease: float | None
) -> int:
    """Let a pinning cursor stand at a position; None is the log's first.

    A cursor that stands there already, and pins, is left alone, lease and all.

    Raises:
        TrimmedError: the log does not have the position any more.
    """
    while True:
        wish = kept.first if position is None else position
        if wish >= kept.first:
            found = next((c for c in kept.cursors() if c.name == cursor), None)
            if found is None or not found.pin or found.position != wish:
                held = lease if found is None or lease is not None else found.lease
                kept.set_cursor(cursor, wish, pin=True, lease=held)
        # It may have been trimmed until the pin was there.
        if wish >= kept.first:
            return wish
        if position is not None:
            msg = (
                f"positions {wish} to {kept.first - 1} of {kept.name!r} were trimmed"
                " before they were archived: begin a new archive in another directory"
            )
            raise TrimmedError(msg, first=kept.first)
