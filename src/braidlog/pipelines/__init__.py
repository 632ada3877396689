"""Pipelines: jobs that read whole logs and compute a result.

Each is a function and a command, ``braidlog pipeline NAME``. They run in processes of
this machine, or in Spark if a session is given, with the same results. Importing this
package costs nothing; names are loaded when they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from braidlog.pipelines.archive_job import archive
    from braidlog.pipelines.audit_job import audit
    from braidlog.pipelines.compact_job import Tombstones, compact
    from braidlog.pipelines.execution import run
    from braidlog.pipelines.job import (
        Attempt,
        File,
        Job,
        JobProgress,
        Report,
        Result,
        Stage,
    )
    from braidlog.pipelines.reindex_job import reindex
    from braidlog.pipelines.repartition_job import Destination, repartition
    from braidlog.pipelines.replay_job import replay
    from braidlog.sources.origin import Origin

__all__ = [
    "Attempt",
    "Destination",
    "File",
    "Job",
    "JobProgress",
    "Origin",
    "Report",
    "Result",
    "Stage",
    "Tombstones",
    "archive",
    "audit",
    "compact",
    "reindex",
    "repartition",
    "replay",
    "run",
]

_HOMES: Final = {
    "Destination": "pipelines.repartition_job",
    "Origin": "sources.origin",
    "Tombstones": "pipelines.compact_job",
    "archive": "pipelines.archive_job",
    "audit": "pipelines.audit_job",
    "compact": "pipelines.compact_job",
    "reindex": "pipelines.reindex_job",
    "repartition": "pipelines.repartition_job",
    "replay": "pipelines.replay_job",
    "run": "pipelines.execution",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name in __all__:
        home = _HOMES.get(name, "pipelines.job")
        return getattr(import_module(f"braidlog.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
