"""Delta tables through delta-rs: the table's log says which batches it has.

A commit carries the application transaction (query, batch) of the Delta protocol. It is
tried on top of the version in which the batch was looked for and nowhere else, so two
drivers cannot both commit a batch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from braidlog.paths import is_uri, local_path
from braidlog.spark.lake.writers import DataFile, TableSink, refuse_options

_MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """A Delta table at a path or URI."""

    uri: str
    job: str = ""

    def location(self, schema: pa.Schema) -> str:
        """Return its URI, making the table if it is not there."""
        from deltalake import DeltaTable

        DeltaTable.create(self.uri, schema, mode="ignore")
        return self.uri

    def commit(self, query: str, batch: int, files: Sequence[DataFile]) -> bool:
        """Add files as a batch; False if another commit came first."""
        from deltalake import CommitProperties, DeltaTable, Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction

        table = DeltaTable(self.uri)
        known = table.transaction_version(query)
        if known is not None and known >= batch:
            return True
        now = time.time_ns() // (1_000_000_000 // _MILLISECONDS)
        actions = [
            AddAction(
                path=file.path,
                size=file.bytes,
                partition_values={},
                modification_time=now,
                data_change=True,
                stats=json.dumps({"numRecords": file.records}),
            )
            for file in files
        ]
        properties = CommitProperties(
            # A retry of its own would not look for the batch again.
            max_commit_retries=0,
            app_transactions=[Transaction(query, batch)],
        )
        try:
            table.create_write_transaction(
                actions,
                mode="append",
                schema=table.schema(),
                commit_properties=properties,
            )
        except CommitFailedError:
            return False
        return True


class DeltaSink(TableSink):
    """``format("braidlog_delta")``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "braidlog_delta"

    def table(self) -> DeltaTarget:
        """Return the table that the options name."""
        given = refuse_options(self.options, ("path", "job"))
        path = given["path"]
        # delta-rs, Spark and pyarrow agree on URIs only.
        if not is_uri(path):
            path = local_path(path, "option 'path'", or_uri=True).absolute().as_uri()
        return DeltaTarget(path, given.get("job", ""))
