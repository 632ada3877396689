"""The data source: ``spark.read.format("braidlog")``, and ``readStream``.

Theory of operation: Spark makes the reader on the driver, once for each action or
streaming query, and asks it for partitions (`tasks`). The reader looks once at the log
in its place (`braidlog.sources`) and fixes the records of the action: records appended
later are in no partition. Each task reads its partition from that place itself; no
record goes through the driver. `braidlog.spark.source.options` has the options,
docs/spark.md explains them.

A bound beyond the end of the log is allowed. A start that was trimmed is an error,
because requested records are gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from braidlog.errors import InvalidArgumentError, LogError
from braidlog.spark.sink.options import parse_sink
from braidlog.spark.sink.writers import BatchWriter, StreamWriter
from braidlog.spark.source.options import parse
from braidlog.spark.source.places import open_source
from braidlog.spark.source.reader import LogReader, PushdownLogReader
from braidlog.spark.source.schema import ddl_of, requested
from braidlog.spark.source.table_reader import (
    PushdownTableReader,
    TableReader,
    open_table,
    snapshot_of,
)
from braidlog.spark.streaming.reader import LogStreamReader

P = ParamSpec("P")
R = TypeVar("R")


def _plainly(method: Callable[P, R]) -> Callable[P, R]:
    """Let Spark show an error of Braidlog without the calls that led to it.

    Spark puts the whole traceback before the message, and who mistyped an option has
    no use for it.
    """

    @wraps(method)
    def plain(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            return method(*args, **keywords)
        except LogError as error:
            raise error.with_traceback(None) from None

    return plain


class BraidlogDataSource(DataSource):  # type: ignore[misc]
    """A log, or a table of one, as a Spark table."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "braidlog"

    @_plainly
    def schema(self) -> str:
        """Check options and log, so that ``load()`` fails early; return all columns."""
        options = parse(self.options, os.environ)
        if options.table:
            with open_table(options) as table, snapshot_of(options, table):
                return ddl_of(options)
        with open_source(options) as source:
            source.look()
        return ddl_of(options)

    @_plainly
    def reader(self, schema: Any) -> DataSourceReader:
        """Return a reader of the columns that ``schema`` names."""
        options = parse(self.options, os.environ)
        if options.table:
            of_table = PushdownTableReader if options.pushdown else TableReader
            return of_table(options, requested(schema, options))
        kind = PushdownLogReader if options.pushdown else LogReader
        return kind(options, requested(schema, options))

    @_plainly
    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Return a streaming reader of the columns that ``schema`` names."""
        options = parse(self.options, os.environ)
        if options.table:
            raise InvalidArgumentError(
                "a table cannot be read as a stream: it has the latest record of each "
                "key; stream its log, or read the table in each batch"
            )
        return LogStreamReader(options, requested(schema, options))

    @_plainly
    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        """Return a writer of records with the columns that ``schema`` names."""
        return BatchWriter(parse_sink(self.options, os.environ), schema, overwrite)

    @_plainly
    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        """Return a writer for a streaming query; see `writer`."""
        return StreamWriter(parse_sink(self.options, os.environ), schema, overwrite)
