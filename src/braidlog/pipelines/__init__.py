"""Pipelines over logs: what reads whole logs, and makes something else of them.

Each is a function and a command, ``braidlog pipeline NAME``. They run in processes of
this machine, or in Spark when a session is given, and do the same there. Importing this
package costs nothing; names are loaded when they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from braidlog.pipelines.auditing import audit
    from braidlog.pipelines.compaction import Tombstones, compact
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
    from braidlog.pipelines.reindexing import reindex
    from braidlog.pipelines.repartitioning import Destination, repartition
    from braidlog.pipelines.replaying import replay
    from braidlog.sources.origin import Origin

__all__ = [
    "Attempt",
    "Destination",
    "File",
    "Job",
    "Origin",
    "Outlook",
    "Report",
    "Result",
    "Stage",
    "Tombstones",
    "audit",
    "compact",
    "reindex",
    "repartition",
    "replay",
    "run",
]

_HOMES: Final = {
    "Destination": "pipelines.repartitioning",
    "Origin": "sources.origin",
    "Tombstones": "pipelines.compaction",
    "audit": "pipelines.auditing",
    "compact": "pipelines.compaction",
    "reindex": "pipelines.reindexing",
    "repartition": "pipelines.repartitioning",
    "replay": "pipelines.replaying",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name in __all__:
        home = _HOMES.get(name, "pipelines.frame")
        return getattr(import_module(f"braidlog.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
