"""Backs up the directory of an embedded log, also beside its writer.

Theory of operation: a follower folds the state up to one place of the write-ahead log,
which is durable. It takes no lock and holds nothing, so the writer appends, trims and
recycles as always. The records of that state are copied afterwards. They never change;
but they may be trimmed. Then another state is taken, and only what is missing is
copied: trimming takes the oldest records, which are copied first, so this ends unless a
log lets go of records faster than the place takes them.

Segment files are recycled slots: their bytes change when they are written again, so a
hard link to one would not keep anything. Records are copied instead, batch by batch,
and verified on the way. Files of tables never change: see `tables`.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final, TypeAlias, TypeVar

from braidlog import _native
from braidlog.backup.layout import (
    Backup,
    BackupCursor,
    BackupLog,
    BackupPart,
    BackupSource,
    BackupStream,
    BackupTable,
    newest,
)
from braidlog.backup.place import Place
from braidlog.backup.run import (
    PART_BYTES,
    SMALL_BYTES,
    BackupRun,
    Overtaken,
    collect,
    look,
    overtaken,
    read_list,
)
from braidlog.backup.tables import TableCopies, cut_of, fitted
from braidlog.documents import hashing
from braidlog.errors import (
    BeyondEndError,
    CorruptionError,
    InvalidArgumentError,
    LostRecordsError,
    NotFoundError,
    TrimmedError,
)

T = TypeVar("T")

NO_BASE: Final = "none"
"""Copies everything, whatever is there."""

Progress: TypeAlias = Callable[[int, int], object]
"""Called with the records done and the records in all."""

_CHUNK_BYTES: Final = 4 << 20
_ATTEMPTS: Final = 16
_NULL: Final = 0xFFFFFFFF
_MICROSECONDS: Final = 1_000_000


def back_up_directory(
    place: Place,
    follow: Callable[[], _native.Follower],
    name: str,
    *,
    base: str | None,
    lease_s: float,
    progress: Progress | None = None,
) -> Backup:
    """Make a backup of a directory; it is in the place on return.

    ``follow`` opens the directory to read. ``base`` is the backup on top of which it is
    made: None takes the newest one of the same directory, `NO_BASE` none.

    Raises:
        NotFoundError: there is no backup ``base``.
        InvalidArgumentError: ``base`` is of another directory, or of another past of
            this one; or the directory is of a node of a cluster.
        CorruptionError: the directory is damaged.
        UnavailableError: the place, or the directory, cannot be used.
        DeadlineError: a log lets go of records faster than the place takes them.
    """
    follower = follow()
    try:
        source = BackupSource("directory", f"{follower.cut()['wal']:032x}", name)
        known = base_of(place, source, base)
        collect(place)
        with BackupRun(place, known, lease_s) as run:
            copy = _Copy(run, follower, source, base is not None, progress)
            return run.publish(copy.made())
    finally:
        follower.close()


def base_of(place: Place, source: BackupSource, base: str | None) -> Backup | None:
    """Return the backup on top of which one of a source is made.

    Raises:
        NotFoundError: there is none of that name.
        InvalidArgumentError: it is of another source.
    """
    if base == NO_BASE:
        return None
    if base is None:
        whole, _ = look(place)
        return newest(each for each in whole if _same(each.source, source))
    found = read_list(place, base)
    if not _same(found.source, source):
        msg = (
            f"the backup {base} is of {found.source.kind} {found.source.name} "
            f"({found.source.id}), not of {source.name} ({source.id})"
        )
        raise InvalidArgumentError(msg)
    return found


def _same(one: BackupSource, other: BackupSource) -> bool:
    return (one.kind, one.id) == (other.kind, other.id)


@dataclass(frozen=True, slots=True)
class _LogCut:
    """A log of a cut, as the core gives it."""

    name: str
    id: int
    stream: int
    created: int
    options: bytes
    first: int
    end: int
    producers: bytes
    cursors: list[tuple[str, int, bool, int, int]]
    explicit: bool

    @property
    def hex(self) -> str:
        return f"{self.id:032x}"


class _Copy:
    """Copies states until one of them is whole."""

    def __init__(
        self,
        run: BackupRun,
        follower: _native.Follower,
        source: BackupSource,
        strict: bool,
        progress: Progress | None,
    ) -> None:
        self._run = run
        self._follower = follower
        self._source = source
        self._strict = strict
        self._progress = progress
        self._done = 0
        self._total = 0
        # What is copied already, by log.
        self._parts: dict[str, tuple[BackupPart, ...]] = {}
        if run.base is not None:
            self._parts = {log.id: log.streams[0].parts for log in run.base.logs}
        self._seen: set[str] = set()
        self._tables = TableCopies(run, follower, source, self._tell)

    def _tell(self) -> None:
        if self._progress is not None and self._total:
            self._progress(min(self._done, self._total), self._total)

    def made(self) -> Backup:
        """Return the list of a state that was copied as a whole.

        Raises:
            DeadlineError: a log is trimmed too fast.
        """
        failed = 0
        while True:
            self._follower.refresh()
            try:
                return self._attempt()
            except Overtaken as error:
                failed += 1
                if failed >= _ATTEMPTS:
                    raise overtaken(error.name, failed, error.what) from None

    def _attempt(self) -> Backup:
        taken = self._tables.take()
        if taken:
            # What the files have is durable in the log by now.
            self._follower.refresh()
        cut, rows = self._follower.cut(), self._follower.tables()
        logs = [_LogCut(*row) for row in cut.pop("logs")]
        now = time.time_ns() // 1000
        made = [self._log(log, logs) for log in logs]
        tables = fitted(taken, map(cut_of, rows), made)
        return self._list(cut, now, made, tables)

    def _list(
        self,
        cut: dict[str, Any],
        now: int,
        logs: list[BackupLog],
        tables: tuple[BackupTable, ...],
    ) -> Backup:
        base, (segment, offset) = self._run.base, cut["place"]
        used = {
            part.path for log in logs for each in log.streams for part in each.parts
        }
        used |= {file.path for table in tables for file in table.files}
        named = base and any(part.path in used for part in base.parts)
        return Backup(
            self._run.id,
            self._source,
            base.id if base is not None and named else None,
            now,
            version("braidlog"),
            cut["segment_bytes"],
            cut["bound"],
            segment,
            offset,
            self._run.new_bytes,
            tuple(logs),
            tables=tables,
        )

    def _log(self, log: _LogCut, logs: list[_LogCut]) -> BackupLog:
        if log.explicit:
            msg = (
                f"{self._source.name} is the directory of a node of a cluster, "
                "which has a part of the records only: back up the cluster"
            )
            raise InvalidArgumentError(msg)
        self._measure(logs)
        parts = self._known(log)
        at = parts[-1].end if parts else log.first
        while at < log.end:
            part = self._part(log, at)
            parts.append(part)
            at = part.end
            self._parts[log.hex] = tuple(parts)
        stream = BackupStream(1, log.first, log.end, log.producers, tuple(parts))
        return BackupLog(
            log.hex,
            log.name,
            log.created,
            log.options.decode(),
            log.first,
            log.end,
            tuple(BackupCursor(*row) for row in log.cursors),
            (stream,),
        )

    # -- parts that are there ----------------------------------------------------

    def _known(self, log: _LogCut) -> list[BackupPart]:
        """Return the parts that the place has of a log, without a gap at the front."""
        parts = [each for each in self._parts.get(log.hex, ()) if each.end > log.first]
        if parts and log.hex not in self._seen and not self._goes_on(log, parts):
            parts = []
            self._parts[log.hex] = ()
        self._seen.add(log.hex)
        return known_parts(parts, log.first, log.end, self._run.id)

    def _goes_on(self, log: _LogCut, parts: list[BackupPart]) -> bool:
        """Tell whether the log goes on from what the base has of it.

        Raises:
            InvalidArgumentError: it does not, and that base was asked for.
        """
        last = parts[-1]
        same = last.end <= log.end and self._digest(log, last.end) == last.last
        if not same and self._strict and self._run.base is not None:
            raise differs(log.name, self._run.base.id)
        return same

    # -- copying -----------------------------------------------------------------

    def _measure(self, logs: list[_LogCut]) -> None:
        if not self._total:
            had = {key: parts[-1].end for key, parts in self._parts.items() if parts}
            left = (log.end - max(log.first, had.get(log.hex, 0)) for log in logs)
            self._total = max(1, sum(max(0, each) for each in left))

    def _part(self, log: _LogCut, begin: int) -> BackupPart:
        def chunks() -> Iterator[tuple[int, bytes]]:
            yield begin, _native.part_header(log.id, 1)
            size, at = 0, begin
            while at < log.end and size < PART_BYTES:
                reached, data = self._read(log, at)
                self._done += reached - at
                size, at = size + len(data), reached
                self._tell()
                yield at, data

        return self._run.write_part(
            self._source, log.hex, 1, begin, chunks, lambda end: self._digest(log, end)
        )

    def _read(self, log: _LogCut, at: int) -> tuple[int, bytes]:
        return self._tried(
            log,
            at,
            lambda: self._follower.copy(log.stream, at, log.end, _CHUNK_BYTES),
        )

    def _digest(self, log: _LogCut, end: int) -> str:
        return self._tried(
            log, end - 1, lambda: record_digest(self._follower, log.stream, end - 1)
        )

    def _tried(self, log: _LogCut, at: int, read: Callable[[], T]) -> T:
        """Read something; a trim, and only that, is no failure.

        Raises:
            CorruptionError: the bytes are damaged, and not merely recycled.
        """
        try:
            return read()
        except (TrimmedError, NotFoundError, BeyondEndError):
            raise Overtaken(log.name) from None
        except CorruptionError:
            # Its slot may have been recycled since: then a newer state says so.
            self._follower.refresh()
            now = [_LogCut(*row) for row in self._follower.cut()["logs"]]
            found = [each for each in now if each.id == log.id]
            if not found or found[0].first > at:
                raise Overtaken(log.name) from None
            return read()


def known_parts(
    parts: Sequence[BackupPart], begin: int, end: int, run: str
) -> list[BackupPart]:
    """Return the parts that are used again, of those that end behind ``begin``."""
    if not parts or parts[0].begin > begin:
        return []
    last = parts[-1]
    # Small ones are joined, or a backup an hour would make a file an hour.
    old = not last.path.endswith(f"{run}.part")
    if old and last.end < end and last.bytes < SMALL_BYTES:
        return list(parts[:-1])
    return list(parts)


def differs(log: str, base: str) -> InvalidArgumentError:
    """Return the error for a base that a log does not go on from."""
    msg = (
        f"log {log!r} does not go on from backup {base}: "
        "it was put back to an earlier state since"
    )
    return InvalidArgumentError(msg).advising(
        "Make a full backup: base='none', or without a base"
    )


def record_digest(follower: _native.Follower, stream: int, position: int) -> str:
    """Return the digest of one record of a directory."""
    try:
        return digest_of(follower.view(stream).get(position))
    except LostRecordsError:
        return "hole"


def digest_of(record: _native.Record) -> str:
    """Return the digest of a record, by which an increment knows its source again."""
    digest = hashing()
    digest.update(struct.pack("<Qq", record.position, record.timestamp))
    values: list[bytes | None] = [record.key, record.value]
    for name, value in record.headers:
        values += [name.encode(), value]
    for each in values:
        digest.update(struct.pack("<I", _NULL if each is None else len(each)))
        digest.update(each or b"")
    return digest.hexdigest()
