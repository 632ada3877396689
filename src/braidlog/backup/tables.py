"""Takes tables along in a backup, and those of a directory from its files.

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

Of a cluster a host gives the same: `braidlog.client.tables.pinned`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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
from braidlog.suggestions import table_mended

__all__ = ["RunFiles", "TableCopies", "TableCut", "TableFiles", "cut_of", "fitted"]

_CHUNK_BYTES: Final = 4 << 20

# The second pass copies what was written during the first.
_PASSES: Final = 2


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table at one moment; all of them are in the place."""

    id: str
    trees: tuple[BackupTree, ...]
    counters: bytes | None
    retained: int
    """Everything up to this position is in files."""

    @property
    def shape(self) -> frozenset[str]:
        """Its trees, by which a change of the catalog is seen."""
        return frozenset(tree.id for tree in self.trees)


@dataclass(frozen=True, slots=True)
class TableCut:
    """A table as the catalog of its source has it; identities as in a list."""

    id: str
    name: str
    log: str
    created: int
    start: int
    primary: str
    options: str
    pin: int
    """First position of the log that it needs."""
    indexes: tuple[BackupIndex, ...]
    replicas: int = 0

    @property
    def shape(self) -> frozenset[str]:
        """The trees that are used."""
        used = (index.tree for index in self.indexes if index.active)
        return frozenset((self.primary, *used))


def fitted(
    taken: Iterable[TableFiles], cuts: Iterable[TableCut], logs: Iterable[BackupLog]
) -> tuple[BackupTable, ...]:
    """Return the tables of a state, which is newer than what was taken of them.

    Raises:
        Overtaken: the state has other tables, or its logs begin too late.
        CorruptionError: a log ends before its table.
    """
    by_id = {log.id: log for log in logs}
    files = {table.id: table for table in taken}
    made = []
    for cut in cuts:
        log, table = by_id.get(cut.log), files.pop(cut.id, None)
        if log is None or table is None or table.shape != cut.shape:
            raise Overtaken(cut.name, "table")
        pin = min(cut.pin, table.retained + 1)
        if pin < log.first:
            raise Overtaken(cut.name, "table")
        flushed = max(each.flushed for each in table.trees)
        if flushed >= log.end:
            # What the files have was durable in the log before its state was taken.
            msg = (
                f"table {cut.name!r} has position {flushed}, and its log ends at "
                f"{log.end}: an older copy of the log was put in its place, or its end "
                "was lost"
            )
            raise CorruptionError(msg).advising(table_mended(cut.name))
        made.append(
            BackupTable(
                cut.id,
                cut.name,
                cut.log,
                cut.created,
                cut.start,
                cut.primary,
                cut.options,
                pin,
                cut.indexes,
                table.counters,
                table.trees,
                cut.replicas,
            )
        )
    if files:
        raise Overtaken("that was dropped", "table")
    return tuple(made)


class RunFiles:
    """The files of tables in a place: one that an increment finds is named again."""

    def __init__(self, run: BackupRun, source: BackupSource) -> None:
        """Begin with those that the base has."""
        self._run = run
        self._source = source
        # By tree and number.
        self._files: dict[tuple[str, int], BackupRunFile] = {}
        if run.base is not None:
            self._files = {
                (tree.id, file.number): file
                for table in run.base.tables
                for tree in table.trees
                for file in tree.runs
            }

    def known(self, tree: str, listed: tuple[int, int, bytes]) -> BackupRunFile | None:
        """Return the file that an image lists, if the place has it."""
        number, size, identity = listed
        known = self._files.get((tree, number))
        # A directory that was put back to an earlier state gives numbers again, and
        # each host of a table gives its own.
        same = (size, checksum_of(identity))
        if known is not None and (known.bytes, known.identity) == same:
            return known
        return None

    def write(
        self,
        table: str,
        tree: str,
        listed: tuple[int, int, bytes],
        pieces: Iterable[bytes],
    ) -> BackupRunFile:
        """Write a file that an image lists; durable on return."""
        number, size, identity = listed
        path = run_name(self._source.id, table, tree, number, self._run.id)
        # What was written under this name, of another host, is there no more.
        self._files.pop((tree, number), None)
        checksum = self._run.write_file(path, size, pieces)
        made = BackupRunFile(number, path, size, checksum, checksum_of(identity))
        self._files[tree, number] = made
        return made


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
        self._copied = copied
        self._files = RunFiles(run, source)

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
            counted = self._follower.table_counters(table, row["stream"])
        except (NotFoundError, CorruptionError, UnavailableError) as error:
            self._follower.refresh()
            if all(_shape(now) != shape for now in self._follower.tables()):
                raise Overtaken(row["name"], "table") from None
            if isinstance(error, CorruptionError):
                error.advising(table_mended(row["name"]))
            raise
        flushed = [tree.flushed for tree in trees]
        counters, position = (None, min(flushed)) if counted is None else counted
        retained = min(*flushed, position)
        return TableFiles(f"{table:032x}", tuple(trees), counters, retained)

    def _tree(self, row: dict[str, Any], tree: int) -> BackupTree:
        image, (flushed, runs) = self._follower.tree_image(row["id"], tree)
        files = [self._file(row, tree, image, listed) for listed in runs]
        return BackupTree(f"{tree:032x}", image, flushed, tuple(files))

    def _file(
        self,
        row: dict[str, Any],
        tree: int,
        image: bytes,
        listed: tuple[int, int, bytes],
    ) -> BackupRunFile:
        name = f"{tree:032x}"
        known = self._files.known(name, listed)
        if known is not None:
            return known
        file = self._opened(row, tree, image, listed[0])
        table = f"{row['id']:032x}"
        return self._files.write(table, name, listed, self._pieces(file))

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


def cut_of(row: dict[str, Any]) -> TableCut:
    """Return a table of a directory as its catalog has it."""
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
    return TableCut(
        f"{row['id']:032x}",
        row["name"],
        f"{row['log_id']:032x}",
        row["created"],
        row["start"],
        f"{row['primary']:032x}",
        bytes(row["options"]).decode(),
        row["pin"],
        indexes,
    )
