"""A data directory opened in this process: the embedded log.

One process may have a directory open for writing; any number may follow it read-only.
The writer runs two threads: one syncs what was submitted (started by the first
submit), one keeps house (retention, free segments). Neither runs Python per record.
"""

# One file: the calls of one class and their contracts; what they do is elsewhere.

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from braidlog.closable import Closable
from braidlog.errors import (
    AlreadyExistsError,
    ClosedError,
    InvalidArgumentError,
    NotFoundError,
    ReadOnlyError,
)
from braidlog.names import checked_name, checked_new_name
from braidlog.paths import local_path
from braidlog.store.arguments import (
    DurationLike,
    checked_count,
    checked_timeout,
)
from braidlog.store.backend import (
    Backend,
    FollowerBackend,
    WriterBackend,
    holds_logs,
)
from braidlog.store.catalog import CatalogEntry, LogOptions
from braidlog.store.log import Log
from braidlog.store.retention import retention_of
from braidlog.store.space import clean_if_full
from braidlog.store.tables.change import FollowedLog, TableChanges
from braidlog.store.tables.followed import FollowedTables
from braidlog.store.tables.host import TableHost
from braidlog.store.tables.opened import OpenTables
from braidlog.store.tables.table import Table
from braidlog.suggestions import does_not_exist
from braidlog.types import Compression

if TYPE_CHECKING:
    from braidlog.backup.directory import Progress
    from braidlog.backup.layout import Backup
    from braidlog.backup.place import PlaceLike

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Figures of a store, since it was opened. Sizes in bytes."""

    path: str
    logs: int
    syncs: int
    synced_bytes: int
    segments: int
    segments_max: int
    segment_bytes: int
    free_slots: int
    wal_bytes: int
    wal_bytes_max: int
    index_bytes: int
    index_memory: int
    samples: int
    side_files_left: int


class Store(Closable):
    """An open directory of logs. Use `braidlog.open`, best as a context manager."""

    def __init__(self, path: Path, backend: Backend, *, read_only: bool) -> None:
        """Wrap an opened backend; users call `braidlog.open`."""
        self.path = path
        self.read_only = read_only
        self._backend = backend
        self._closed = threading.Event()
        self._altering = threading.Lock()
        self._tables: TableHost | None = None
        self._tables_read: FollowedTables | None = None
        if isinstance(backend, FollowerBackend):
            self._tables_read = FollowedTables(self, backend, path / "tables")
        if isinstance(backend, WriterBackend):
            try:
                self._prepare(backend)
            except BaseException:
                backend.close()  # Nobody has the store, so nobody else would.
                raise

    def _prepare(self, backend: WriterBackend) -> None:
        torn = backend.report["torn"]
        # After a crash the log merely ends somewhere, unless bytes had to go.
        if torn is not None and torn[3] > 0:
            path, offset, reason, erased = torn
            _log.warning(
                "erased an incomplete write at the end of the log; nothing in it "
                "was acknowledged: %s at %d (%s; %d bytes erased)",
                path,
                offset,
                reason,
                erased,
            )
        for entry in backend.catalog().values():
            backend.store.set_compression(entry.stream, entry.options.compression)
        tables = OpenTables(backend.store, self.path / "tables")
        self._tables = TableHost(self, tables)
        backend.start_housekeeper(backend.store.prepare_slot, self.maintain)

    def __enter__(self) -> Self:
        """Return the store."""
        self._check_open()
        return self

    def __repr__(self) -> str:
        """Show path and mode."""
        mode = "read-only" if self.read_only else "writer"
        return f"<Store {str(self.path)!r} {mode}>"

    @property
    def closed(self) -> bool:
        """Whether the store was closed."""
        return self._closed.is_set()

    @property
    def report(self) -> dict[str, Any]:
        """What the open found: ``created``, ``clean``, ``torn``, and more."""
        return dict(self._backend.report)

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError(f"the store at {self.path} is closed")

    def _entry(self, name: str) -> CatalogEntry:
        self._check_open()
        entry, reason = None, None
        try:
            entry = self._backend.entry(name)
        except UnicodeEncodeError as error:
            reason = error  # No name is like that.
        if entry is None:
            raise NotFoundError(does_not_exist("log", name, self.logs())) from reason
        return entry

    def logs(self) -> list[str]:
        """Return the names of all logs, sorted."""
        self._check_open()
        return sorted(self._backend.catalog())

    def log(self, name: str) -> Log:
        """Return an existing log.

        Raises:
            NotFoundError: there is no log of that name.
        """
        return Log(self, self._backend, self._entry(name))

    def create_log(
        self,
        name: str,
        *,
        exist_ok: bool = False,
        compression: Compression = "none",
        retention_ms: int | timedelta | None = None,
        retention_bytes: int | None = None,
    ) -> Log:
        """Create a log; durable on return.

        ``compression`` applies to record batches. Retention trims records older than
        ``retention_ms`` (milliseconds, or a `timedelta`), and the oldest ones beyond
        ``retention_bytes`` (in whole segments); None keeps records until they are
        trimmed. With ``exist_ok`` an existing log is returned unchanged.

        Raises:
            InvalidArgumentError: an option is wrong, or a new log cannot have this
                name: it contains a '/' or a control character, or begins with '-'.
            AlreadyExistsError: the log exists, and ``exist_ok`` is not set.
            ReadOnlyError: the store was opened read-only.
        """
        self._check_open()
        age = retention_of(retention_ms)
        options = LogOptions(compression, age, retention_bytes)
        store = self._backend.store
        name = checked_name(name, "log")
        if self._backend.entry(name) is None:
            checked_new_name(name, "log")
        elif exist_ok:
            return self.log(name)
        with contextlib.ExitStack() as stack:
            if exist_ok:
                stack.enter_context(contextlib.suppress(AlreadyExistsError))
            store.create_log(name, secrets.randbits(128) | 1, options.encode())
        log = self.log(name)
        store.set_compression(log._stream, log.options.compression)
        return log

    def delete_log(self, name: str) -> None:
        """Delete a log with everything in it; durable on return. Cannot be undone.

        Raises:
            NotFoundError: there is no log of that name.
        """
        self._backend.store.delete_log(self._entry(name).id)

    def _entry_of(self, log_id: int, name: str) -> CatalogEntry:
        # By identity: a log of the same name may have taken the place of a deleted one.
        self._check_open()
        entry = self._backend.entry(name)
        if entry is not None and entry.id == log_id:
            return entry
        raise NotFoundError(f"log {name!r} was deleted")

    # -- tables ------------------------------------------------------------------

    def tables(self) -> list[str]:
        """Return the names of all tables, sorted."""
        self._check_open()
        return sorted(table.name for table in self._backend.tables())

    def table(self, name: str) -> Table:
        """Return an existing table.

        Raises:
            NotFoundError: there is no table of that name.
        """
        self._check_open()
        host = self._tables_read or self._table_host()
        entry = host.entry(name)
        return Table(host, entry, self.log(entry.log))

    def create_table(
        self,
        name: str,
        *,
        log: str,
        indexes: Mapping[str, str] | None = None,
        begin: int | None = None,
        history: int = 0,
        memory_bytes: int | None = None,
        deletes: str = "null",
        exist_ok: bool = False,
    ) -> Table:
        """Create a table of a log: the latest record of each key; durable on return.

        It counts the records from ``begin`` on, by default all that the log has.
        ``indexes`` gives each index a name and a field: ``json:/city`` (a pointer of
        RFC 6901 into the value), ``header:NAME`` or ``value``, each with a type behind
        it, as in ``json:/price:float``; several joined by ``+``. A record without the
        field is not in the index. One that has no JSON, or another type, is left out
        and counted; with ``strict `` in front of the field, the index refuses to be
        read then.

        ``history`` is how many positions behind the newest one stay readable with
        `Table.at`, ``memory_bytes`` how much is kept in memory (64 MiB). ``deletes``
        says which records delete their key: those with a null value; ``empty`` for
        empty values too, ``none``, ``header:NAME`` or ``pattern:REGEX`` of the value.

        With ``exist_ok`` an existing table is returned unchanged.

        Raises:
            InvalidArgumentError: an option is wrong, or a new table cannot have this
                name.
            AlreadyExistsError: the table exists, and ``exist_ok`` is not set.
            NotFoundError: there is no such log.
            TrimmedError: ``begin`` is below the first position of the log.
            ReadOnlyError: the store was opened read-only.
        """
        host = self._table_host()
        if exist_ok and self._backend.table(name) is not None:
            return self.table(name)
        with contextlib.ExitStack() as stack:
            if exist_ok:  # Another thread may just be creating it.
                stack.enter_context(contextlib.suppress(AlreadyExistsError))
            change = stack.enter_context(host.change())
            change.create(
                name,
                log=log,
                indexes=indexes,
                begin=begin,
                history=history,
                memory_bytes=memory_bytes,
                deletes=deletes,
            )
        return self.table(name)

    def drop_table(self, name: str) -> None:
        """Drop a table with its indexes; durable on return. The log keeps its records.

        Raises:
            NotFoundError: there is no table of that name.
        """
        with self._table_host().change() as change:
            change.drop(name)

    def ddl(self) -> contextlib.AbstractContextManager[TableChanges]:
        """Change any tables together: ``with store.ddl() as change:``.

        All changes are made when the block ends, in one entry of the log: all or none,
        also in a crash.

        Raises:
            ReadOnlyError: the store was opened read-only.
        """
        return self._table_host().change()

    def _table_host(self) -> TableHost:
        self._check_open()
        if self._tables is None:
            msg = "the directory was opened read-only: only its writer changes tables"
            raise ReadOnlyError(msg)
        return self._tables

    def _followed(self, log: str) -> FollowedLog:
        entry = self._entry(log)
        first, end, *_ = self._backend.view(entry).range()
        return FollowedLog(entry.name, entry.id, entry.stream, first, end)

    def _retention_waits(self, log: str, pin: int) -> bool:
        entry = self._entry(log)
        if not entry.options.lets_go:
            return False
        found = Log(self, self._backend, entry)
        return found._retention_wish(time.time_ns() // 1000) > pin

    def sync(self) -> None:
        """Make everything submitted so far durable."""
        self._check_open()
        self._backend.store.sync()

    def provision(self, size: int) -> int:
        """Prepare ``size`` bytes of zero-filled segments; return how many were made.

        Otherwise segments are made shortly before they are needed. Use it before a
        burst of writes that is faster than the disk can be zero-filled. An interrupt
        stops it after the current segment; finished segments stay.
        """
        self._check_open()
        size = checked_count(size, "size")
        store = self._backend.store
        made = 0
        while True:
            stats = store.stats()
            one_more = (stats["free_slots"] + 1) * stats["segment_bytes"]
            # One at a time: the core does not look for signals in between.
            if not store.provision(min(size, one_more)):
                return made
            made += 1

    def stats(self) -> StoreStats:
        """Return figures of the store; in the writer's process only."""
        self._check_open()
        raw = self._backend.store.stats()
        size = raw["segment_bytes"]
        return StoreStats(
            path=str(self.path),
            logs=len(self._backend.catalog()),
            syncs=raw["syncs"],
            synced_bytes=raw["synced_bytes"],
            segments=raw["segments"],
            segments_max=raw["segments_max"],
            segment_bytes=size,
            free_slots=raw["free_slots"],
            wal_bytes=raw["segments"] * size,
            wal_bytes_max=raw["segments_max"] * size,
            index_bytes=raw["index_bytes"],
            index_memory=raw["index_memory"],
            samples=raw["samples"],
            side_files_left=raw["side_files_left"],
        )

    def backup(
        self,
        place: PlaceLike,
        *,
        base: str | None = None,
        progress: Progress | None = None,
    ) -> Backup:
        """Back up all logs and tables, as of one place of the write-ahead log.

        What was acknowledged before the call is in it: records, options, cursors,
        producers, tables with their indexes. Appends, reads and trimming go on
        meanwhile; nothing is held for it.
        ``place`` is a directory, which is made if its parent exists, or a URI such as
        ``s3://bucket/backups``. The backup is there when the call returns; one that
        fails leaves none. Get it back with `braidlog.backup.restore`.

        Records that an earlier backup in the place has are not copied again. ``base``
        names that one; None takes the newest of this directory, ``"none"`` copies
        everything. Each backup is whole by itself: an earlier one may be deleted.

        Raises:
            NotFoundError: there is no backup ``base``, or nothing to make ``place`` in.
            InvalidArgumentError: ``base`` is of another directory, or this one was put
                back to an earlier state since; ``place`` is no place.
            UnavailableError: the system refuses, for instance because the disk is full.
            DeadlineError: a log lets go of records, or a table of files, faster than
                the place takes them.
            CorruptionError: durable bytes are damaged.
        """
        self._check_open()
        from braidlog.backup.directory import back_up_directory
        from braidlog.backup.place import place_of
        from braidlog.backup.run import LEASE_S

        return back_up_directory(
            place_of(place),
            self._backend.follow,
            str(self.path),
            base=base,
            lease_s=LEASE_S,
            progress=progress,
        )

    def maintain(self, now_us: int | None = None) -> None:
        """Apply retention, free segments, and make a free one ready.

        A thread does this every second; call it to do it now.
        """
        self._check_open()
        now_us = time.time_ns() // 1000 if now_us is None else now_us
        for entry in self._backend.catalog().values():
            if entry.options.lets_go:
                with contextlib.suppress(NotFoundError):  # Deleted meanwhile.
                    Log(self, self._backend, entry).apply_retention(now_us)
        clean_if_full(self._backend.store)
        self._backend.store.prepare_slot()

    def close(self, timeout: DurationLike | None = None) -> None:
        """Make everything durable and release the directory. Idempotent.

        Subscriptions end. Without a close nothing durable is lost, but the next open
        has to look for a torn tail.

        If a write hangs in the device, the close waits for it, because no other writer
        can have the directory before it returns. After ``timeout`` seconds, or an
        interrupt, the close continues in the background. The store then refuses all
        calls; another ``close`` waits again.

        A writer that is dropped without a close stays open until the process ends,
        because its threads hold it. Until then `braidlog.open` of the same directory is
        refused.

        Raises:
            DeadlineError: not closed after ``timeout`` seconds.
        """
        timeout = checked_timeout(timeout)
        self._closed.set()
        for tables in (self._tables, self._tables_read):
            if tables is not None:
                tables.close()
        self._backend.close(timeout)


def open_store(
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    create: bool | None = None,
    segment_bytes: int = 64 << 20,
    wal_bytes_max: int | None = None,
    sync_method: str = "direct",
    unsynced_bytes_max: int = 32 << 20,
    recent_bytes_max: int = 16 << 20,
    index_bytes_max: int = 64 << 20,
) -> Store:
    """Open a directory of logs, creating it if there is none.

    ``create`` says what may be created: None the directory, if its parent exists; True
    the parents too; False nothing, so the directory must exist. ``~`` is the home
    directory. A relative path is resolved now; later changes of the working directory
    do not matter. One process can write. ``read_only`` follows without a lock and sees
    durable records. ``segment_bytes`` counts for a new directory only.
    ``wal_bytes_max`` bounds the disk space of all segments; at the bound, appends raise
    `LogFullError`. The directory stores it: None leaves it unchanged, 64 GiB in a new
    one. ``sync_method`` is ``direct`` (O_DIRECT, where the file system has it),
    ``dsync`` or ``fdatasync``. ``unsynced_bytes_max`` bounds the bytes submitted but
    not yet durable, ``recent_bytes_max`` the memory for readers at the end of the log,
    ``index_bytes_max`` the memory for number indexes.

    Raises:
        InvalidArgumentError: an option is wrong; the path is empty, or a URI.
        LockedError: another process, or another `Store` of this one, is the writer.
        NotFoundError: the directory (or its parent) does not exist, and ``create`` or
            ``read_only`` forbids creating it.
        ForeignFormatError: the directory belongs to another program.
        NewerFormatError: a newer version wrote it.
        MissingFileError: files of the store are gone.
        CorruptionError: durable bytes are damaged; ``braidlog repair`` explains.
    """
    # The files are opened when they are needed: a later chdir must not lead elsewhere.
    where = local_path(path, "the directory of a log").absolute()
    sizes = {
        "segment_bytes": segment_bytes,
        "wal_bytes_max": wal_bytes_max,
        "unsynced_bytes_max": unsynced_bytes_max,
        "recent_bytes_max": recent_bytes_max,
        "index_bytes_max": index_bytes_max,
    }
    keywords: dict[str, Any] = {
        name: None if size is None else checked_count(size, name)
        for name, size in sizes.items()
    }
    keywords["sync_method"] = sync_method
    if read_only:
        if create:
            raise InvalidArgumentError(
                "read_only=True cannot be combined with create=: a reader creates "
                "nothing"
            )
        _refuse_file(where)
        if not where.is_dir():
            raise NotFoundError(f"the directory {where} does not exist")
        return Store(where, FollowerBackend(where, keywords), read_only=True)
    _allow_creation(where, create)
    _refuse_file(where)
    keywords["entropy"] = secrets.randbits(64)
    return Store(where, WriterBackend(where, keywords), read_only=False)


def _refuse_file(where: Path) -> None:
    if where.is_file():
        msg = f"{where} is a file: name the directory that holds the logs"
        raise InvalidArgumentError(msg)


def _allow_creation(where: Path, create: bool | None) -> None:
    """Refuse to make a directory of logs where none is expected.

    Raises:
        NotFoundError: there is none, or nothing to make it in.
    """
    if create is False and not holds_logs(where):
        raise NotFoundError(
            f"{where} is not a Braidlog directory, and create=False forbids to "
            "create one"
        )
    if where.parent.is_file():
        msg = f"{where} cannot be created: {where.parent} is a file"
        raise InvalidArgumentError(msg)
    if create is None and not where.parent.is_dir():
        raise NotFoundError(
            f"{where} cannot be created, because {where.parent} does not exist: "
            "create that, or open with create=True"
        )
