"""A directory with a log for tables."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import braidlog
from memory_path import tmp_path as tmp_path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[braidlog.Store]:
    with braidlog.open(tmp_path / "d", segment_bytes=1 << 20) as store:
        store.create_log("orders")
        yield store
