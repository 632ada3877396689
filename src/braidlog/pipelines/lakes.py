"""Tables of Delta and Iceberg over the files of an archive, without a JVM.

The archive is the truth; a table lists the same files. It follows: what it has is noted
in the table with each commit, in the same step, so a commit that is repeated finds
itself, and of two runs at a time one commits. A table is never behind the cursor.

=========== ==========================================================================
Delta       in the directory of the archive; the version of the application
            ``braidlog-<id of the log>`` is the position where the table ends
Iceberg     wherever the catalog says; ``braidlog.end`` in the summary of a snapshot
=========== ==========================================================================

Both tables only grow. Compacting them and removing the old files takes files away that
the archive lists: Delta's table is made with ``delta.appendOnly``, and `vacuum` keeps
what is listed as long as nobody runs `optimize`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from braidlog.archive.layout import ArchivedFile, Manifest
from braidlog.archive.place import Place
from braidlog.archive.writing import SCHEMA
from braidlog.errors import (
    AlreadyExistsError,
    ArchiveDamagedError,
    InvalidArgumentError,
)

_END: Final = "braidlog.end"
_LOG: Final = "braidlog.log"
_VALUE: Final = "value"


@dataclass(frozen=True, slots=True)
class Lakes:
    """Which tables an archive has."""

    delta: bool = False
    iceberg: str | None = None
    """``catalog.namespace.table``; the catalog is one that PyIceberg is told of."""

    def check(self) -> None:
        """Find out whether there is what the tables need, before any work.

        Raises:
            ImportError: a package of the extra ``lake`` is missing.
            InvalidArgumentError: the name of the Iceberg table has not three parts.
        """
        if self.delta:
            import deltalake  # noqa: F401
        if self.iceberg is not None:
            import pyiceberg.catalog  # noqa: F401

            if self.iceberg.count(".") < 2:
                raise InvalidArgumentError(
                    f"{self.iceberg!r} is not the name of a table: write "
                    "catalog.namespace.table"
                )

    def follow(self, place: Place, manifest: Manifest) -> dict[str, int]:
        """Bring the tables up to a generation; return the version of each.

        Raises:
            AlreadyExistsError: another run commits at the same time: run again.
            ArchiveDamagedError: a table ends where no file of the archive begins.
        """
        done: dict[str, int] = {}
        if self.delta:
            done["delta_version"] = _follow_delta(place, manifest)
        if self.iceberg is not None:
            done["iceberg_snapshot"] = _follow_iceberg(self.iceberg, place, manifest)
        return done


def _missing(manifest: Manifest, end: int | None, what: str) -> list[ArchivedFile]:
    """Return the files that a table which ends at a position does not have yet."""
    begin = manifest.begin if end is None else end
    new = [file for file in manifest.files if file.begin >= begin]
    reached = new[0].begin if new else manifest.end
    if begin != reached and begin < manifest.end:
        msg = f"{what} ends at position {begin}, where no file of the archive begins"
        raise ArchiveDamagedError(msg)
    return new


# -- Delta ---------------------------------------------------------------------------


def _follow_delta(place: Place, manifest: Manifest) -> int:
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.exceptions import CommitFailedError, TableNotFoundError

    app = f"braidlog-{manifest.log_id}"
    try:
        table = DeltaTable(place.location)
    except TableNotFoundError:
        table = DeltaTable.create(
            place.location,
            schema=SCHEMA,
            mode="ignore",
            name=manifest.log,
            configuration={"delta.appendOnly": "true"},
        )
    for field in table.schema().fields:
        # Tables of earlier versions, in which no value could be null.
        if field.name == _VALUE and not field.nullable:
            table.alter.drop_column_not_null(_VALUE)
    new = _missing(manifest, table.transaction_version(app), "the Delta table")
    if new:
        noted = CommitProperties(app_transactions=[Transaction(app, manifest.end)])
        try:
            table.create_write_transaction(
                [_add_action(file) for file in new],
                mode="append",
                schema=table.schema(),
                commit_properties=noted,
            )
        except CommitFailedError as error:
            msg = f"another run commits to the Delta table; run again ({error})"
            raise AlreadyExistsError(msg) from error
        table.update_incremental()
    return int(table.version())


def _add_action(file: ArchivedFile) -> Any:
    from deltalake.transaction import AddAction

    # Times are left out: Delta keeps milliseconds, and years that it can write.
    stats = {
        "numRecords": file.rows,
        "minValues": {"position": file.begin},
        "maxValues": {"position": file.end - 1},
        "nullCount": {"position": 0},
    }
    return AddAction(file.path, file.bytes, {}, 0, True, json.dumps(stats))


# -- Iceberg -------------------------------------------------------------------------


def _follow_iceberg(name: str, place: Place, manifest: Manifest) -> int:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

    catalog_name, _, identifier = name.partition(".")
    catalog = load_catalog(catalog_name)
    try:
        table = catalog.load_table(identifier)
    except NoSuchTableError:
        namespace = identifier.rpartition(".")[0]
        catalog.create_namespace_if_not_exists(namespace)
        table = catalog.create_table_if_not_exists(identifier, schema=SCHEMA)
    if table.schema().find_field(_VALUE).required:
        # A table of an earlier version, in which no value could be null.
        with table.update_schema() as update:
            update.make_column_optional(_VALUE)
    new = _missing(manifest, _iceberg_end(table, manifest), "the Iceberg table")
    if new:
        try:
            table.add_files(
                _uris(place, new),
                snapshot_properties={
                    _LOG: manifest.log_id,
                    _END: str(manifest.end),
                },
            )
        except CommitFailedException as error:
            msg = f"another run commits to the Iceberg table; run again ({error})"
            raise AlreadyExistsError(msg) from error
    snapshot = table.refresh().current_snapshot()
    return 0 if snapshot is None else int(snapshot.sequence_number or 0)


def _uris(place: Place, files: Sequence[ArchivedFile]) -> list[str]:
    return [f"file://{place.path(file.path)}" for file in files]


def _iceberg_end(table: Any, manifest: Manifest) -> int | None:
    """Return where the table ends: others may have committed to it since we did."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        noted = snapshot.summary.additional_properties if snapshot.summary else {}
        if noted.get(_LOG) == manifest.log_id:
            return int(noted[_END])
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return None
