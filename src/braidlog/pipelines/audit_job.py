"""``audit``: compare the copies of a log with each other and with its archives.

*Theory of operation.* Each task of the first stage reads one part of one copy, which
checks all its checksums, and writes the position and a hash of each record; other tasks
check whole files. Each task of the second stage takes a range of positions and compares
these entries of all copies: `braidlog.pipelines.audit_compare`.

*Invariants.* An audit changes nothing and reads everything anew each time. It names
every range that it could not read because of damage. Ranges reported as compared were
read completely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from braidlog.archive.place import absolute
from braidlog.errors import (
    CorruptionError,
    FormatError,
    InvalidArgumentError,
    LogError,
    NotFoundError,
)
from braidlog.pipelines.audit_compare import CopyFinding, Holding, Rows, compare
from braidlog.pipelines.audit_copies import (
    Copy,
    CopyPart,
    looks,
    problems_of,
    rows_of,
)
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
from braidlog.pipelines.manifest import finished, home_of, refuse_results
from braidlog.sources.origin import Origin
from braidlog.sources.plan import BYTES_PER_TASK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME: Final = "audit"
_POSITIONS_PER_TASK: Final = 1 << 20
_HELD_ROWS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of one copy in a file of the first stage."""

    copy: int
    path: str


@dataclass(frozen=True, slots=True)
class _Compare:
    """A range of positions, and what copies say of it."""

    begin: int
    end: int
    copies: tuple[str, ...]
    holdings: tuple[tuple[Holding, ...], ...]
    parts: tuple[_Part, ...]
    earlier: tuple[CopyFinding, ...] = ()
    """What the first stage found; with the first range only."""


def copies_of(origin: Origin, archives: Sequence[str | Path] = ()) -> tuple[Copy, ...]:
    """Return the copies of a log: replicas of the origin, then archives.

    Raises:
        NotFoundError: the archive of the log was not recorded, or is not there.
        InvalidArgumentError: there is nothing to audit.
    """
    found: list[Copy] = []
    if origin.path:
        found.append(Copy(origin.path, "log", origin.path))
    elif origin.raw:
        found += [Copy(place, "raw", place) for place in origin.raw]
    else:
        with origin.client() as client:
            streams = client.log(origin.log).describe().streams
        nodes = sorted({node for info in streams for node in info.replicas})
        found += [Copy(f"node {node}", "node", origin.cluster, node) for node in nodes]
    places = list(map(str, archives))
    if origin.include_archive:
        own = origin.archive_location()
        places = [own, *(place for place in places if absolute(place) != own)]
    found += [Copy(place, "archive", place) for place in places]
    if not found:
        raise InvalidArgumentError("there is no copy to audit")
    return tuple(found)


def audit(
    origin: Origin,
    output: str | Path,
    *,
    archives: Sequence[str | Path] = (),
    bytes_per_task: int = BYTES_PER_TASK,
    spark: SparkSession | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Compare all copies of a log: each node of a cluster, or each raw directory.

    ``archives``, and the log's own archive if the origin includes it, are further
    copies. The audit checks checksums, that positions and the LLSNs of each stream are
    dense, and that copies are equal. ``findings`` of the report lists all differences
    and damage, in the order of positions; damage does not raise an error. ``behind``
    says how far copies end before the furthest one, which is no fault. ``output`` is a
    directory for the report and for temporary files.

    Raises:
        AlreadyExistsError: the directory has the results of another job.
        NotFoundError: there is no such log.
        LockedError: a node runs on a raw directory.
        TrimmedError: the log was trimmed meanwhile; run the audit again.
    """
    origin = origin.absolute()
    places = [absolute(place) for place in archives]
    home = home_of(output)

    def plan_look(_: Sequence[Result]) -> list[CopyPart]:
        found: list[CopyPart] = []
        for copy in copies_of(origin, places):
            try:
                found += looks(copy, origin, bytes_per_task)
            except (CorruptionError, FormatError):
                found.append(CopyPart(copy, files=True))
                found.append(CopyPart(copy))  # Which says in its place what is wrong.
        return found

    job = Job(
        _NAME,
        {"origin": origin.parameters(), "archives": places},
        home,
        (
            Stage("look", CopyPart, plan_look, partial(_look, origin)),
            Stage("compare", _Compare, _plan_compare, _compare),
        ),
        _facts,
        # There may be new damage, so it always looks again.
        partial(refuse_results, home),
        reads=origin.directories(),
    )
    return run(job, spark=spark, workers=workers, progress=progress)


# -- the first stage ---------------------------------------------------------------


def _look(origin: Origin, look: CopyPart, attempt: Attempt) -> Result:
    facts: dict[str, Any] = {"copy": look.copy.name, "findings": []}
    if look.files:
        found = [
            CopyFinding("damaged", look.copy.name, 0, f"{path}: {problem}")
            for path, problem in problems_of(look)
        ]
        facts["findings"] = [asdict(each) for each in found]
        return Result({}, (), facts)
    files: list[File] = []
    held: list[pa.RecordBatch] = []
    records = last = 0
    try:
        for batch in rows_of(look, origin):
            held.append(batch)
            records += batch.num_rows
            last = batch.column("position")[-1].as_py()
            if sum(each.num_rows for each in held) >= _HELD_ROWS:
                files.append(_written(held, attempt, len(files)))
                held = []
    except (CorruptionError, FormatError, NotFoundError) as error:
        facts["findings"] = [asdict(_damage(look.copy, last, error))]
    if held:
        files.append(_written(held, attempt, len(files)))
    facts["ranges"] = [_ranges(attempt.home / file.path) for file in files]
    whole = look.copy.kind in ("log", "archive")
    facts["whole"] = whole and not facts["findings"]
    return Result({"records_read": records}, tuple(files), facts)


def _damage(copy: Copy, last: int, error: LogError) -> CopyFinding:
    problem = f"it can be read only up to position {last}: {error.message}"
    return CopyFinding("damaged", copy.name, last + 1 if last else 0, problem)


def _written(held: Sequence[pa.RecordBatch], attempt: Attempt, number: int) -> File:
    path = attempt.scratch / f"{attempt.name}-{number}.arrow"
    table = pa.Table.from_batches(held).combine_chunks()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_file(str(path), table.schema, options=options) as writer:
        writer.write_table(table)
    return finished(attempt.home, path)


def _read(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def _ranges(path: Path) -> dict[str, Any]:
    """Return which positions a file has, and which LLSNs of each stream."""
    table = _read(path)
    positions = pc.min_max(table["position"]).as_py()
    streams = table.group_by("stream").aggregate([("llsn", "min"), ("llsn", "max")])
    names = ("stream", "llsn_min", "llsn_max")
    rows = zip(*(streams[name].to_pylist() for name in names), strict=True)
    return {**positions, "streams": [list(row) for row in rows]}


# -- the second stage --------------------------------------------------------------


def _plan_compare(looked: Sequence[Result]) -> list[_Compare]:
    names = tuple(dict.fromkeys(each.facts["copy"] for each in looked))
    earlier = tuple(
        CopyFinding(**found) for each in looked for found in each.facts["findings"]
    )
    placed = [
        (names.index(each.facts["copy"]), file.path, found)
        for each in looked
        for file, found in zip(each.files, each.facts.get("ranges", ()), strict=True)
    ]
    whole = {each.facts["copy"] for each in looked if each.facts.get("whole")}
    holdings = tuple(
        _holdings([found for copy, _, found in placed if copy == number], name in whole)
        for number, name in enumerate(names)
    )
    begin = min((found["min"] for _, _, found in placed), default=1)
    end = max((found["max"] for _, _, found in placed), default=0) + 1
    tasks = []
    for start in range(begin, max(end, begin + 1), _POSITIONS_PER_TASK):
        stop = min(end, start + _POSITIONS_PER_TASK)
        parts = tuple(
            _Part(copy, path)
            for copy, path, found in placed
            if found["min"] < stop and found["max"] >= start
        )
        first = earlier if start == begin else ()
        tasks.append(_Compare(start, stop, names, holdings, parts, first))
    return tasks


def _holdings(ranges: Sequence[Mapping[str, Any]], whole: bool) -> tuple[Holding, ...]:
    if not ranges:
        return ()
    if whole:
        first = min(each["min"] for each in ranges)
        return (Holding(0, first, max(each["max"] for each in ranges)),)
    found: dict[int, Holding] = {}
    for stream, low, high in (row for each in ranges for row in each["streams"]):
        known = found.get(stream, Holding(stream, low, high))
        found[stream] = Holding(stream, min(known.first, low), max(known.last, high))
    return tuple(found[stream] for stream in sorted(found))


def _compare(task: _Compare, attempt: Attempt) -> Result:
    pieces: list[list[tuple[Any, ...]]] = [[] for _ in task.copies]
    rows = 0
    for part in task.parts:
        table = _read(attempt.home / part.path)
        position = table["position"]
        inside = pc.and_(
            pc.greater_equal(position, task.begin), pc.less(position, task.end)
        )
        table = table.filter(inside)
        rows += table.num_rows
        names = ("position", "stream", "llsn", "digest")
        pieces[part.copy].append(tuple(table[name].to_numpy() for name in names))
    copies = [
        Rows(name, tuple(pieces[number]), task.holdings[number])
        for number, name in enumerate(task.copies)
    ]
    found = [*task.earlier, *compare(copies, task.begin, task.end)]
    return Result(
        {"rows_compared": rows, "findings": len(found)},
        (),
        {
            "begin": task.begin,
            "end": task.end,
            "copies": list(task.copies),
            "last": [[asdict(each) for each in copy] for copy in task.holdings],
            "findings": [asdict(each) for each in found],
        },
    )


def _facts(results: Sequence[Result]) -> Mapping[str, Any]:
    facts = [each.facts for each in results]
    findings = [found for each in facts for found in each["findings"]]
    begin, end = facts[0]["begin"], facts[-1]["end"]
    copies, last = facts[0]["copies"], facts[0]["last"]
    proved = []
    if not findings:
        proved.append(
            f"each position from {begin} to {end - 1} is there, and the same in all"
            f" of {len(copies)} copies that have it"
        )
    return {
        "begin": begin,
        "end": end,
        "copies": copies,
        "behind": _behind(copies, last, end),
        "findings": findings,
        "proved": proved,
    }


def _behind(copies: Sequence[str], last: Sequence[Any], end: int) -> list[str]:
    """Say which copies end before the furthest one."""
    furthest: dict[int, int] = {}
    for each in (each for copy in last for each in copy):
        stream = each["stream"]
        furthest[stream] = max(furthest.get(stream, 0), each["last"])
    if 0 in furthest:
        furthest[0] = end - 1
    return [
        f"{name} ends {furthest[each['stream']] - each['last']} records before the"
        f" furthest copy" + (f" of stream {each['stream']}" if each["stream"] else "")
        for name, copy in zip(copies, last, strict=True)
        for each in copy
        if each["last"] < furthest[each["stream"]]
    ]
