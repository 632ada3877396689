"""The writers that Spark calls: tasks stage, the driver commits.

A batch job stores batch 0 of a query of its own, or of the name that the option ``job``
gives it; a streaming query the batches that Spark numbers. Spark makes the writer of a
job once, and that of a streaming query anew for the tasks and the commit of each batch,
so what the commit has to know comes with the messages of the tasks.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from braidlog.errors import InvalidArgumentError, LogError
from braidlog.handover import here
from braidlog.spark.sink.options import SinkOptions, refuse_job
from braidlog.spark.sink.rows import Router, check_columns
from braidlog.spark.sink.run import Staged, Work, give_up, store
from braidlog.spark.sink.staging import Staging, TaskFiles
from braidlog.spark.sink.targets import opened, streams_of
from braidlog.spark.source.places import check_same

_log = logging.getLogger(__name__)
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_AT: Final = "@"


class Message(WriterCommitMessage):  # type: ignore[misc]
    """What a task tells the driver, as Spark carries it."""

    def __init__(self, staged: Staged) -> None:
        """Hold it."""
        self.staged = staged


class _Writer:
    """What writers of jobs and of streaming queries have in common."""

    def __init__(self, options: SinkOptions, schema: Any, overwrite: bool) -> None:
        if overwrite:
            raise InvalidArgumentError(
                'a log can only be appended to: write with mode("append"), or '
                'outputMode("append") or "update"'
            )
        fields = [(each.name, each.dataType.simpleString()) for each in schema.fields]
        check_columns(fields)
        self.options = options
        self.log, self.streams = streams_of(options)
        # The same for all tasks of one run, since they get copies of this writer.
        self.attempt = secrets.token_hex(8)

    def _name(self, query: str) -> str:
        # Another log of this name has not got what this one has.
        return f"{query}{_AT}{self.log}"

    def _stage(
        self,
        work: Work,
        context: Any,
        batches: Iterable[pa.RecordBatch],
        *,
        make: bool,
    ) -> Message:
        staging = Staging(self.options.staging)
        folder = staging.attempt(work.query, work.batch, work.attempt)
        partition = context.partitionId()
        task = f"{partition:05d}-{context.taskAttemptId()}"
        files = TaskFiles(folder, staging.root, task, make=make)
        router = Router(self.streams, turn=partition)
        try:
            for batch in batches:
                for stream, rows in router.route(batch):
                    files.add(stream, rows)
            staged = tuple(files.close())
        except BaseException:
            files.discard()
            raise
        written = tuple(files.tails), here()
        return Message(Staged(work, partition, staged, router.largest, *written))

    def _store(self, messages: Sequence[Any], *, once: bool) -> None:
        parts = [message.staged for message in messages]
        if not parts:
            return  # A query without partitions has no records either.
        work = parts[0].work
        with opened(self.options) as target:
            # What tasks staged for a log belongs into no other one of its name.
            _, _, planned = work.query.rpartition(_AT)
            check_same(self.options.origin.log, planned, target.ingest.log)
            store(target, Staging(self.options.staging), work, parts, once=once)

    def _give_up(self, works: Iterable[Work]) -> None:
        try:
            for work in works:
                with opened(self.options) as target:
                    give_up(target, Staging(self.options.staging), work)
        except LogError as error:
            # What the job failed with matters more; a later batch tidies up.
            where = Path(self.options.staging)
            _log.warning(
                "could not remove staged files in %s, a later batch does: %s",
                where,
                error,
            )


class BatchWriter(_Writer, DataSourceArrowWriter):  # type: ignore[misc]
    """Writes what a batch query gives."""

    def __init__(self, options: SinkOptions, schema: Any, overwrite: bool) -> None:
        """Check the columns and find the log.

        Raises:
            InvalidArgumentError: columns or save mode are not for a log.
            NotFoundError: there is no such directory or log.
        """
        super().__init__(options, schema, overwrite)
        self.job = options.job or secrets.token_hex(16)
        work = self._work
        Staging(options.staging).begin(work.query, work.batch, work.attempt)

    @property
    def _work(self) -> Work:
        return Work(self._name(self.job), 0, self.attempt)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """Stage the records of a task."""
        return self._stage(self._work, TaskContext.get(), iterator, make=False)

    def commit(self, messages: list[Any]) -> None:
        """Store what the tasks staged; all of it is durable on return."""
        self._store(messages, once=not self.options.job)
        if not messages:  # Nothing was stored, so nothing tidied up.
            work = self._work
            Staging(self.options.staging).remove_attempt(
                work.query, work.batch, work.attempt
            )

    def abort(self, messages: list[Any]) -> None:
        """Remove what the tasks staged, unless it is decided that it counts."""
        self._give_up([self._work])


class StreamWriter(_Writer, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes what a streaming query gives, batch after batch."""

    def __init__(self, options: SinkOptions, schema: Any, overwrite: bool) -> None:
        """Check options and columns, and find the log.

        Raises:
            InvalidArgumentError: options, columns or output mode are not for a log.
            NotFoundError: there is no such directory or log.
        """
        refuse_job(options.job)
        super().__init__(options, schema, overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        """Stage the records of a task."""
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY)
        batch = context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise InvalidArgumentError(
                "this version of Spark does not tell the sink which batch of "
                "which query it writes: use Spark 4.3 or newer"
            )
        work = Work(self._name(query), int(batch), self.attempt)
        return self._stage(work, context, iterator, make=True)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Store what the tasks staged, or what an earlier try of the batch did."""
        self._check(messages, batchId)
        self._store(messages, once=False)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Remove what the tasks staged, unless it is decided that it counts."""
        # Those of tasks that failed are None.
        self._give_up({each.staged.work for each in messages if each is not None})

    def _check(self, messages: Sequence[Any], batch: int) -> None:
        for message in messages:
            if message.staged.work.batch != batch:
                msg = f"a task staged {message.staged.work} for batch {batch}"
                raise InvalidArgumentError(msg)
