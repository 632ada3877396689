"""``compact``: the latest record of each key, as of a position.

*Theory of operation.* Tasks of the first stage read ranges of positions and keep of
each key the last record of their range; what they write is spread over parts by key.
Tasks of the second stage take one part each: the last of the last records, without
those that say that the key is gone (tombstones), sorted by key. A tombstone has to be
kept until then, because an earlier range may have the key.

*Invariants.* What comes out depends on the log, the position and what a tombstone is,
not on how the work was cut: each file holds the keys whose CRC-32 is its number, in
order. Memory is bounded by settings, also if all records have one key or nine tenths
of the log are in one stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from braidlog.client.arrow import log_schema
from braidlog.errors import CorruptionError, InvalidArgumentError
from braidlog.pipelines.frame import (
    Attempt,
    Job,
    Progress,
    Report,
    Result,
    Stage,
    run,
)
from braidlog.pipelines.manifest import finished, publish, published
from braidlog.pipelines.origin import BYTES_PER_TASK, Origin, Range, joined
from braidlog.pipelines.pieces import COLUMNS, HELD_BYTES, Part, Pieces, keep_list

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Tombstones", "compact", "compact_job"]

_NAME: Final = "compact"
_PART_BYTES: Final = 64 << 20
"""Bytes of the log for each part of the second stage, at least."""
_PARTS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Tombstones:
    """Which records say that their key is gone.

    =========== ======================================================================
    empty       those whose value is empty
    none        no record does
    pattern     those whose value matches the regular expression ``text`` (of RE2)
    header      those with a header of the name ``text``
    =========== ======================================================================
    """

    kind: str = "empty"
    text: str = ""

    def __post_init__(self) -> None:
        """Check the kind.

        Raises:
            InvalidArgumentError: it is none of these, or the text is missing.
        """
        known = self.kind in ("empty", "none", "pattern", "header")
        if not known or bool(self.text) != (self.kind in ("pattern", "header")):
            msg = (
                "tombstones are 'empty', 'none', 'pattern' or 'header', the last two"
                f" with a text: not {self.kind!r} with {self.text!r}"
            )
            raise InvalidArgumentError(msg)
        if self.kind == "pattern":
            try:
                self.mask(pa.table({"value": pa.array([b""])}))
            except pa.ArrowInvalid as error:
                msg = f"{self.text!r} is no regular expression: {error}"
                raise InvalidArgumentError(msg) from None

    def mask(self, table: pa.Table) -> Any:
        """Tell of each record whether it is one."""
        if self.kind == "pattern":
            return pc.match_substring_regex(table["value"], self.text)
        if self.kind == "header":
            found = pc.map_lookup(table["headers"], pa.scalar(self.text), "first")
            return pc.is_valid(found)
        sizes = pc.binary_length(table["value"])
        return pc.equal(sizes, 0 if self.kind == "empty" else -1)


@dataclass(frozen=True, slots=True)
class _Collect:
    """Of a range of positions the last record of each key."""

    begin: int
    end: int
    parts: int


@dataclass(frozen=True, slots=True)
class _Merge:
    """One part of everything that was collected."""

    part: int
    pieces: str
    """The file that lists them."""
    begin: int
    end: int
    log: str


def compact(
    origin: Origin,
    output: str | Path,
    *,
    until: int | None = None,
    tombstones: Tombstones | None = None,
    bytes_per_task: int = BYTES_PER_TASK,
    spark: SparkSession | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Write the latest record of each key into Parquet files, as of a position.

    ``until`` is the last position that counts; without it that is where the log ends
    when the job begins. Records without a key are counted and left out. In the
    directory ``output`` nothing counts but what its ``manifest.json`` names.

    Interrupted, the same call goes on. Of a job that is done nothing is done again: for
    a later state name another directory.

    Raises:
        BeyondEndError: the log ends before ``until``.
        AlreadyExistsError: the directory has the results of another job.
        LockedError: the same job is running.
    """
    job = compact_job(
        origin,
        output,
        until=until,
        tombstones=tombstones,
        bytes_per_task=bytes_per_task,
    )
    return run(job, spark=spark, workers=workers, progress=progress)


def compact_job(
    origin: Origin,
    output: str | Path,
    *,
    until: int | None = None,
    tombstones: Tombstones | None = None,
    bytes_per_task: int = BYTES_PER_TASK,
) -> Job:
    """Return the job of `compact`, for `braidlog.pipelines.run`."""
    home, gone = Path(output).absolute(), tombstones or Tombstones()
    origin = origin.absolute()
    parameters = {
        "origin": origin.parameters(),
        "until": until,
        "tombstones": [gone.kind, gone.text],
    }

    def plan_collect(_: Sequence[Result]) -> list[_Collect]:
        with origin.open() as source:
            ranges = joined(source.ranges(until, bytes_per_task))
        parts = _parts(ranges)
        return [_Collect(each.begin, each.end, parts) for each in ranges]

    def finish(results: Sequence[Result]) -> Mapping[str, Any]:
        files = [file for result in results for file in result.files]
        return publish(
            home, _NAME, job.identity, parameters, files=files, facts=_facts(results)
        )

    job = Job(
        _NAME,
        parameters,
        home,
        (
            Stage("collect", _Collect, plan_collect, partial(_collect, origin)),
            Stage(
                "merge",
                _Merge,
                lambda collected: _plan_merge(job, collected),
                partial(_merge, gone),
            ),
        ),
        finish,
        lambda: published(home, _NAME, job.identity),
    )
    return job


def _parts(ranges: Sequence[Range]) -> int:
    size = sum(each.bytes for each in ranges)
    return max(1, min(_PARTS_MAX, -(-size // _PART_BYTES)))


def _latest(table: pa.Table) -> pa.Table:
    """Keep of each key the last record; they are in the order of positions."""
    count = table.num_rows
    numbered = pa.table({"key": table["key"], "row": np.arange(count)})
    by_key = numbered.group_by("key", use_threads=False)
    last = by_key.aggregate([("row", "max")])["row_max"].to_numpy()
    is_last = np.zeros(count, bool)
    is_last[last] = True
    return table.filter(pa.array(is_last))


def _collect(origin: Origin, task: _Collect, attempt: Attempt) -> Result:
    pieces = Pieces(attempt, task.parts, shrink=_latest)
    records = keyless = size = 0
    first, after = None, task.begin
    with origin.open() as source:
        for batch in source.batches(task.begin, task.end, COLUMNS):
            positions = batch.column("position")
            first = positions[0].as_py() if first is None else first
            after = positions[-1].as_py() + 1
            records += batch.num_rows
            size += batch.nbytes
            keyless += batch.column("key").null_count
            pieces.add(batch.filter(pc.is_valid(batch.column("key"))))
    pieces.finish()
    begin = task.begin if first is None else first
    if records != after - begin:
        msg = f"positions {begin} to {after - 1} hold {records} records"
        raise CorruptionError(msg)
    return Result(
        {
            "records_read": records,
            "bytes_read": size,
            "without_key": keyless,
            "piece_bytes_written": pieces.bytes_written,
        },
        tuple(pieces.files),
        {
            "begin": begin,
            "end": after,
            "parts": task.parts,
            "spans": pieces.spans,
            "log": source.id,
        },
    )


def _plan_merge(job: Job, collected: Sequence[Result]) -> list[_Merge]:
    if not collected:
        return []
    facts = sorted((each.facts for each in collected), key=lambda each: each["begin"])
    for before, behind in pairwise(facts):
        if before["end"] != behind["begin"]:
            msg = f"nobody read the positions {before['end']} to {behind['begin'] - 1}"
            raise CorruptionError(msg)
    pieces = keep_list(job, "collect", collected)
    span = {"begin": facts[0]["begin"], "end": facts[-1]["end"], "log": facts[0]["log"]}
    return [_Merge(part, pieces, **span) for part in range(facts[0]["parts"])]


def _latest_of(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Keep the last record of each key; hold twice that, or `HELD_BYTES` more."""
    latest = log_schema(list(COLUMNS)).empty_table()
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        size = sum(each.nbytes for each in held)
        # Not with each batch: the same keys would be gone through again and again.
        if size >= max(HELD_BYTES, latest.nbytes):
            latest = _latest(pa.concat_tables([latest, pa.Table.from_batches(held)]))
            held = []
    if held:
        latest = _latest(pa.concat_tables([latest, pa.Table.from_batches(held)]))
    return latest.combine_chunks()


def _merge(gone: Tombstones, task: _Merge, attempt: Attempt) -> Result:
    home = attempt.home
    part = Part(home, task.pieces, task.part)
    latest = _latest_of(part.batches())
    is_gone = gone.mask(latest)
    live = latest.filter(pc.invert(is_gone))
    live = live.take(pc.sort_indices(live["key"]))
    folder = home / "data"
    folder.mkdir(exist_ok=True)
    path = folder / f"{attempt.name}.parquet"
    pq.write_table(live, path, compression="zstd")
    return Result(
        {
            "keys": live.num_rows,
            "tombstones": latest.num_rows - live.num_rows,
            "piece_bytes_read": part.bytes_read,
        },
        (finished(home, path),),
        {"begin": task.begin, "end": task.end, "log": task.log, "rows": live.num_rows},
    )


def _facts(results: Sequence[Result]) -> dict[str, Any]:
    """Say what the files are, and what was proved while they were made."""
    if not results:
        return {"begin": 1, "end": 1, "keys": 0, "rows": [], "proved": []}
    first = results[0].facts
    begin, end = first["begin"], first["end"]
    return {
        "log": first["log"],
        "begin": begin,
        "end": end,
        "keys": sum(result.facts["rows"] for result in results),
        "tombstones": sum(result.figures["tombstones"] for result in results),
        "rows": [result.facts["rows"] for result in results],
        "proved": [f"each position from {begin} to {end - 1} was read once"],
    }
