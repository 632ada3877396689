"""Makes a directory of a backup, and reads the parts of one.

Theory of operation: a marker file comes first, the identity last. In between no open
takes the directory, and the same restore begins over. Each part is read as a whole and
its checksum is compared before a record of it is used.

The new directory has an identity of its own: from here on it and its source append
different records at the same positions. With one identity an increment, a repair or a
reader could take files of one for those of the other.
"""

from __future__ import annotations

import heapq
import json
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from braidlog import _native
from braidlog.backup.layout import (
    Backup,
    BackupLog,
    BackupPart,
    BackupRunFile,
    BackupStream,
    BackupTable,
    BackupTree,
    forgotten,
    list_name,
)
from braidlog.backup.place import Place
from braidlog.documents import checksum_of, hashing
from braidlog.errors import (
    BackupDamagedError,
    CorruptionError,
    ForeignFormatError,
)

ENTRY_BYTES: Final = 24
"""Bytes of an entry of a part before its batch."""

Progress: TypeAlias = Callable[[int, int], object]
"""Called with the bytes done and the bytes in all."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A directory that was made of a backup."""

    target: str
    backup: str
    logs: int
    records: int
    bytes: int
    tables: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """A file of a backup that is damaged or missing."""

    path: str
    problem: str
    log: str
    begin: int
    end: int
    table: str | None = None
    """Of a file of a table: its name. Then `begin` and `end` say nothing."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verification saw; `findings` is empty where nothing is damaged."""

    backup: str
    parts: int
    records: int
    bytes: int
    findings: list[Finding]


def read_part(
    place: Place, log: BackupLog, stream: BackupStream, part: BackupPart
) -> bytes:
    """Return a part, all of it checked.

    Raises:
        BackupDamagedError: it is missing, or not what was written.
    """
    path = place.shown(part.path)
    try:
        data = place.read(part.path, part.bytes)
    except FileNotFoundError:
        raise BackupDamagedError(f"{path} is missing", path=path) from None
    if len(data) != part.bytes:
        some = "more than" if len(data) > part.bytes else f"{len(data)} instead of"
        msg = f"{path} has {some} {part.bytes} bytes"
        raise BackupDamagedError(msg, path=path)
    if checksum_of(data) != part.checksum:
        msg = f"the checksum of {path} does not match"
        raise BackupDamagedError(msg, path=path)
    try:
        found = _native.check_part(data)
    except CorruptionError as error:
        msg = f"{path}: {error.message}"
        raise BackupDamagedError(msg, path=path, offset=error.offset) from error
    expected = (int(log.id, 16), stream.stream, part.begin, part.end)
    if found[:4] != expected:
        msg = f"{path} has other records than the list of the backup says"
        raise BackupDamagedError(msg, path=path)
    return data


def _parts(backup: Backup) -> Iterator[tuple[BackupLog, BackupStream, BackupPart]]:
    for log in backup.logs:
        for stream in log.streams:
            for part in stream.parts:
                yield log, stream, part


def read_run(place: Place, file: BackupRunFile) -> Iterator[bytes]:
    """Yield a file of a table in pieces, the last one after its checksum was compared.

    Raises:
        BackupDamagedError: it is missing, or not what was written.
    """
    path = place.shown(file.path)
    hashed, size, before = hashing(), 0, b""
    try:
        with place.open(file.path) as source, place.explained(file.path):
            while data := source.read(_PIECE_BYTES):
                if before:
                    yield before
                before = bytes(data)
                hashed.update(before)
                size += len(before)
                if size > file.bytes:
                    break
    except FileNotFoundError:
        raise BackupDamagedError(f"{path} is missing", path=path) from None
    if size != file.bytes:
        some = "more than" if size > file.bytes else f"{size} instead of"
        msg = f"{path} has {some} {file.bytes} bytes"
        raise BackupDamagedError(msg, path=path)
    if hashed.hexdigest() != file.checksum:
        msg = f"the checksum of {path} does not match"
        raise BackupDamagedError(msg, path=path)
    yield before


def check_image(table: BackupTable, tree: BackupTree, path: str) -> None:
    """Compare what the image of a tree lists with what the backup has.

    Raises:
        BackupDamagedError: it lists something else, or is no image.
    """
    try:
        flushed, runs = _native.check_image(tree.image, int(tree.id, 16))
    except (CorruptionError, ForeignFormatError) as error:
        msg = f"{path}: table {table.name!r}: {error.message}"
        raise BackupDamagedError(msg, path=path) from error
    listed = [(number, size, checksum_of(each)) for number, size, each in runs]
    there = [(file.number, file.bytes, file.identity) for file in tree.runs]
    if (flushed, listed) != (tree.flushed, there):
        msg = f"{path}: table {table.name!r} consists of other files"
        raise BackupDamagedError(msg, path=path)


def verify(place: Place, backup: Backup, progress: Progress | None = None) -> Verified:
    """Read every byte of a backup and check it; change nothing."""
    findings, done, total = [], 0, max(1, backup.bytes)
    for log, stream, part in _parts(backup):
        try:
            read_part(place, log, stream, part)
        except BackupDamagedError as error:
            findings.append(
                Finding(error.path, error.message, log.name, part.begin, part.end)
            )
        done += part.bytes
        if progress is not None:
            progress(done, total)
    logs = {log.id: log.name for log in backup.logs}
    for table in backup.tables:
        for problem in _problems(place, backup, table):
            where, what = problem.path, problem.message
            findings.append(Finding(where, what, logs[table.log], 0, 0, table.name))
        done += sum(file.bytes for file in table.files)
        if progress is not None:
            progress(done, total)
    return Verified(
        backup.id, len(backup.parts), backup.records, backup.bytes, findings
    )


def _problems(
    place: Place, backup: Backup, table: BackupTable
) -> Iterator[BackupDamagedError]:
    for tree in table.trees:
        try:
            check_image(table, tree, place.shown(list_name(backup.id)))
        except BackupDamagedError as error:
            yield error
        for file in tree.runs:
            try:
                for _ in read_run(place, file):
                    pass
            except BackupDamagedError as error:
                yield error


def restore_directory(
    place: Place,
    backup: Backup,
    target: Path,
    *,
    segment_bytes: int | None = None,
    wal_bytes_max: int | None = None,
    progress: Progress | None = None,
    **keywords: Any,
) -> Restored:
    """Make a directory at ``target``, as the source was when the backup was taken.

    Raises:
        AlreadyExistsError: there is something at ``target``.
        LockedError: another restore fills it.
        BackupDamagedError: a file of the backup is damaged or missing; the directory
            cannot be opened then, and the same call begins over.
        UnavailableError: the system refuses, for instance because the disk is full.
    """
    note = {"backup": backup.id, "place": place.location}
    total, done = max(1, backup.bytes), 0
    restore = _native.Restore(
        target,
        [_row(log) for log in backup.logs],
        [_table_row(table) for table in backup.tables],
        segment_bytes=segment_bytes or backup.segment_bytes,
        bound=wal_bytes_max or backup.wal_bytes_max,
        bytes=sum(part.bytes for part in backup.log_parts),
        entropy=secrets.randbits(64),
        holder=f"process {os.getpid()}, restoring",
        note=json.dumps(note) + "\n",
        **keywords,
    )
    try:
        for log in backup.logs:
            for size, part in _in_order(place, log):
                restore.place(part)
                done += size
                if progress is not None:
                    progress(done, total)
        for table in backup.tables:
            for size in place_table(restore, place, backup, table):
                done += size
                if progress is not None:
                    progress(done, total)
        restore.finish()
    finally:
        restore.abandon()
    return Restored(
        str(target),
        backup.id,
        len(backup.logs),
        backup.records,
        backup.bytes,
        len(backup.tables),
    )


def place_table(
    restore: _native.Restore | _native.HostedRestore,
    place: Place,
    backup: Backup,
    table: BackupTable,
) -> Iterator[int]:
    """Make the files of a table; yield how many bytes were written of each piece.

    Raises:
        BackupDamagedError: a file is damaged or missing, or the list lies about it.
    """
    listed = place.shown(list_name(backup.id))
    for tree in table.trees:
        check_image(table, tree, listed)
        restore.begin_tree(int(table.id, 16), int(tree.id, 16), tree.image)
        for file in tree.runs:
            path = place.shown(file.path)
            for piece in read_run(place, file):
                try:
                    restore.append_run(file.number, piece)
                except (CorruptionError, ForeignFormatError) as error:
                    msg = f"{path}: {error.message}"
                    raise BackupDamagedError(msg, path=path) from error
                yield len(piece)
        restore.end_tree()
    restore.end_table(int(table.id, 16), table.counters)


def _table_row(table: BackupTable) -> tuple[Any, ...]:
    # A directory forgets an index that cannot be built.
    indexes = [
        (int(each.tree, 16), each.name, each.field.encode(), each.active, each.position)
        for each in table.indexes
        if not each.reason
    ]
    return (
        int(table.id, 16),
        table.name,
        int(table.log, 16),
        table.created,
        table.start,
        int(table.primary, 16),
        table.options.encode(),
        indexes,
        table.pin,
    )


_EMBEDDED: Final = 1
"""The stream of a log in a directory, and in parts that are made for one."""

_PIECE_BYTES: Final = 4 << 20


def _is_plain(log: BackupLog) -> bool:
    """Tell whether the positions of a log are the LLSNs of its one stream."""
    if len(log.streams) != 1:
        return False
    (stream,) = log.streams
    return (stream.first, stream.end) == (log.first, log.end)


def _in_order(place: Place, log: BackupLog) -> Iterator[tuple[int, bytes]]:
    """Yield the records of a log as parts of one stream, and how much was read."""
    if _is_plain(log):
        (stream,) = log.streams
        for part in stream.parts:
            yield part.bytes, read_part(place, log, stream, part)
        return
    read = [0]

    def entries(stream: BackupStream) -> Iterator[tuple[int, int, bytes]]:
        for part in stream.parts:
            data = read_part(place, log, stream, part)
            read[0] += part.bytes
            for _, glsn, count, batch in _native.part_entries(data):
                yield glsn, count, batch

    header = _native.part_header(int(log.id, 16), _EMBEDDED)
    piece, size = [header], 0
    for glsn, count, batch in heapq.merge(*map(entries, log.streams)):
        if glsn + count <= log.first:
            continue
        # Each stream counts the sequences of a producer by itself; in one they clash.
        entry = _native.part_entry(glsn, glsn, 0, count, batch, anonymous=True)
        piece.append(entry)
        size += len(entry)
        if size >= _PIECE_BYTES:
            yield read[0], b"".join(piece)
            piece, size, read[0] = [header], 0, 0
    yield read[0], b"".join(piece)


def _options(log: BackupLog) -> bytes:
    """Return the options of a log without what only a cluster needs."""
    options = json.loads(log.options or "{}")
    if options.pop("key_streams", None) is None:
        return log.options.encode()
    return json.dumps(options, sort_keys=True).encode()


def _row(log: BackupLog) -> tuple[Any, ...]:
    # Of producers in many streams nothing can be kept: their repeats are refused.
    producers = log.streams[0].producers if _is_plain(log) else forgotten(log.first)
    cursors = [
        (each.name, each.position, each.pin, each.touched, each.lease)
        for each in log.cursors
    ]
    return (
        log.name,
        int(log.id, 16),
        _EMBEDDED,
        log.created,
        _options(log),
        log.first,
        log.end,
        producers,
        cursors,
    )
