"""A bank whose hosts meet trouble, in processes of their own.

While the file that BROKEN names is there, nothing that SQLite writes gets to the disk.
With SLOWLY each record takes a hundredth of a second to apply.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import apsw

from braidlog.app.execution.executor import Executor
from braidlog.app.execution.outcome import Outcome
from unit.app.banking import make_bank

__all__ = ["bank"]

bank = make_bank()


class _File(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if Path(os.environ["BROKEN"]).exists():
            raise apsw.exception_for(apsw.SQLITE_IOERR_WRITE)
        super().xWrite(data, offset)


class _FileSystem(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("broken", "unix")

    def xOpen(self, name: Any, flags: list[int]) -> _File:
        return _File(name, flags)


if os.environ.get("BROKEN"):
    file_system = _FileSystem()
    apsw.set_default_vfs("broken")

if os.environ.get("SLOWLY"):
    apply = Executor.apply

    def slowly(
        self: Executor, position: int, timestamp: int, value: bytes
    ) -> Outcome | None:
        time.sleep(0.01)
        return apply(self, position, timestamp, value)

    Executor.apply = slowly  # type: ignore[method-assign, assignment]
