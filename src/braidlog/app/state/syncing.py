"""Making files and directories durable."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["make_directory", "sync"]


def sync(path: Path) -> None:
    """Make a file, or the entries of a directory, durable.

    Raises:
        OSError: the device failed.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make a directory, unless it is there; its name is durable on return.

    Raises:
        OSError: the device failed.
    """
    path.mkdir(parents=True, exist_ok=True)
    # Also if it was there: the process that made it may have ended before it synced.
    sync(path.parent)
