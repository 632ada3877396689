"""A store in memory, and a place for its backups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.backup.layout import Backup
from braidlog.testing import MemoryStore
from memory_path import tmp_path as tmp_path
from unit.backup.made import fill


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    with MemoryStore(segment_bytes=64 << 10, wal_bytes_max=64 << 20) as made:
        yield made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "backups"


@pytest.fixture
def one(store: MemoryStore, place: Path) -> Backup:
    fill(store)
    return store.backup(place)
