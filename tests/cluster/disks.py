"""Small disks for nodes: a tmpfs each, that can be filled; needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Final

__all__ = ["Disk", "why_not"]

_FILLER: Final = "filler"
_STEP: Final = 1 << 16


def why_not() -> str:
    """Return why there can be no such disks here; empty if there can."""
    if os.geteuid() != 0:
        return "mounting needs root"
    return "" if shutil.which("mount") else "the command mount is not installed"


class Disk:
    """A file system of `size` bytes at a path."""

    def __init__(self, path: Path, size: int, stack: ExitStack) -> None:
        path.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "braidlog", str(path)]
        subprocess.run(command, check=True, capture_output=True)
        # Lazily: a node that is being killed may hold it a moment longer.
        command = ["umount", "-l", str(path)]
        stack.callback(subprocess.run, command, check=True, capture_output=True)
        self._filler = path / _FILLER

    def fill(self) -> None:
        """Use up all space."""
        with self._filler.open("wb", buffering=0) as filler:
            try:
                while filler.write(bytes(_STEP)) == _STEP:
                    pass
            except OSError:
                return

    def free(self) -> None:
        """Give the space back."""
        self._filler.unlink(missing_ok=True)
