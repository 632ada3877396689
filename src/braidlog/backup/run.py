"""A backup that is being made: its lease, its parts, and the step that makes it one.

Theory of operation: a run writes a *note* that says what it is built on and until when
it is alive, and renews it while it copies. Whoever collects what nobody names leaves
the parts of runs that are alive, so a run that died holds space for one lease and no
longer. The parts come first, each durable; then the run looks whether all of them are
there, also those of earlier backups; then it writes the list, which
makes the backup. Everything before may stop anywhere.

Invariants: a list names only parts that were there, with their lengths, after the last
renewal of the lease; a run that fails removes what it wrote, as far as it still can.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final, Literal, Self

from braidlog.backup.layout import (
    LISTS,
    PARTS,
    RUNNING,
    Backup,
    BackupPart,
    BackupRunFile,
    BackupSource,
    decode,
    encode,
    is_backup,
    list_name,
    newest,
    owner_of,
    part_name,
    running_name,
)
from braidlog.backup.place import Place
from braidlog.documents import hashing
from braidlog.errors import (
    BackupDamagedError,
    DeadlineError,
    LogError,
    NewerFormatError,
    NotFoundError,
    NotReadyError,
)

LEASE_S: Final = 600.0
"""How long a run that says nothing counts as alive."""

PART_BYTES: Final = 64 << 20
"""About how large a part gets."""

SMALL_BYTES: Final = 1 << 20
"""A last part below this is copied again by an increment, together with what is new."""

_LIST_BYTES_MAX: Final = 1 << 30
_NOTE_BYTES_MAX: Final = 1 << 16
_MICROSECONDS: Final = 1_000_000


class BackupRun:
    """One backup on its way into a place. A context manager: failing cleans up."""

    def __init__(self, place: Place, base: Backup | None, lease_s: float) -> None:
        """Say what it is built on; entering writes the note."""
        self.place = place
        self.base = base
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        self.id = f"{stamp}-{secrets.token_hex(4)}"
        self.new_bytes = 0
        self._lease_s = lease_s
        self._renewed = 0.0
        self._written: dict[str, int] = {}

    def __enter__(self) -> Self:
        """Tell others that it is being made.

        Raises:
            NotFoundError: its base was deleted a moment ago.
        """
        self._renew()
        if self.base is not None and self.place.size(list_name(self.base.id)) is None:
            self._clean_up()
            raise NotFoundError(f"the backup {self.base.id} was deleted meanwhile")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Take back the note, and what was written in vain."""
        if kind is not None:
            self._clean_up()
        else:
            self._remove(running_name(self.id))

    def _clean_up(self) -> None:
        for path in self._written:
            self._remove(path)
        self._remove(running_name(self.id))

    def _remove(self, name: str) -> None:
        # What stays is removed by a later backup, when the lease is over.
        with contextlib.suppress(LogError):
            self.place.remove(name)

    def _renew(self) -> None:
        until = time.time() + self._lease_s
        note = {"until": int(until * _MICROSECONDS), "base": self.base and self.base.id}
        self.place.write(running_name(self.id), json.dumps(note).encode())
        self._renewed = time.monotonic()

    def _keep_alive(self) -> None:
        if time.monotonic() - self._renewed > self._lease_s / 3:
            self._renew()

    # -- parts -------------------------------------------------------------------

    def write_part(
        self,
        source: BackupSource,
        log: str,
        stream: int,
        begin: int,
        chunks: Callable[[], Iterable[tuple[int, bytes]]],
        last: Callable[[int], str],
    ) -> BackupPart:
        """Write one part; durable on return.

        ``chunks`` gives where each chunk ends and its bytes, ``last`` the digest of the
        record before an end. The name has the end of the range, so the chunks are
        gathered first: they are about `PART_BYTES`.
        """
        hashed, size, end, gathered = hashing(), 0, begin, []
        for behind, data in chunks():
            hashed.update(data)
            gathered.append(data)
            size, end = size + len(data), behind
            self._keep_alive()
        path = part_name(source.id, log, stream, begin, end, self.id)
        self._written[path] = size
        with self.place.writing(path) as file:
            for data in gathered:
                file.write(data)
                self._keep_alive()
        self.new_bytes += size
        return BackupPart(path, begin, end, size, hashed.hexdigest(), last(end))

    def write_file(self, path: str, size: int, pieces: Iterable[bytes]) -> str:
        """Write a file of a known length; durable on return. Returns its checksum."""
        hashed = hashing()
        self._written[path] = size
        with self.place.writing(path) as file:
            for data in pieces:
                hashed.update(data)
                file.write(data)
                self._keep_alive()
        self.new_bytes += size
        return hashed.hexdigest()

    # -- the list ----------------------------------------------------------------

    def publish(self, backup: Backup) -> Backup:
        """Make it a backup; durable on return.

        Raises:
            BackupDamagedError: a part of an earlier backup is gone, or has another
                length.
        """
        self._renew()
        for part in backup.parts:
            if part.path not in self._written:
                _check_there(self.place, part)
        listed = {part.path for part in backup.parts}
        for path in [path for path in self._written if path not in listed]:
            # Of an attempt that a trim has overtaken.
            self._remove(path)
        # From here on nothing is removed: if the write fails, the list may be there.
        self._written = {}
        self.place.write(list_name(self.id), encode(backup))
        return backup


def _check_there(place: Place, part: BackupPart | BackupRunFile) -> None:
    size = place.size(part.path)
    if size != part.bytes:
        path = place.shown(part.path)
        found = "is missing" if size is None else f"has {size} bytes"
        msg = f"{path} {found}, but an earlier backup needs {part.bytes} bytes of it"
        raise BackupDamagedError(msg, path=path).advising(
            "Make a full backup with base='none', and delete the damaged one"
        )


# -- lists -----------------------------------------------------------------------------


def read_list(place: Place, backup: str) -> Backup:
    """Return a backup of a place.

    Raises:
        NotFoundError: there is none of that name.
        BackupDamagedError: its list is not what was written.
    """
    name = list_name(backup)
    try:
        data = place.read(name, _LIST_BYTES_MAX)
    except FileNotFoundError:
        msg = f"there is no backup {backup} in {place.location}"
        raise NotFoundError(msg) from None
    found = decode(data, place.shown(name))
    if found.id != backup:
        msg = f"{place.shown(name)} is the list of backup {found.id}"
        raise BackupDamagedError(msg, path=place.shown(name))
    return found


def look(place: Place) -> tuple[list[Backup], dict[str, LogError]]:
    """Return the backups of a place, oldest first, and what is wrong with others."""
    found: list[Backup] = []
    wrong: dict[str, LogError] = {}
    for name in place.names(LISTS):
        stem = name.rpartition("/")[2].removesuffix(".json")
        if not is_backup(stem) or name != list_name(stem):
            continue  # What others put here is theirs.
        try:
            found.append(read_list(place, stem))
        except NotFoundError:
            pass  # It was deleted meanwhile.
        except (BackupDamagedError, NewerFormatError) as error:
            wrong[stem] = error
    return sorted(found, key=lambda each: (each.time, each.id)), wrong


def find(place: Place, backup: str | None) -> Backup:
    """Return a backup by its name, or the newest one.

    Raises:
        NotFoundError: there is none.
        BackupDamagedError: its list is damaged, or one that may be newer is.
    """
    if backup is not None:
        return read_list(place, backup)
    whole, wrong = look(place)
    found = newest(whole)
    # An older one must not pass for the newest.
    for stem, error in sorted(wrong.items(), reverse=True):
        if found is None or stem > found.id:
            raise error
    if found is None:
        error = NotFoundError(f"there is no backup in {place.location}")
        raise error.advising(f"Make one with `braidlog backup create {place.location}`")
    return found


# -- what nobody refers to -------------------------------------------------------------


def _alive(place: Place) -> dict[str, str | None]:
    """Return the runs whose lease is not over, with their bases; remove the others."""
    now, alive = int(time.time() * _MICROSECONDS), dict[str, str | None]()
    for name in place.names(RUNNING):
        stem = name.rpartition("/")[2].removesuffix(".json")
        note: Any = None
        try:
            note = json.loads(place.read(name, _NOTE_BYTES_MAX))
            until, base = int(note["until"]), note["base"]
        except FileNotFoundError:
            continue
        except (ValueError, TypeError, KeyError):
            until, base = 0, None
        if until > now:
            alive[stem] = base
        else:
            place.remove(name)
    return alive


def collect(place: Place) -> int:
    """Remove parts that no backup names and no run is making; return how many.

    While a list cannot be read, nobody knows what it names, and nothing is removed.
    """
    # In this order: a part that is named after the names were listed is of a run that
    # was alive before.
    paths = place.names(PARTS)
    alive = _alive(place)
    known, wrong = look(place)
    if wrong:
        return 0
    if {base for base in alive.values() if base} - {each.id for each in known}:
        return 0  # What a run is built on is being deleted: it will say so.
    named = {part.path for each in known for part in each.parts}
    removed = 0
    for path in paths:
        owner = owner_of(path)
        if owner is not None and path not in named and owner not in alive:
            place.remove(path)
            removed += 1
    return removed


def delete(place: Place, backup: str) -> int:
    """Delete a backup, and the parts that no other one needs; return how many.

    Raises:
        NotFoundError: there is none of that name.
        NotReadyError: another one is being made on top of it.
    """
    name = list_name(backup)
    if place.size(name) is None:
        msg = f"there is no backup {backup} in {place.location}"
        raise NotFoundError(msg)
    if backup in _alive(place).values():
        msg = f"another backup is being made on top of {backup}"
        raise NotReadyError(msg)
    place.remove(name)
    return collect(place)


class Overtaken(Exception):
    """A trim, a merge, or the end of a log or table was faster than the copy."""

    def __init__(self, name: str, what: Literal["log", "table"] = "log") -> None:
        """Say what changed."""
        super().__init__(name)
        self.name = name
        self.what = what


def overtaken(
    name: str, attempts: int, what: Literal["log", "table"] = "log"
) -> DeadlineError:
    """Return the error for what changes faster than it is copied."""
    if what == "table":
        msg = (
            f"table {name!r} was changed while it was copied, {attempts} times: its "
            "files are merged, or its indexes and options changed, faster than the "
            "place takes them"
        )
        return DeadlineError(msg).advising("Try again when less is written")
    msg = (
        f"log {name!r} was trimmed while it was copied, {attempts} times: it lets go "
        "of records faster than the place takes them"
    )
    return DeadlineError(msg).advising(
        "Set a longer retention, or hold the records with a pinning cursor"
    )
