"""What sinks into tables have in common: tasks write Parquet, the driver commits it.

Theory of operation: each try of a task writes one file under a name of its own into the
directory of the table, where nobody sees it. The driver's commit lists the files of the
tasks that count in one commit of the table, together with query and batch. If the table
has that batch already, or a later one, nothing is done: so a commit may be repeated,
also with other files.

Invariants: no file is listed that the driver did not see itself, with the footer that
its task wrote. Files are never removed. One that no commit lists is invisible, and
which of them a commit that was interrupted has listed only the table knows: its own
clean-up (``vacuum``, removal of orphan files) collects the others.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema

from braidlog.errors import InvalidArgumentError, UnavailableError
from braidlog.handover import TAIL_BYTES, here, not_shared
from braidlog.spark.sink.options import refuse_job

_QUERY: Final = "sql.streaming.queryId"
_ATTEMPTS: Final = 20


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that a task wrote, by its path below the table."""

    path: str
    bytes: int
    records: int
    footer: str = ""
    """Checksum of its last bytes: another file of this name has another one."""
    machine: str = ""
    """Where it was written, for people."""


class Table(Protocol):
    """A table of some kind, which can be sent to tasks."""

    @property
    def job(self) -> str:
        """Name of the batch job, empty if it has none."""

    def location(self, schema: pa.Schema) -> str:
        """Return where the table is, making it with this schema if it is not there."""

    def commit(self, query: str, batch: int, files: Sequence[DataFile]) -> bool:
        """Add files as a batch; False if another commit of the table came first.

        Does nothing if the table has that batch or a later one of the query.
        """


class FileMessage(WriterCommitMessage):  # type: ignore[misc]
    """What a task tells the driver."""

    def __init__(self, query: str, file: DataFile | None) -> None:
        """Hold it; no file if there were no records."""
        self.query = query
        self.file = file


class _Writer:
    def __init__(self, table: Table, schema: Any, overwrite: bool) -> None:
        if overwrite:
            raise InvalidArgumentError(
                'the table can only be appended to: write with mode("append")'
            )
        self.table = table
        # A column that happens to have no nulls is no other column.
        self.schema = pa.schema(
            field.with_nullable(True) for field in to_arrow_schema(schema)
        )
        self.location = table.location(self.schema)

    def _write(self, query: str, batches: Iterator[pa.RecordBatch]) -> FileMessage:
        context = TaskContext.get()
        name = f"{context.partitionId():05d}-{context.taskAttemptId()}"
        path = f"data/{name}-{secrets.token_hex(8)}.parquet"
        system, root = fs.FileSystem.from_uri(self.location)
        system.create_dir(f"{root}/data", recursive=True)
        writer, records = None, 0
        for batch in batches:
            if not batch.num_rows:
                continue
            if writer is None:
                where = f"{root}/{path}"
                writer = pq.ParquetWriter(
                    where, self.schema, compression="zstd", filesystem=system
                )
            writer.write_batch(batch.cast(self.schema))
            records += batch.num_rows
        if writer is None:
            return FileMessage(query, None)
        writer.close()
        size, footer = seen(system, f"{root}/{path}")
        return FileMessage(query, DataFile(path, size, records, footer, here()))

    def _commit(self, batch: int, messages: Sequence[Any]) -> None:
        files = [each.file for each in messages if each.file is not None]
        if not messages:
            return
        self._look(files)
        for _ in range(_ATTEMPTS):
            # Another one may have been this very batch: it is looked for again.
            if self.table.commit(messages[0].query, batch, files):
                return
        msg = (
            f"other writers committed first {_ATTEMPTS} times in a row: run "
            "the query again, or write less often"
        )
        raise UnavailableError(msg, path=self.location)

    def _look(self, files: Sequence[DataFile]) -> None:
        """See each file before the table lists it, wherever its task says it wrote it.

        Raises:
            NotSharedError: one is not there, or is another file.
        """
        system, root = fs.FileSystem.from_uri(self.location)
        for file in files:
            try:
                found = seen(system, f"{root}/{file.path}")
            except FileNotFoundError:
                raise not_shared(file.path, "is not there", file.machine) from None
            if found != (file.bytes, file.footer):
                problem = "differs from the file that its task wrote"
                raise not_shared(file.path, problem, file.machine)


def seen(system: fs.FileSystem, path: str) -> tuple[int, str]:
    """Return the length of a file and the checksum of its last bytes.

    Raises:
        FileNotFoundError: it is not there.
    """
    with system.open_input_file(path) as file:
        size = file.size()
        file.seek(max(0, size - TAIL_BYTES))
        return size, hashlib.blake2b(file.read(), digest_size=16).hexdigest()


class JobWriter(_Writer, DataSourceArrowWriter):  # type: ignore[misc]
    """Writes what a batch query gives, as batch 0 of a query of its own."""

    def __init__(self, table: Table, schema: Any, overwrite: bool) -> None:
        """Check the call, and find or make the table."""
        super().__init__(table, schema, overwrite)
        self.job = table.job or secrets.token_hex(16)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FileMessage:
        """Write the records of a task."""
        return self._write(self.job, iterator)

    def commit(self, messages: list[Any]) -> None:
        """Make all records visible at once."""
        self._commit(0, messages)


class QueryWriter(_Writer, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes what a streaming query gives, batch after batch."""

    def __init__(self, table: Table, schema: Any, overwrite: bool) -> None:
        """Check the call, and find or make the table."""
        refuse_job(table.job)
        super().__init__(table, schema, overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FileMessage:
        """Write the records of a task."""
        query = TaskContext.get().getLocalProperty(_QUERY)
        if query is None:
            raise InvalidArgumentError(
                "this version of Spark does not tell the sink which query it "
                "writes for: use Spark 4.3 or newer"
            )
        return self._write(query, iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Make the records of a batch visible, unless they are."""
        self._commit(batchId, messages)


class TableSink(DataSource):  # type: ignore[misc]
    """A format that writes to tables of one kind."""

    def table(self) -> Table:
        """Return the table that the options name."""
        raise NotImplementedError

    def writer(self, schema: Any, overwrite: bool) -> JobWriter:
        """Return a writer of rows with this schema, which the table gets if new."""
        return JobWriter(self.table(), schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> QueryWriter:
        """Return a writer for a streaming query; see `writer`."""
        return QueryWriter(self.table(), schema, overwrite)


def refuse_options(given: Mapping[str, str], known: Sequence[str]) -> dict[str, str]:
    """Return the options by name in small letters.

    Raises:
        InvalidArgumentError: One is unknown, or the first that is known is missing.
    """
    found = {name.lower(): value for name, value in given.items()}
    # Spark hands over its own option of a streaming query together with the others.
    found.pop("checkpointlocation", None)
    for name in found:
        if name not in known and not name.startswith("catalog."):
            raise InvalidArgumentError(
                f"unknown option {name!r} of the sink (options: {', '.join(known)})"
            )
    if not found.get(known[0]):
        raise InvalidArgumentError(f"the sink needs the option {known[0]!r}")
    return found
