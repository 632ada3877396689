"""The data source: ``spark.read.format("braidlog")``, and ``readStream``.

Theory of operation: Spark makes the reader on the driver, once for each action or
streaming query, and asks it for partitions (`braidlog.spark.tasks`). For that one look
is taken at the log where it is (`braidlog.spark.places`), which pins what the action
sees: records appended later are in no partition. Each task goes to that place itself
and reads what its partition says; nothing goes through the driver. The options are in
`braidlog.spark.options`, and said one by one in docs/spark.md.

Bounds beyond the end are no error: the end is wherever the log is. A start that was
trimmed is one, because records that were asked for are gone.
"""

from __future__ import annotations

import os
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
)

from braidlog.spark.options import parse
from braidlog.spark.places import open_place
from braidlog.spark.reader import LogReader, PushdownLogReader
from braidlog.spark.schema import ddl_of, requested
from braidlog.spark.streaming import LogStreamReader

__all__ = ["BraidlogDataSource"]


class BraidlogDataSource(DataSource):  # type: ignore[misc]
    """A log as a Spark table."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "braidlog"

    def schema(self) -> str:
        """Check options and log, so that ``load()`` fails early; return all columns."""
        options = parse(self.options, os.environ)
        with open_place(options) as place:
            place.look()
        return ddl_of(options)

    def reader(self, schema: Any) -> DataSourceReader:
        """Return a reader of the columns that ``schema`` names."""
        options = parse(self.options, os.environ)
        kind = PushdownLogReader if options.pushdown else LogReader
        return kind(options, requested(schema, options))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """Return a streaming reader of the columns that ``schema`` names."""
        options = parse(self.options, os.environ)
        return LogStreamReader(options, requested(schema, options))
