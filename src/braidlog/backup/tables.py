"""Takes the tables of a directory along in its backup.

Theory of operation: the files of a table never change, so they are copied like parts,
and those that an earlier backup has are named again. Which there are is said by the
manifest of each tree, of which the backup keeps an *image*. Images come first, then the
state of the directory: so the log of the backup goes on from what the files have, and
what is in no file is applied when the restored table is opened.

Nothing is held at the source. A merge may remove a file before it is copied, and a
trim what lies between the files and the state: then newer images are taken, and only
what they list anew is copied.

Invariants: the images of indexes are taken before that of the records, so no index
lacks what a reader would look up by it; no file has a record that the log has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from braidlog import _native
from braidlog.backup.layout import (
    BackupIndex,
    BackupLog,
    BackupRunFile,
    BackupSource,
    BackupTable,
    BackupTree,
    run_name,
)
from braidlog.backup.run import BackupRun, Overtaken
from braidlog.documents import checksum_of
from braidlog.errors import (
    CorruptionError,
    MissingFileError,
    NotFoundError,
    UnavailableError,
)

__all__ = ["TableCopies", "TableFiles"]

_CHUNK_BYTES: Final = 4 << 20

# The second pass copies what was written during the first.
_PASSES: Final = 2


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table at one moment; all of them are in the place."""

    id: int
    shape: frozenset[int]
    """Its trees, by which a change of the catalog is seen."""
    trees: tuple[BackupTree, ...]
    counters: bytes | None
    retained: int
    """Everything up to this position is in files."""


def _shape(row: dict[str, Any]) -> frozenset[int]:
    used = (index["tree"] for index in row["indexes"] if index["active"])
    return frozenset((row["primary"], *used))


class TableCopies:
    """Copies what tables consist of, until it is all of one moment."""

    def __init__(
        self,
        run: BackupRun,
        follower: _native.Follower,
        source: BackupSource,
        copied: Callable[[], object],
    ) -> None:
        """Copy for ``run``; ``copied`` is called for each piece of a file."""
        self._run = run
        self._follower = follower
        self._source = source
        self._copied = copied
        # What the place has, by tree and number.
        self._files: dict[tuple[str, int], BackupRunFile] = {}
        if run.base is not None:
            self._files = {
                (tree.id, file.number): file
                for table in run.base.tables
                for tree in table.trees
                for file in tree.runs
            }

    def take(self) -> list[TableFiles]:
        """Copy the files of all tables, as of the last refresh or later.

        Raises:
            Overtaken: the directory was faster; refresh, and take them again.
            CorruptionError: a file is damaged.
        """
        taken: list[TableFiles] = []
        for _ in range(_PASSES):
            before = self._run.new_bytes
            taken = [self._take(row) for row in self._follower.tables()]
            if self._run.new_bytes == before:
                break
            self._follower.refresh()
        return taken

    def _take(self, row: dict[str, Any]) -> TableFiles:
        table, shape = row["id"], _shape(row)
        try:
            # A reader finds in the records what an older index leads to.
            trees = [
                self._tree(row, tree)
                for tree in (*sorted(shape - {row["primary"]}), row["primary"])
            ]
            counted = self._follower.table_counters(table)
        except (NotFoundError, MissingFileError, CorruptionError, UnavailableError):
            self._follower.refresh()
            if all(_shape(now) != shape for now in self._follower.tables()):
                raise Overtaken(row["name"], "table") from None
            raise
        flushed = [tree.flushed for tree in trees]
        counters, position = (None, min(flushed)) if counted is None else counted
        retained = min(*flushed, position)
        return TableFiles(table, shape, tuple(trees), counters, retained)

    def _tree(self, row: dict[str, Any], tree: int) -> BackupTree:
        image, (flushed, runs) = self._follower.tree_image(row["id"], tree)
        files = [self._file(row, tree, image, *run) for run in runs]
        return BackupTree(f"{tree:032x}", image, flushed, tuple(files))

    def _file(
        self,
        row: dict[str, Any],
        tree: int,
        image: bytes,
        number: int,
        size: int,
        identity: bytes,
    ) -> BackupRunFile:
        key, digest = (f"{tree:032x}", number), checksum_of(identity)
        known = self._files.get(key)
        # A directory that was put back to an earlier state gives numbers again.
        if known is not None and (known.bytes, known.identity) == (size, digest):
            return known
        file = self._opened(row, tree, image, number)
        table, backup = f"{row['id']:032x}", self._run.id
        path = run_name(self._source.id, table, key[0], number, backup)
        checksum = self._run.write_file(path, size, self._pieces(file))
        made = BackupRunFile(number, path, size, checksum, digest)
        self._files[key] = made
        return made

    def _opened(
        self, row: dict[str, Any], tree: int, image: bytes, number: int
    ) -> _native.CopiedRun:
        """Open a file that an image lists.

        Raises:
            Overtaken: it was merged, and a newer image lists another one.
            MissingFileError: it is gone, and should not be.
        """
        try:
            return self._follower.tree_run(row["id"], tree, image, number)
        except MissingFileError:
            newer, _ = self._follower.tree_image(row["id"], tree)
            if newer != image:
                raise Overtaken(row["name"], "table") from None
            raise

    def _pieces(self, file: _native.CopiedRun) -> Iterator[bytes]:
        at = 0
        while piece := file.read(at, _CHUNK_BYTES):
            at += len(piece)
            self._copied()
            yield piece

    def at(
        self,
        taken: Sequence[TableFiles],
        rows: Sequence[dict[str, Any]],
        logs: Iterable[BackupLog],
    ) -> tuple[BackupTable, ...]:
        """Return the tables of a state, which is newer than what was taken.

        Raises:
            Overtaken: the state has other tables, or its logs begin too late.
        """
        by_id = {log.id: log for log in logs}
        files = {table.id: table for table in taken}
        made = []
        for row in rows:
            log, table = by_id[f"{row['log_id']:032x}"], files.pop(row["id"], None)
            if table is None or table.shape != _shape(row):
                raise Overtaken(row["name"], "table")
            pin = min(row["pin"], table.retained + 1)
            if pin < log.first or max(each.flushed for each in table.trees) >= log.end:
                raise Overtaken(row["name"], "table")
            made.append(_table_of(row, table, pin))
        if files:
            raise Overtaken("that was dropped", "table")
        return tuple(made)


def _table_of(row: dict[str, Any], taken: TableFiles, pin: int) -> BackupTable:
    indexes = tuple(
        BackupIndex(
            index["name"],
            bytes(index["spec"]).decode(),
            f"{index['tree']:032x}",
            index["active"],
            index["position"],
        )
        for index in row["indexes"]
    )
    return BackupTable(
        f"{row['id']:032x}",
        row["name"],
        f"{row['log_id']:032x}",
        row["created"],
        row["start"],
        f"{row['primary']:032x}",
        bytes(row["options"]).decode(),
        pin,
        indexes,
        taken.counters,
        taken.trees,
    )
