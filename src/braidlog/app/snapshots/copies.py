"""Copies of a host's state, for hosts that have none."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Final

from braidlog.app.errors import DivergedError
from braidlog.app.snapshots.files import close_all
from braidlog.app.snapshots.live_state import LiveState
from braidlog.app.state.failures import breakage_at
from braidlog.errors import InvalidArgumentError, NotFoundError
from braidlog.wire.messages import FetchSnapshot, SnapshotPart

__all__ = ["PART_BYTES_MAX", "Copies", "file_of"]

PART_BYTES_MAX: Final = 1 << 20
"""Bytes of a copy in one answer."""


def file_of(directory: Path, partition: int) -> Path:
    """Return the file of a partition in a directory of databases."""
    return directory / f"partition-{partition:04}.db"


class Copies:
    """The one copy that a host has for others; made when one is asked for."""

    def __init__(self, runner: LiveState, directory: Path) -> None:
        """Forget copies of an earlier start."""
        self._runner = runner
        self._directory = directory
        self._lock = threading.Lock()
        self._made: SnapshotPart | None = None
        shutil.rmtree(directory, ignore_errors=True)

    def part(self, asked: FetchSnapshot) -> tuple[SnapshotPart, bytes]:
        """Return what the copy is, and bytes of it.

        Raises:
            NotFoundError: the copy is gone: begin again.
            InvalidArgumentError: there is no such partition.
            ClosedError: the host stopped.
            DivergedError: the state is none to go on from.
            UnavailableError: the disk failed.
        """
        with self._lock:
            if asked.copy == 0:
                with breakage_at(self._directory):
                    self._made = self._make()
            made = self._made
            if made is None or asked.copy not in (0, made.copy):
                msg = f"the copy {asked.copy} of the state is gone: begin again"
                raise NotFoundError(msg)
            if asked.partition >= len(made.sizes):
                msg = f"there is no partition {asked.partition}"
                raise InvalidArgumentError(msg)
            count = min(asked.bytes_max or PART_BYTES_MAX, PART_BYTES_MAX)
            with breakage_at(self._directory):
                return made, self._read(asked, count)

    def _read(self, asked: FetchSnapshot, count: int) -> bytes:
        with file_of(self._directory, asked.partition).open("rb") as file:
            file.seek(asked.offset)
            return file.read(count)

    def _make(self) -> SnapshotPart:
        if stopped := self._runner.stopped_partitions():
            msg = f"partitions {stopped} of this host diverged: ask another host"
            raise DivergedError(msg, partitions=stopped)
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        image = self._runner.mark()
        sizes, hashes = [], []
        with close_all(image.views):
            for number, view in enumerate(image.views):
                file = file_of(self._directory, number)
                view.copy(file)
                sizes.append(file.stat().st_size)
                hashes.append(view.hash())
        number = self._made.copy + 1 if self._made is not None else 1
        return SnapshotPart(number, image.position, tuple(sizes), tuple(hashes))

    def forget(self) -> None:
        """Remove the copy."""
        with self._lock:
            self._made = None
            shutil.rmtree(self._directory, ignore_errors=True)
