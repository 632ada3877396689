"""Does what `ledger.protocol` says: the shell of the sink."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from braidlog.errors import LogError, TooLargeError
from braidlog.spark.sink.ledger import effects, protocol
from braidlog.spark.sink.ledger.entries import Batch, StagedFile
from braidlog.spark.sink.ledger.lost import StagedFileError
from braidlog.spark.sink.rows import timed
from braidlog.spark.sink.staging import Staging, clock
from braidlog.spark.sink.targets import Target


@dataclass(frozen=True, slots=True)
class Work:
    """One batch, and the run of its tasks."""

    query: str
    batch: int
    attempt: str


@dataclass(frozen=True, slots=True)
class Staged:
    """What a task tells the driver."""

    work: Work
    partition: int
    files: tuple[StagedFile, ...] = field(default=())
    largest: int = 0
    """Bytes that its largest record takes, encoded."""
    tails: tuple[str, ...] = field(default=())
    """Checksum of the last bytes of each file: by these the driver knows it again."""
    worker: str = ""
    """The machine that the task ran on."""


def store(
    target: Target, staging: Staging, work: Work, parts: Sequence[Staged], *, once: bool
) -> None:
    """Store a batch exactly once; see `braidlog.spark.sink.ledger.protocol.commit`.

    Records of a stream are in the order of the partitions, and within them of the
    tasks. All of them are durable on return.

    Raises:
        TooLargeError: a record is too large for the log; nothing was stored.
        NotSharedError: this process does not see what a task staged; nothing was
            stored.
    """
    largest = max((part.largest for part in parts), default=0)
    if largest > target.record_bytes_max:
        limit = target.record_bytes_max
        msg = f"a record takes {largest} bytes, but the log accepts at most {limit}"
        raise TooLargeError(msg, size=largest, limit=limit)
    ordered = sorted(parts, key=lambda part: part.partition)
    proposal = Batch(
        query=work.query,
        batch=work.batch,
        attempt=work.attempt,
        producer=_producer_of(work.query),
        since=0,
        staging=str(staging.root),
        files=tuple(file for part in ordered for file in part.files),
        once=once,
    )
    tails = {
        file.path: (tail, part.worker)
        for part in parts
        for file, tail in zip(part.files, part.tails, strict=False)
    }
    shell = _Shell(target, staging, tails)
    shell.run(protocol.commit(proposal))
    shell.tidy()


def give_up(target: Target, staging: Staging, work: Work) -> None:
    """Remove what an attempt staged, unless it was decided that it counts."""
    _Shell(target, staging).run(protocol.abort(work.query, work.batch, work.attempt))


def _producer_of(query: str) -> int:
    digest = hashlib.blake2b(query.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


class _Shell:
    """Holds the log, its ledger and the files; decides nothing."""

    def __init__(
        self,
        target: Target,
        staging: Staging,
        tails: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        self._target = target
        self._staging = staging
        self._tails = tails or {}

    def run(self, steps: protocol.Protocol) -> None:
        """Do everything that a protocol says."""
        answer: Any = None
        while True:
            try:
                effect = steps.send(answer)
            except StopIteration:
                return
            answer = self._perform(effect)

    def _perform(self, effect: effects.Effect) -> Any:
        target, staging = self._target, self._staging
        match effect:
            case effects.Read():
                return target.ledger.read()
            case effects.Propose():
                return target.ledger.append(effect.entry)
            case effects.Look():
                return target.ingest.refresh().stop
            case effects.CheckFiles():
                return Staging(effect.staging).missing(effect.files, self._tails)
            case effects.WriteList():
                attempt = effect.query, effect.batch, effect.attempt
                return Staging(effect.staging).write_list(attempt, effect.files)
            case effects.ReadList():
                return _files(effect)
            case effects.AskNext():
                return target.ingest.next_sequence(effect.producers)
            case effects.Home():
                return target.ingest.home(effect.producer)
            case effects.Find():
                return target.ingest.stored(
                    effect.stream, effect.producer, effect.since
                )
            case effects.RemoveBatches():
                return staging.remove_batches(effect.query, effect.up_to)
            case effects.RemoveAttempt():
                return staging.remove_attempt(
                    effect.query, effect.batch, effect.attempt
                )
            case _:
                return self._store(effect)

    def _store(self, stores: tuple[effects.Store, ...]) -> list[LogError | None]:
        appends = {
            each.stream: (_rows(each), each.producer, each.sequence) for each in stores
        }
        outcomes = self._target.ingest.append_all(appends)
        return [outcomes[each.stream] for each in stores]

    def tidy(self) -> None:
        """Sum the ledger up, and remove what dead jobs have left."""
        self._target.ledger.tidy()
        for query, batch, attempt in self._staging.left(clock()):
            self.run(protocol.abort(query, batch, attempt))


def _files(effect: effects.ReadList) -> tuple[StagedFile, ...] | StagedFileError:
    try:
        return Staging(effect.staging).read_list(effect.listed)
    except StagedFileError as error:
        return error


def _rows(store: effects.Store) -> Iterator[pa.RecordBatch]:
    # Where the files are the batch says: an earlier driver may have had another place.
    staging, now = Staging(store.staging), int(clock() * 1_000_000)
    for part in store.parts:
        with contextlib.closing(staging.batches(part.file, part.skip)) as batches:
            for batch in batches:
                yield timed(batch, now)
