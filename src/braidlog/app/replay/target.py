"""The directory that a replay makes: marked, so that it goes on where it was killed.

| file | what |
|---|---|
| ``replay.json`` | which partitions of which application, whether it can go on |
| ``partition-NNNN.db`` | their databases |

The mark is there before the databases are. Without it nothing in the directory is ours,
and nothing is touched. Databases are synced at the end only: until then the mark names
the boot of the machine, and after another one replay starts over.
"""

from __future__ import annotations

import json
import secrets
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from braidlog import durable
from braidlog.app.execution.definition import ApplicationDefinition
from braidlog.app.state.sqlite import SqliteState
from braidlog.errors import AlreadyExistsError, CorruptionError, InvalidArgumentError

_MARK: Final = "replay.json"
_ASIDE: Final = f"{_MARK}.new"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class _Mark:
    application: str
    partitions: list[int]
    """Those that are replayed; empty if all are."""
    cut: str
    restored: bool
    boot: str
    """The databases are as they were written as long as this is so; empty: for ever."""
    differences: list[list[Any]] = field(default_factory=list)
    """Outcomes that differed so far, for a replay that reports them."""
    compared: bool = False
    """Outcomes that the log names were looked at. Older marks do not say."""


def boot() -> str:
    """Return what names the boot of this machine, or something that never returns."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return secrets.token_hex(16)


class Target:
    """A directory that holds, or will hold, a replayed state."""

    def __init__(
        self, path: Path, application: ApplicationDefinition, *, cut: str = "strict"
    ) -> None:
        """Look at the directory; nothing is created yet.

        Raises:
            AlreadyExistsError: it has files, and no replay made them.
            CorruptionError: its mark cannot be read.
        """
        self.path = path
        self._application = application
        self._cut = cut
        self._found = self._read()

    def _read(self) -> _Mark | None:
        exists = self.path.exists()
        try:
            text = (self.path / _MARK).read_text(encoding="utf-8")
        except FileNotFoundError:
            # A mark that was being written is ours too.
            there = {each.name for each in self.path.iterdir()} if exists else set()
            if there - {_ASIDE}:
                raise AlreadyExistsError(
                    f"{self.path} has files that are not the state of a replay: "
                    "choose an empty directory"
                ) from None
            return None
        try:
            return _Mark(**json.loads(text))
        except (TypeError, ValueError) as error:
            msg = (
                "the file that says which replay this is is damaged: "
                f"{self.path / _MARK}; remove {self.path} and replay again"
            )
            raise CorruptionError(msg, path=str(self.path / _MARK)) from error

    def begun(self, partitions: frozenset[int] | None) -> bool:
        """Whether a replay of these partitions was begun here and can go on.

        Raises:
            InvalidArgumentError: what was begun here is something else.
        """
        if self._found is None:
            return False
        found, mine = self._found, self._mark(partitions, restored=True)
        # Older versions listed all of them.
        whole = found.partitions == [*range(self._application.partitions)]
        if whole and partitions is None:
            found = replace(found, partitions=[])
        if (found.application, found.cut) != (mine.application, mine.cut):
            raise InvalidArgumentError(
                f"{self.path} has a replay of {found.application!r} with cut "
                f"{found.cut}: choose another directory"
            )
        if found.partitions != mine.partitions:
            raise InvalidArgumentError(
                f"{self.path} has a replay of partitions {found.partitions or 'all'}, "
                f"not of {mine.partitions or 'all'}: choose another directory"
            )
        return found.restored and found.boot in ("", boot())

    def _mark(
        self, partitions: frozenset[int] | None, *, restored: bool, synced: bool = False
    ) -> _Mark:
        name, since = self._application.name, "" if synced else boot()
        kept, compared = [], True
        if restored and self._found is not None:
            kept, compared = self.differences, self._found.compared
        numbers = sorted(partitions or ())
        return _Mark(name, numbers, self._cut, restored, since, kept, compared)

    def start_over(self, partitions: frozenset[int] | None) -> None:
        """Remove what a replay left here, and mark the directory for this one."""
        self.path.mkdir(parents=True, exist_ok=True)
        # The mark first, and it stays: without it the rest would be nobody's.
        self._write(self._mark(partitions, restored=False))
        for each in self.path.iterdir():
            if each.is_dir():
                shutil.rmtree(each)
            elif each.name != _MARK:
                each.unlink()

    def restored(self, partitions: frozenset[int] | None) -> None:
        """Note that the databases are at one position: from here on replay goes on."""
        self._write(self._mark(partitions, restored=True))

    def synced(self, partitions: frozenset[int] | None) -> None:
        """Note that the databases are durable as they are."""
        self._write(self._mark(partitions, restored=True, synced=True))

    def unfinished(self, partitions: frozenset[int] | None) -> None:
        """Note that the next replay here has to start over."""
        self._write(self._mark(partitions, restored=False))

    @property
    def differences(self) -> list[list[Any]]:
        """Outcomes that were noted here."""
        return [] if self._found is None else self._found.differences

    def compared(self, *, same: bool) -> bool:
        """Whether outcomes were looked at so far, and with ``same`` none differed."""
        found = self._found
        return found is not None and found.compared and not (same and found.differences)

    def uncompared(self) -> None:
        """Note that outcomes are not looked at from here on."""
        assert self._found is not None, "there are outcomes behind its start only"
        if self._found.compared:
            self._write(replace(self._found, compared=False))

    def note(self, differences: list[list[Any]]) -> None:
        """Keep outcomes that differ, until another replay starts over."""
        assert self._found is not None, "there are outcomes behind its start only"
        if differences != self._found.differences:
            self._write(replace(self._found, differences=differences))

    def _write(self, mark: _Mark) -> None:
        data = json.dumps(asdict(mark)).encode()
        durable.replace(self.path / _MARK, data, temporary=self.path / _ASIDE)
        self._found = mark

    def open(self, partitions: frozenset[int] | None, count: int) -> SqliteState:
        """Open the databases of these partitions, and the one of partition 0.

        There are ``count`` of them all, unless what is here says another number. What
        is written there is durable when the state was synced.
        """
        if self._found is not None and not self._found.boot:
            self.restored(partitions)
        only = None if partitions is None else partitions | {0}
        return SqliteState(self.path, count, only=only, unsynced=True)
