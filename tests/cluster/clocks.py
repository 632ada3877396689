"""Wall clocks of processes that can be set while they run, by libfaketime.

Only the wall clock jumps, as when an operator or NTP sets it. Monotonic clocks, by
which everything waits, go on.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

__all__ = ["Clock", "why_not"]

_LIBRARY: Final = "vendor/libfaketime/src/libfaketime.so.1"


def _library() -> Path | None:
    found = importlib.util.find_spec("libfaketime")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / _LIBRARY


def why_not() -> str:
    """Return why no clock can be set here; empty if one can."""
    library = _library()
    if library is None:
        return "libfaketime is not installed"
    return "" if library.exists() else f"there is no {library}"


class Clock:
    """The wall clock of one process: ahead of the real one by `shift` seconds."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        self.set(0.0)

    def set(self, shift: float) -> None:
        """Let it jump, ahead or back."""
        written = self._file.with_suffix(".new")
        written.write_text(f"{shift:+.3f}\n")
        written.rename(self._file)

    def launcher(self) -> list[str]:
        """Return what the command of the process begins with."""
        settings = {
            "LD_PRELOAD": str(_library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file.resolve()),
            # Looked up at each call, or a jump would come ten seconds late.
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        return ["env", *(f"{name}={value}" for name, value in settings.items())]
