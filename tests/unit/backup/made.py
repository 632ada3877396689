"""Logs to back up, and what is in a place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from braidlog import Log, Store
from braidlog.backup import directory as directories
from braidlog.backup.layout import Backup
from braidlog.backup.place import place_of


def fill(store: Store, name: str = "orders", count: int = 30) -> Log:
    log = store.create_log(name, exist_ok=True)
    for i in range(count):
        log.append(b"v%d" % i * 300, key=b"k%d" % i, headers={"h": b"%d" % i})
    return log


def contents(log: Log) -> list[Any]:
    return [record.as_tuple() for record in log.read()]


def back_up(store: Store, place: Any, base: str | None = None) -> Backup:
    """Back up into a place that is made for the test."""
    return directories.back_up_directory(
        place, store._backend.follow, "memory", base=base, lease_s=60.0
    )


def left_in(place: Path) -> list[str]:
    """Return the parts and notes in a place."""
    where = place_of(place)
    return where.names("parts") + where.names("running")
