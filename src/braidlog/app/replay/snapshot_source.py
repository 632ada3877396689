"""Snapshots as what a replay begins from, read beside the host that takes them.

The list of a host is locked while it runs. So nothing is taken on trust here: each
file is compared with its checksum, and each restored partition with its state hash.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from braidlog.app.determinism.codec import decode
from braidlog.app.replay.audit import Seen
from braidlog.app.state.sqlite import SqliteState
from braidlog.errors import CorruptionError

_log = logging.getLogger(__name__)
_FACTS: Final = "snapshot.cbor"
_HASH_BYTES: Final = 16
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class SnapshotStart:
    """A snapshot in a directory."""

    path: Path
    position: int
    files: tuple[tuple[str, int, bytes, bytes], ...]
    """Of each partition: name, size, BLAKE2b-128, state hash."""
    log: str = ""
    """Identity of the log that it is of."""

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        return len(self.files)

    def check(self) -> None:
        """Compare the files with what was written.

        Raises:
            CorruptionError: one is missing, or is something else.
        """
        for name, size, digest, _ in self.files:
            path = self.path / name
            try:
                with path.open("rb") as file:
                    found = hashlib.file_digest(
                        file, lambda: blake2b(digest_size=_HASH_BYTES)
                    ).digest()
                same = path.stat().st_size == size and found == digest
            except OSError as error:
                msg = f"the snapshot file {path} cannot be read: {error}"
                raise CorruptionError(msg, path=str(path)) from error
            if not same:
                msg = f"the snapshot file {path} does not match its checksum"
                raise CorruptionError(msg, path=str(path))

    def restore(self, state: SqliteState, partitions: Collection[int]) -> None:
        """Put its partitions into an empty state.

        Raises:
            CorruptionError: a restored partition has another state hash.
        """
        for number in sorted(partitions):
            name, _, _, expected = self.files[number]
            state.restore(number, self.path / name)
            view = state.partitions[number].view()
            try:
                found = view.hash()
            finally:
                view.close()
            if found != expected:
                msg = (
                    f"the snapshot file {self.path / name} has a different state hash "
                    "than its snapshot says"
                )
                raise CorruptionError(msg, path=str(self.path / name))


class SnapshotStarts:
    """The directory of a host's snapshots."""

    def __init__(self, path: Path) -> None:
        """Name the directory; it does not have to be there."""
        self._path = path

    def __call__(self, until: int | None) -> SnapshotStart | None:
        """Return the newest snapshot at ``until`` or before whose files are sound."""
        for start in self.found():
            if until is not None and start.position > until:
                continue
            try:
                start.check()
            except CorruptionError as error:
                _log.warning("%s; trying an older snapshot", error.message)
                continue
            return start
        return None

    def found(self) -> Iterator[SnapshotStart]:
        """Give the snapshots that can be read, the newest first."""
        if not self._path.exists():
            return
        numbered = [each for each in self._path.iterdir() if each.name.isdigit()]
        for path in sorted(numbered, reverse=True):
            try:
                facts = decode((path / _FACTS).read_bytes())
                start = self._start(path, facts)
            except (OSError, CorruptionError, KeyError, TypeError) as error:
                # It may be on its way out: the host goes on.
                _log.warning("the snapshot %s cannot be used: %s", path, error)
                continue
            yield start

    def _start(self, path: Path, facts: dict[str, Any]) -> SnapshotStart:
        files = tuple((row[0], row[1], row[2], row[3]) for row in facts["files"])
        if facts["format"] != _FORMAT or len(files) != facts["partitions"]:
            msg = f"format {facts['format']}, {len(files)} partitions"
            raise CorruptionError(msg, path=str(path))
        return SnapshotStart(path, facts["position"], files, facts.get("log", ""))

    def seen(self) -> list[list[Seen]]:
        """Return what each snapshot says of the partitions, the oldest first."""
        return [
            [
                Seen(number, start.position, row[3], stopped=False)
                for number, row in enumerate(start.files)
            ]
            for start in [*self.found()][::-1]
        ]
