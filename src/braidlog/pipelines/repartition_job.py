"""``repartition``: copy a log into another one with more or fewer streams.

*Theory of operation.* Tasks of the first stage read ranges of positions and divide the
records into parts, by the hash with which a cluster spreads keys over streams. A task
of the second stage appends one part, in the order of positions, to the stream of its
keys. Each part has a producer of its own, so it is stored once, however often the task
is started: the log knows how much of the part it has.

*Invariants.* Records of one key keep their order, and so do records without a key in
one part. Later appends with a key go to the stream that has its earlier records. The
order between streams is new.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

import braidlog
from braidlog.client.connection.routing import stream_index
from braidlog.errors import CorruptionError
from braidlog.handover import not_shared
from braidlog.pipelines.destination import Destination
from braidlog.pipelines.execution import run
from braidlog.pipelines.job import (
    Attempt,
    Job,
    Progress,
    Report,
    Result,
    Stage,
)
from braidlog.pipelines.manifest import home_of, publish, published
from braidlog.pipelines.shuffle import (
    COLUMNS,
    Counted,
    ShuffleReader,
    ShuffleWriter,
    write_list,
)
from braidlog.sources.chunks import rechunk
from braidlog.sources.origin import Origin
from braidlog.sources.plan import BYTES_PER_TASK, joined
from braidlog.types import Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Destination", "repartition"]

_NAME: Final = "repartition"
_APPENDED: Final = ["timestamp", "key", "value", "headers"]
_APPEND_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class _Split:
    """A range of positions to spread over parts."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class _Append:
    """One part of everything, to append as a producer."""

    part: int
    producer: int
    shuffle: str
    """The file that lists them."""
    records: int
    begin: int
    end: int


def repartition(
    origin: Origin,
    destination: Destination,
    output: str | Path,
    *,
    until: int | None = None,
    bytes_per_task: int = BYTES_PER_TASK,
    spark: SparkSession | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Append the records of a log to another one with another number of streams.

    Keys, values, timestamps and headers stay; positions are new. Each record is stored
    once, even if the job is interrupted and run again. ``output`` is a directory for
    the report and for temporary files, which take as much room as the records.

    Raises:
        InvalidArgumentError: the destination has another number of streams.
        LockedError: another process writes to the directory of the destination.
        LogFullError: the destination is full; trim or enlarge it, then call again.
    """
    origin = origin.absolute()
    if destination.path:
        destination = replace(destination, path=os.path.abspath(destination.path))  # noqa: PTH100

    def plan_split(_: Sequence[Result]) -> list[_Split]:
        with destination.open(create=True):
            pass  # Before anything is read: it may be refused.
        with origin.open() as source:
            ranges = joined(source.ranges(until, bytes_per_task))
        return [_Split(each.begin, each.end) for each in ranges]

    def finish(results: Sequence[Result]) -> Mapping[str, Any]:
        _check_stored(destination, results)
        return publish(job, results, _facts(results))

    parts = destination.streams
    job = Job(
        _NAME,
        {
            "origin": origin.parameters(),
            "destination": destination.parameters(),
            "until": until,
        },
        home_of(output),
        (
            Stage("split", _Split, plan_split, partial(_split, origin, parts)),
            Stage(
                "append",
                _Append,
                lambda results: _plan_append(job, parts, results),
                partial(_append, destination),
            ),
        ),
        finish,
        lambda: published(job),
        reads=(*origin.directories(), *filter(None, [destination.path])),
    )
    return run(job, spark=spark, workers=workers, progress=progress)


def _split(origin: Origin, parts: int, task: _Split, attempt: Attempt) -> Result:
    shuffle = ShuffleWriter(attempt, parts)
    read = Counted(task.begin)
    with origin.open() as source:
        found = source.batches(task.begin, task.end, columns=COLUMNS)
        for batch in read.dense(found):
            shuffle.add(batch)
    shuffle.finish()
    return Result(
        {
            "records_read": read.records,
            "bytes_read": read.bytes,
            "shuffle_bytes_written": shuffle.bytes_written,
        },
        tuple(shuffle.files),
        {
            "begin": read.begin,
            "end": read.end,
            "spans": shuffle.spans,
            "counts": shuffle.counts,
        },
    )


def _plan_append(job: Job, parts: int, results: Sequence[Result]) -> list[_Append]:
    if not results:
        return []
    shuffle = write_list(job, "split", results)
    begin = min(each.facts["begin"] for each in results)
    end = max(each.facts["end"] for each in results)
    return [
        _Append(
            part,
            producer_of(job.identity, part, parts),
            shuffle,
            sum(each.facts["counts"][part] for each in results),
            begin,
            end,
        )
        for part in range(parts)
    ]


def producer_of(identity: str, part: int, parts: int) -> int:
    """Return the producer of a part: always the same, and of the part's stream.

    Records of a producer go to the stream that the hash of its number names.
    """
    attempt = 0
    while True:
        text = f"{identity} {part} {attempt}".encode()
        digest = hashlib.blake2b(text, digest_size=7).digest()
        producer = int.from_bytes(digest, "little") + 1
        if stream_index(producer.to_bytes(8, "little"), parts) == part:
            return producer
        attempt += 1


def _append(destination: Destination, task: _Append, attempt: Attempt) -> Result:
    producer = Producer(task.producer)
    part = ShuffleReader(attempt.home, task.shuffle, task.part)
    seen = 0

    def rest(stored: int) -> Iterator[pa.RecordBatch]:
        nonlocal seen
        for batch in rechunk(part.batches(), _APPEND_BYTES):
            rows = batch.slice(min(batch.num_rows, max(0, stored - seen)))
            seen += batch.num_rows
            if rows.num_rows:
                yield rows.select(_APPENDED)

    with destination.open() as log:
        stored = log.next_sequence(task.part, producer) - 1
        log.append(task.part, rest(stored), producer, stored + 1)
        there = log.next_sequence(task.part, producer) - 1
        stored_in = [log.id, log.end]
    if not seen == there == task.records:
        raise CorruptionError(
            f"part {task.part} should have {task.records} records; {seen} "
            f"were read, and the log reports {there}"
        )
    return Result(
        {
            "records_appended": seen - min(stored, seen),
            "shuffle_bytes_read": part.bytes_read,
        },
        (),
        {
            "part": task.part,
            "records": seen,
            "begin": task.begin,
            "end": task.end,
            "log": stored_in,
        },
    )


def _check_stored(destination: Destination, results: Sequence[Result]) -> None:
    """Look into the directory that workers say they appended to.

    Raises:
        NotSharedError: they appended to another one.
    """
    if not destination.path or not results:
        return
    with braidlog.open(destination.path, read_only=True) as node:
        log = node.log(destination.log)
        for each in results:
            # Of an earlier version there is no note of it.
            identity, end = each.facts.get("log", (log.id, 0))
            if identity != log.id or end > log.end:
                problem = f"ends at {log.end} here instead of at {end}"
                where = f"the log {destination.log!r} of {destination.path}"
                raise not_shared(where, problem, each.worker)


def _facts(results: Sequence[Result]) -> dict[str, Any]:
    if not results:
        return {"begin": 1, "end": 1, "records": [], "proved": []}
    begin, end = results[0].facts["begin"], results[0].facts["end"]
    counts = [result.facts["records"] for result in results]
    if sum(counts) != end - begin:
        raise CorruptionError(f"{sum(counts)} of {end - begin} records were stored")
    proof = f"each position from {begin} to {end - 1} was stored once"
    return {"begin": begin, "end": end, "records": counts, "proved": [proof]}
