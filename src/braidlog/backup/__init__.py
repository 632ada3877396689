"""Backups of a directory or a cluster: list, verify, delete and restore them.

`Store.backup` and `Client.backup` make them. Each function takes the place of the
backups, a path or a URI such as ``s3://bucket/backups``, and needs nothing of the
source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.backup import run as _run
from braidlog.backup.layout import Backup
from braidlog.backup.place import PlaceLike, place_of
from braidlog.backup.restored import (
    Finding,
    Progress,
    Restored,
    Verified,
    restore_directory,
)
from braidlog.backup.restored import verify as _verify
from braidlog.errors import NotFoundError
from braidlog.paths import StrPath, local_path

if TYPE_CHECKING:
    from braidlog.errors import LogError

__all__ = [
    "Backup",
    "Finding",
    "Restored",
    "Verified",
    "backups",
    "damaged",
    "delete",
    "restore",
    "verify",
]


def backups(place: PlaceLike) -> list[Backup]:
    """Return the backups of a place, the oldest first.

    Those whose list is damaged are in `damaged`.

    Raises:
        UnavailableError: the place cannot be read.
    """
    return _run.look(place_of(place))[0]


def damaged(place: PlaceLike) -> dict[str, LogError]:
    """Return the backups of a place whose list cannot be read, with what is wrong."""
    return _run.look(place_of(place))[1]


def verify(
    place: PlaceLike, backup: str | None = None, *, progress: Progress | None = None
) -> Verified:
    """Read every byte of a backup, by default the newest, and check it.

    Raises:
        NotFoundError: there is no such backup.
        BackupDamagedError: its list is damaged.
    """
    where = place_of(place)
    return _verify(where, _run.find(where, backup), progress)


def delete(place: PlaceLike, backup: str) -> int:
    """Delete a backup, and the files that no other one needs; return how many.

    Raises:
        NotFoundError: there is no such backup.
        NotReadyError: another one is being made on top of it.
    """
    return _run.delete(place_of(place), backup)


def restore(
    place: PlaceLike,
    target: StrPath,
    backup: str | None = None,
    *,
    wal_bytes_max: int | None = None,
    progress: Progress | None = None,
) -> Restored:
    """Make a directory of a backup, by default the newest.

    It has the logs, records, positions, options, cursors and producers of the source
    when the backup was taken, and an identity of its own. ``wal_bytes_max`` replaces
    the bound of the source.

    Nothing at ``target`` is overwritten: it does not exist, or is empty. If the restore
    is interrupted, no open accepts what is there, and the same call begins over.

    Raises:
        NotFoundError: there is no such backup, or the parent of ``target`` does not
            exist.
        AlreadyExistsError: there is something at ``target``.
        BackupDamagedError: a file of the backup is damaged or missing.
        UnavailableError: the system refuses, for instance because the disk is full.
    """
    where = place_of(place)
    path = local_path(target, "the directory of a log").absolute()
    if not path.parent.is_dir():
        msg = f"{path} cannot be made, because {path.parent} does not exist"
        raise NotFoundError(msg).advising("Check the path, or create its parent")
    found = _run.find(where, backup)
    return restore_directory(
        where, found, path, wal_bytes_max=wal_bytes_max, progress=progress
    )
