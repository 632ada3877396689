"""Iceberg tables through pyiceberg: a property of the table says which batch it has.

One commit adds the files and sets the property ``braidlog.batch.QUERY``, which stays
when snapshots expire. The snapshot has query and batch among its properties as well. A
commit requires that the table is still as it was when the batch was looked for, so two
drivers cannot both commit a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from braidlog.spark.lake.writers import DataFile, TableSink, refuse_options

_PROPERTY: Final = "braidlog.batch."
_PREFIX: Final = "catalog."
_RETRIES: Final = "commit.retry.num-retries"


@dataclass(frozen=True, slots=True)
class IcebergTarget:
    """An Iceberg table of a catalog that pyiceberg knows how to reach."""

    table: str
    catalog: str = "default"
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    job: str = ""

    def _catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog(self.catalog, **self.properties)

    def location(self, schema: pa.Schema) -> str:
        """Return where the table is, making it if it is not there."""
        table = self._catalog().create_table_if_not_exists(self.table, schema=schema)
        location: str = table.location()
        return location

    def commit(self, query: str, batch: int, files: Sequence[DataFile]) -> bool:
        """Add files as a batch; False if another commit came first."""
        from pyiceberg.exceptions import CommitFailedException

        table = self._catalog().load_table(self.table)
        name = _PROPERTY + query
        if int(table.properties.get(name, "-1")) >= batch:
            return True
        # A retry of its own would not look for the batch again. For this handle only:
        # what is committed are the changes below, and not its properties.
        table.metadata.properties[_RETRIES] = "0"
        paths = [f"{table.location()}/{file.path}" for file in files]
        summary = {"braidlog.query": query, "braidlog.batch": str(batch)}
        try:
            with table.transaction() as transaction:
                if paths:
                    transaction.add_files(paths, snapshot_properties=summary)
                transaction.set_properties({name: str(batch)})
        except CommitFailedException:
            return False
        return True


class IcebergSink(TableSink):
    """``format("braidlog_iceberg")``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "braidlog_iceberg"

    def table(self) -> IcebergTarget:
        """Return the table that the options name."""
        given = refuse_options(self.options, ("table", "catalog", "job"))
        properties = {
            name.removeprefix(_PREFIX): value
            for name, value in given.items()
            if name.startswith(_PREFIX)
        }
        return IcebergTarget(
            given["table"],
            given.get("catalog", "default"),
            properties,
            given.get("job", ""),
        )
