"""``compact``: the latest record of each key, as of a position.

*Theory of operation.* Each task of the first stage reads a range of positions, finds
the last record of each key in it, and writes these records into parts by key. Each task
of the last stage takes one part, finds the last record of each key in it, drops those
that delete their key (tombstones), and sorts by key. Tombstones are needed until then,
because an earlier range may have the key.

The more ranges there are, the fewer of the first stage's records are the last ones of
the whole log. So for a directory of more than a few tasks, the first stage passes on
keys and positions only; two more stages find the last records and fetch them
(`latest`). Reading a directory again costs less than moving superseded records. Reading
a cluster again, or comparing copies again, costs more.

*Invariants.* The result depends on the log, the position and the tombstones, not on how
the work was divided: each file holds, in order, the keys whose CRC-32 is its number.
Settings bound the memory, even if all records have one key or nine tenths of the log
are in one stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from braidlog.errors import CorruptionError, InvalidArgumentError
from braidlog.pipelines.execution import run
from braidlog.pipelines.job import (
    Attempt,
    Job,
    Progress,
    Report,
    Result,
    Stage,
)
from braidlog.pipelines.latest import (
    KEYS,
    Choose,
    Fetch,
    Whole,
    choose,
    fetch,
    latest,
    latest_of,
)
from braidlog.pipelines.manifest import finished, home_of, publish, published
from braidlog.pipelines.shuffle import (
    COLUMNS,
    Counted,
    ShuffleReader,
    ShuffleWriter,
    write_list,
)
from braidlog.sources.origin import Origin
from braidlog.sources.plan import BYTES_PER_TASK, Span, joined

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME: Final = "compact"
_PART_BYTES: Final = 64 << 20
"""Bytes of the log for each part of the second stage, at least."""
_PARTS_MAX: Final = 4096
_RANGES_AT_ONCE: Final = 3
"""Ranges of a directory, at most, whose records are not read a second time."""


@dataclass(frozen=True, slots=True)
class Tombstones:
    """Which records delete their key.

    A null value deletes its key under each rule but ``none``.

    =========== ======================================================================
    null        no others: an empty value is a value
    empty       also those whose value is empty
    pattern     also those whose value matches the regular expression ``text`` (of RE2)
    header      also those with a header of the name ``text``
    none        none at all: null values are kept
    =========== ======================================================================
    """

    kind: str = "null"
    text: str = ""

    def __post_init__(self) -> None:
        """Check the kind.

        Raises:
            InvalidArgumentError: it is none of these, or the text is missing.
        """
        known = self.kind in ("null", "empty", "none", "pattern", "header")
        if not known or bool(self.text) != (self.kind in ("pattern", "header")):
            raise InvalidArgumentError(
                "tombstones are 'null', 'empty', 'none', 'pattern' or 'header', the "
                f"last two with a text: not {self.kind!r} with {self.text!r}"
            )
        if self.kind == "pattern":
            try:
                self.mask(pa.table({"value": pa.array([b""])}))
            except pa.ArrowInvalid as error:
                msg = f"{self.text!r} is not a regular expression: {error}"
                raise InvalidArgumentError(msg) from None

    def mask(self, table: pa.Table) -> Any:
        """Return for each record whether it is a tombstone."""
        if self.kind == "none":
            return pa.repeat(pa.scalar(False), table.num_rows)
        null = pc.is_null(table["value"])
        if self.kind == "null":
            return null
        if self.kind == "header":
            # All of them: the first one may have a null value, and is a header too.
            found = pc.map_lookup(table["headers"], pa.scalar(self.text), "all")
            return pc.or_(null, pc.is_valid(found))
        if self.kind == "pattern":
            matches = pc.match_substring_regex(table["value"], self.text)
        else:
            matches = pc.equal(pc.binary_length(table["value"]), 0)
        return pc.or_(null, pc.fill_null(matches, False))


@dataclass(frozen=True, slots=True)
class _Collect:
    """Of a range of positions the last record of each key."""

    begin: int
    end: int
    parts: int
    keys_only: bool
    """Leave keys and positions; the records themselves are read when it is known."""


@dataclass(frozen=True, slots=True)
class _Merge:
    """One part of the records that were collected, or fetched."""

    part: int
    shuffle: str
    """The file that lists them."""
    whole: Whole


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

    ``until`` is the last position that counts; by default, the last one of the log when
    the job begins. Records without a key are counted and left out. In the directory
    ``output``, only the files that ``manifest.json`` names count.

    The same call resumes an interrupted job. A finished job is not done again: for a
    later state, name another directory.

    Raises:
        BeyondEndError: the log ends before ``until``.
        AlreadyExistsError: the directory has the results of another job.
        LockedError: the same job is running.
    """
    origin, gone = origin.absolute(), tombstones or Tombstones()

    def plan_collect(_: Sequence[Result]) -> list[_Collect]:
        with origin.open() as source:
            ranges = joined(source.ranges(until, bytes_per_task))
        parts = _parts(ranges)
        keys_only = bool(origin.path) and len(ranges) > _RANGES_AT_ONCE
        return [_Collect(each.begin, each.end, parts, keys_only) for each in ranges]

    job = Job(
        _NAME,
        {
            "origin": origin.parameters(),
            "until": until,
            "tombstones": [gone.kind, gone.text],
        },
        home_of(output),
        (
            Stage("collect", _Collect, plan_collect, partial(_collect, origin)),
            Stage(
                "choose",
                Choose,
                lambda collected: _plan_choose(job, collected),
                choose,
                optional=True,
            ),
            Stage(
                "fetch",
                Fetch,
                lambda chosen: _plan_fetch(job, chosen),
                partial(fetch, origin),
                optional=True,
            ),
            Stage(
                "merge",
                _Merge,
                lambda records: _plan_merge(job, records),
                partial(_merge, gone),
            ),
        ),
        lambda results: publish(job, results, _facts(results)),
        lambda: published(job),
        reads=origin.directories(),
    )
    return run(job, spark=spark, workers=workers, progress=progress)


def _parts(ranges: Sequence[Span]) -> int:
    size = sum(each.bytes for each in ranges)
    return max(1, min(_PARTS_MAX, -(-size // _PART_BYTES)))


def _collect(origin: Origin, task: _Collect, attempt: Attempt) -> Result:
    columns = KEYS if task.keys_only else COLUMNS
    shuffle = ShuffleWriter(attempt, task.parts, shrink=latest)
    read, keyless = Counted(task.begin), 0
    with origin.open() as source:
        identity = source.id
        found = source.batches(task.begin, task.end, columns=columns)
        for batch in read.dense(found):
            keyless += batch.column("key").null_count
            # Copied: a column would keep all of the batch that it is of.
            shuffle.add(pa.concat_batches([batch]))
    shuffle.finish()
    return Result(
        {
            "records_read": read.records,
            "bytes_read": read.bytes,
            "without_key": keyless,
            "shuffle_bytes_written": shuffle.bytes_written,
        },
        tuple(shuffle.files),
        {
            "begin": read.begin,
            "end": read.end,
            "parts": task.parts,
            "keys_only": task.keys_only,
            "spans": shuffle.spans,
            "log": identity,
        },
    )


def _plan_choose(job: Job, collected: Sequence[Result]) -> list[Choose]:
    # Nothing to choose from: no record has a key, or the records are there already.
    if not any(each.files and each.facts["keys_only"] for each in collected):
        return []
    whole = _whole(collected)
    shuffle = write_list(job, "collect", collected)
    return [Choose(part, shuffle, whole) for part in range(whole.parts)]


def _plan_fetch(job: Job, chosen: Sequence[Result]) -> list[Fetch]:
    if not chosen or "ranges" not in chosen[0].facts:
        return []
    whole, ranges = Whole(**chosen[0].facts["whole"]), chosen[0].facts["ranges"]
    positions = write_list(job, "choose", chosen)
    return [Fetch(number, positions, whole) for number in range(ranges)]


def _plan_merge(job: Job, records: Sequence[Result]) -> list[_Merge]:
    if not records:
        return []
    fetched = records[0].facts.get("whole")
    whole = Whole(**fetched) if fetched else _whole(records)
    shuffle = write_list(job, "fetch" if fetched else "collect", records)
    return [_Merge(part, shuffle, whole) for part in range(whole.parts)]


def _whole(collected: Sequence[Result]) -> Whole:
    """Say what was read.

    Raises:
        CorruptionError: there is a gap in it.
    """
    facts = sorted((each.facts for each in collected), key=lambda each: each["begin"])
    for before, behind in pairwise(facts):
        if before["end"] != behind["begin"]:
            raise CorruptionError(
                f"positions {before['end']} to {behind['begin'] - 1} were not "
                "read by any task"
            )
    first, last = facts[0], facts[-1]
    return Whole(first["begin"], last["end"], first["log"], first["parts"])


def _merge(gone: Tombstones, task: _Merge, attempt: Attempt) -> Result:
    home = attempt.home
    part = ShuffleReader(home, task.shuffle, task.part)
    found = latest_of(part.batches(), COLUMNS)
    live = found.filter(pc.invert(gone.mask(found)))
    live = live.take(pc.sort_indices(live["key"]))
    folder = home / "data"
    folder.mkdir(exist_ok=True)
    path = folder / f"{attempt.name}.parquet"
    pq.write_table(live, path, compression="zstd")
    return Result(
        {
            "keys": live.num_rows,
            "tombstones": found.num_rows - live.num_rows,
            "shuffle_bytes_read": part.bytes_read,
        },
        (finished(home, path),),
        {"whole": asdict(task.whole), "rows": live.num_rows},
    )


def _facts(results: Sequence[Result]) -> dict[str, Any]:
    """Say what the files are, and what was proved while they were made."""
    if not results:
        return {"begin": 1, "end": 1, "keys": 0, "rows": [], "proved": []}
    whole = Whole(**results[0].facts["whole"])
    begin, end = whole.begin, whole.end
    return {
        "log": whole.log,
        "begin": begin,
        "end": end,
        "keys": sum(result.facts["rows"] for result in results),
        "tombstones": sum(result.figures["tombstones"] for result in results),
        "rows": [result.facts["rows"] for result in results],
        "proved": [f"each position from {begin} to {end - 1} was read once"],
    }
