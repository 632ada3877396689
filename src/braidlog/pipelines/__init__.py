"""Pipelines over logs: what reads whole logs, and makes something else of them.

Each is a function and a command, ``braidlog pipeline NAME``. They run in processes of
this machine, or in Spark when a session is given, and do the same there. Importing this
package costs nothing; names are loaded when they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from braidlog.pipelines.frame import (
        Attempt,
        File,
        Job,
        Outlook,
        Report,
        Result,
        Stage,
        run,
    )

__all__ = [
    "Attempt",
    "File",
    "Job",
    "Outlook",
    "Report",
    "Result",
    "Stage",
    "run",
]

_HOMES: Final = dict.fromkeys(__all__, "braidlog.pipelines.frame")


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
