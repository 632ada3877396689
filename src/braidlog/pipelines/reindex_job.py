"""``reindex``: rebuild side files that are missing or damaged.

*Theory of operation.* Beside each sealed segment is a side file, its number index. It
is derived data: without it, the index is computed from the segment each time that it is
needed. A task computes it once and compares it with the checksum in the manifest, which
dates from the sealing of the segment. So the task writes exactly the file that was
lost, or nothing.

*Invariants.* A side file is put into place in one step, so a node that runs on the
directory reads the old one or the new one. Whole side files are not touched. For a
segment that is itself damaged, nothing is written; the report names it, and ``braidlog
verify`` shows the damage.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from braidlog import _native, durable
from braidlog.errors import CorruptionError, InvalidArgumentError, NotFoundError
from braidlog.handover import tail_of
from braidlog.paths import local_path
from braidlog.pipelines.execution import run
from braidlog.pipelines.job import (
    Attempt,
    File,
    Job,
    Progress,
    Report,
    Result,
    Stage,
)
from braidlog.pipelines.manifest import home_of, refuse_results
from braidlog.store import inspect as files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME: Final = "reindex"


@dataclass(frozen=True, slots=True)
class _Segment:
    """One sealed segment of a directory whose side file is not whole."""

    directory: str
    number: int
    bytes: int


def reindex(
    directories: Sequence[str | Path],
    output: str | Path,
    *,
    spark: SparkSession | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Rebuild the missing or damaged side files of directories.

    ``output`` is a directory for the report. Each call checks all side files again.
    ``findings`` of the report lists segments that are themselves damaged.

    Raises:
        AlreadyExistsError: the directory has the results of another job.
        NotFoundError: there is no data directory at one of the places.
    """
    if not directories:
        raise InvalidArgumentError("name at least one directory")
    home = home_of(output)
    found = sorted(
        os.path.abspath(local_path(each, "a data directory"))  # noqa: PTH100
        for each in directories
    )

    def plan(_: Sequence[Result]) -> list[_Segment]:
        return [
            _Segment(directory, row.number, row.bytes)
            for directory in found
            for row in files.segments(Path(directory))
            if row.number is not None and row.side in ("missing", "bad")
        ]

    job = Job(
        _NAME,
        {"directories": found},
        home,
        (Stage("write", _Segment, plan, _write),),
        _facts,
        # Damage may come at any time, so it always looks again.
        partial(refuse_results, home),
        reads=tuple(found),
        obsolete=_is_obsolete,
    )
    return run(job, spark=spark, workers=workers, progress=progress)


def _write(task: _Segment, attempt: Attempt) -> Result:
    directory = Path(task.directory)
    try:
        lost = _native.lost_side(directory, task.number)
    except CorruptionError as error:
        return Result({"segments_damaged": 1}, (), {"finding": error.message})
    except NotFoundError:
        lost = None  # The node let go of the segment meanwhile.
    if lost is None:
        return Result({"side_files_whole": 1})
    path, content = lost
    aside = path.with_name(f"{path.name}.{secrets.token_hex(6)}.tmp")
    durable.replace(path, content, temporary=aside)
    if not _is_there(directory, task.number):
        path.unlink(missing_ok=True)  # It went while this was written.
        return Result({"side_files_whole": 1})
    return Result(
        {
            "side_files_written": 1,
            "side_bytes": len(content),
            "bytes_read": task.bytes,
        },
        (File(str(path), len(content), "", *tail_of(path)),),
        {"directory": task.directory, "segment": task.number},
    )


def _is_there(directory: Path, segment: int) -> bool:
    return any(row.number == segment for row in files.segments(directory))


def _is_obsolete(result: Result) -> bool:
    """Tell whether the node let go of the segment of a side file meanwhile."""
    facts = result.facts
    return not _is_there(Path(facts["directory"]), facts["segment"])


def _facts(results: Sequence[Result]) -> Mapping[str, Any]:
    findings = [each.facts["finding"] for each in results if "finding" in each.facts]
    written = sum(each.figures.get("side_files_written", 0) for each in results)
    proof = f"{written} side files are what their segments were sealed with"
    return {"findings": findings, "proved": [proof] if written else []}
