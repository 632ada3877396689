"""The engine of a node: tables of the native core in sub-directories of its own.

The core is given the log in its order, as `docs/design/0014-tables.md` says. Whoever
copies a table gets runs as they are, and manifests that were made for the copy.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from braidlog import _native
from braidlog.errors import ClosedError, NotFoundError, NotReadyError
from braidlog.node.tables.engine import (
    Divided,
    FoundRows,
    LogPiece,
    ScanBounds,
    TableFiles,
)
from braidlog.node.tables.files import DirectoryFiles
from braidlog.store.tables.entry import TableOptions
from braidlog.wire.rows import PinnedFile
from braidlog.wire.tables import IndexInfo, IndexStatus, TableInfo

if TYPE_CHECKING:
    from braidlog._native import HostedTable as NativeTable

__all__ = ["HostedNativeTable", "NativeEngine", "PinnedNativeTable"]

_STRICT: Final = "strict "
"""In front of a field of which no record may be missing in the index."""
_RUN: Final = ".run"
_READ_BYTES: Final = 1 << 20


class NativeEngine:
    """Opens tables in one directory."""

    def __init__(
        self,
        directory: Path,
        *,
        files: TableFiles | None = None,
        disk: _native.MemoryDisk | None = None,
    ) -> None:
        """Use a directory, which is made when it is needed.

        ``disk`` is one in memory instead of the real one, with ``files`` on it.
        """
        self._directory = directory
        self._disk = disk
        self._cache = _native.TableCache()
        self.files: TableFiles = files or DirectoryFiles(directory)

    def open(self, table: TableInfo, first: int) -> HostedNativeTable:
        """Open a table; make it if nothing is here. The log begins at ``first``.

        Raises:
            MissingFileError: something is not here, and the log does not reach back to
                where the table began.
            CorruptionError: it cannot be read.
        """
        options = TableOptions.decode(table.options)
        wanted = [i for i in table.indexes if i.status is not IndexStatus.ABORTED]
        identity = int.from_bytes(table.table)
        definition = (
            identity,
            identity,
            int.from_bytes(table.tree),
            max(0, table.begin - 1),
            [_index(each) for each in wanted],
        )
        native = _native.HostedTable.open(
            self._directory,
            definition,
            first,
            self._cache,
            disk=self._disk,
            deletes=options.rule,
            history=options.history,
            memory_bytes=options.memory_bytes,
        )
        return HostedNativeTable(native)


def _index(index: IndexInfo) -> tuple[int, str, str, bool, int]:
    field = index.field.decode()
    plain = field.removeprefix(_STRICT)
    return int.from_bytes(index.tree), index.name, plain, plain != field, 0


class HostedNativeTable:
    """A table that is open."""

    def __init__(self, native: NativeTable) -> None:
        """Wrap a table of the core."""
        self._native = native
        self._checksums: dict[str, int] = {}
        """Of runs that were pinned: they never change, and reading them takes long."""
        self._flushes = 0
        self._merges = 0

    @property
    def applied(self) -> int:
        """Everything up to this position is applied, and counted."""
        return self._native.wanted - 1

    @property
    def reached(self) -> int:
        """Last position of which something is here."""
        return self._native.reached

    @property
    def flushed(self) -> int:
        """Everything up to this position is in files."""
        return self._native.flushed

    @property
    def floor(self) -> int:
        """Lowest position that it can be read at."""
        return self._native.floor

    @property
    def is_full(self) -> bool:
        """Whether memory has to be flushed before more is applied."""
        return self._native.is_full

    @property
    def memory_bytes(self) -> int:
        """What is in memory and not in files, of all trees."""
        return self._native.memory_bytes

    def apply(self, pieces: Sequence[LogPiece]) -> None:
        """Apply what the log has next. What was applied before is passed over."""
        self._native.apply([(p.batch, p.first, p.skip, p.records) for p in pieces])

    def get_rows(self, keys: Sequence[bytes], at: int, bytes_max: int) -> FoundRows:
        """Look keys up, as many as ``bytes_max`` allows, one at least."""
        position, batch, positions, found, looked = self._native.get_rows(
            list(keys), at, bytes_max
        )
        return FoundRows(position, batch, tuple(positions), tuple(found), looked)

    def scan_rows(self, bounds: ScanBounds, at: int) -> FoundRows:
        """Read rows in order, one at least."""
        tree = int.from_bytes(bounds.tree) if bounds.tree else None
        if tree is not None:
            self._check_built(tree)
        position, batch, positions, following = self._native.scan_rows(
            tree,
            bounds.begin,
            bounds.end,
            bounds.reverse,
            bounds.count_max,
            bounds.bytes_max,
            at,
        )
        return FoundRows(position, batch, tuple(positions), next=following)

    def divide(self, bounds: ScanBounds, at: int) -> Divided:
        """Divide what a scan reads into parts."""
        tree = int.from_bytes(bounds.tree) if bounds.tree else None
        if tree is not None:
            self._check_built(tree)
        position, parts, whole = self._native.divide(
            tree, bounds.begin, bounds.end, bounds.count_max, bounds.bytes_max, at
        )
        return Divided(position, tuple(parts), whole)

    def _check_built(self, tree: int) -> None:
        built = self._native.is_built(tree)
        if built is None:
            raise NotFoundError("there is no such index")
        if not built:
            raise NotReadyError("the index is still being built here")

    def lease(self, position: int) -> _native.TableLease:
        """Keep what a position sees."""
        return self._native.lease(position)

    def flush(self) -> bool:
        """Write what is in memory; False if there was nothing to do."""
        flushed = self._native.flush()
        self._flushes += flushed
        return flushed

    def merge(self) -> bool:
        """Merge some files; False if there was nothing to do."""
        merged = self._native.merge()
        self._merges += merged
        return merged

    def attach(self, index: IndexInfo) -> None:
        """Begin an index, if there is none of its identity.

        Raises:
            InvalidArgumentError: it describes no field of a record.
        """
        self._native.attach(_index(index))

    def build(self, tree: bytes, goes_on: Callable[[], bool]) -> bool:
        """Build an index; False if ``goes_on`` said no. Nothing if it is built.

        Raises:
            InvalidArgumentError: a record cannot be in it; it is aborted everywhere.
        """
        stopped = False

        def progress(_: int) -> bool:
            nonlocal stopped
            stopped = not goes_on()
            return not stopped

        try:
            self._native.build(int.from_bytes(tree), progress)
        except ClosedError:
            if stopped:
                return False
            raise
        return True

    def detach(self, tree: bytes) -> None:
        """Give an index up, built or not."""
        self._native.detach(int.from_bytes(tree))

    def pin(self) -> PinnedNativeTable:
        """Keep the files as they are. Verifies each run that was not pinned before.

        Raises:
            CorruptionError: some of it is damaged.
        """
        pinned = PinnedNativeTable(self._native.pin(), self._checksums)
        self._checksums = {
            file.path: file.checksum for file in pinned.files if _is_run(file.path)
        }
        return pinned

    def verify(self, goes_on: Callable[[int], bool]) -> tuple[int, int] | None:
        """Read everything, and compare indexes with records; None if stopped.

        Raises:
            CorruptionError: some of it cannot be read, or an index has not what it
                should.
        """
        stopped = False

        def progress(read: int) -> bool:
            nonlocal stopped
            stopped = not goes_on(read)
            return not stopped

        try:
            return self._native.verify(progress)
        except ClosedError:
            if stopped:
                return None
            raise

    def stats(self) -> dict[str, int | str]:
        """Return figures by name: sums over trees, and what indexes lack."""
        raw = self._native.stats()
        trees = [raw["primary"], *raw["indexes"]]
        left_out = [raw[what] for what in ("without_key", "long_keys", "lost")]
        figures: dict[str, int | str] = {
            "records": raw["records"],
            "entries": sum(tree["run_entries"] for tree in trees),
            "memory_bytes": sum(tree["memory_bytes"] for tree in trees),
            "file_bytes": sum(tree["run_bytes"] for tree in trees),
            "files": sum(tree["runs"] for tree in trees),
            "ranges": sum(tree["ranges"] for tree in trees),
            "flushes": self._flushes,
            "merges": self._merges,
            "left_out": sum(count for count, _ in left_out),
        }
        firsts = [first[0][0] for _, first in left_out if first]
        if firsts:
            figures["left_out_first"] = min(firsts)
        for index in raw["indexes"]:
            figures |= _lacks(index)
        return figures

    def close(self) -> None:
        """Let go of it; what is not flushed is applied again after the next open."""
        self._native.close()


def _lacks(index: dict[str, Any]) -> dict[str, int | str]:
    """Return what an index has to be said of."""
    name, (count, firsts) = index["name"], index["refused"]
    figures: dict[str, int | str] = {f"built:{name}": int(index["built"])}
    if count:
        figures[f"missing:{name}"] = count
    if firsts:
        figures[f"missing_first:{name}"], figures[f"missing_why:{name}"] = firsts[0]
    return figures


def _is_run(path: str) -> bool:
    return path.endswith(_RUN)


class PinnedNativeTable:
    """The files of one version; they stay until it is released."""

    def __init__(self, native: _native.PinnedTable, checksums: dict[str, int]) -> None:
        """Hold a version; ``checksums`` are those of runs that are known."""
        self._native = native
        self.flushed = native.flushed
        """Everything up to this position is in them."""
        self.files = tuple(
            PinnedFile(path, size, self._checksum(path, size, checksums))
            for path, size in native.files()
        )
        """What there is to copy."""

    def _checksum(self, path: str, size: int, known: dict[str, int]) -> int:
        if _is_run(path):
            if path in known:
                return known[path]
            # Damage would be copied with a checksum that fits it.
            self._native.verify(path)
        checksum = 0
        for offset in range(0, size, _READ_BYTES):
            part = self._native.read(path, offset, _READ_BYTES)
            checksum = zlib.crc32(part, checksum)
        return checksum

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Read a part of one of them; shorter at its end.

        Raises:
            NotFoundError: it is none of them.
            CorruptionError: it cannot be read.
        """
        return self._native.read(path, offset, size)

    def release(self) -> None:
        """Let go of them."""
        self._native.release()
