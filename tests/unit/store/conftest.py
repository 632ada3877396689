"""Directories, nodes and logs of the embedded API."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import braidlog
from braidlog import Log, Store

# Small, so that a test fills several.
SEGMENT_BYTES = 1 << 20

Opener = Callable[..., Store]


# A file system in memory, where syncs cost nothing; what needs a disk is in `process`.
MEMORY = Path("/dev/shm")  # noqa: S108, RUF100
ROOM = 2 << 30


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """Where the node under test is."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ROOM:
        yield tmp_path / "data"
        return
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="braidlog-") as directory:
        yield Path(directory) / "data"


@pytest.fixture
def opener(data: Path) -> Iterator[Opener]:
    """Open the node again and again; what is open at the end is closed."""
    opened: list[Store] = []

    def open_again(**options: object) -> Store:
        options.setdefault("segment_bytes", SEGMENT_BYTES)
        node = braidlog.open(data, **options)  # type: ignore[arg-type]
        opened.append(node)
        return node

    yield open_again
    for node in opened:
        node.close()


@pytest.fixture
def node(opener: Opener) -> Store:
    """Have an empty node, open for writing."""
    return opener()


@pytest.fixture
def log(node: Store) -> Log:
    """Have an empty log."""
    return node.create_log("orders")


@pytest.fixture
def ten(log: Log) -> Log:
    """Have a log of ten records v1..v10 at times 10, 20, ..., keyed a and b in turn."""
    for i in range(1, 11):
        log.append(b"v%d" % i, key=b"ba"[i % 2 : i % 2 + 1], timestamp=10 * i)
    return log


def values(log: Log) -> list[bytes]:
    """Return what a log holds."""
    return [record.value for record in log]
