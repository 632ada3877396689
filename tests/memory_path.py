"""Directories in memory, for tests that sync often and ask nothing of the disk itself.

What a crash leaves is shown on the disks of the core, which forget what was not synced;
a real disk only makes these tests wait.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

_MEMORY: Final = Path("/dev/shm")
_FREE_BYTES_MIN: Final = 1 << 30


def _has_room() -> bool:
    if not os.access(_MEMORY, os.W_OK):
        return False
    return shutil.disk_usage(_MEMORY).free >= _FREE_BYTES_MIN


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make an empty directory, in memory if there is room."""
    if not _has_room():
        yield tmp_path_factory.mktemp("disk")
        return
    with tempfile.TemporaryDirectory(
        prefix="braidlog-", dir=_MEMORY, ignore_cleanup_errors=True
    ) as path:
        yield Path(path)
