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
    BackupStream,
    forgotten,
)
from braidlog.backup.place import Place
from braidlog.documents import checksum_of
from braidlog.errors import BackupDamagedError, CorruptionError

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


@dataclass(frozen=True, slots=True)
class Finding:
    """A file of a backup that is damaged or missing."""

    path: str
    problem: str
    log: str
    begin: int
    end: int


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
    return Verified(
        backup.id, len(backup.parts), backup.records, backup.bytes, findings
    )


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
        segment_bytes=segment_bytes or backup.segment_bytes,
        bound=wal_bytes_max or backup.wal_bytes_max,
        bytes=backup.bytes,
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
        restore.finish()
    finally:
        restore.abandon()
    return Restored(
        str(target), backup.id, len(backup.logs), backup.records, backup.bytes
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
