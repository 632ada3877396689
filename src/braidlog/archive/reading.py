"""An archive, opened for reading.

Theory of operation: the newest generation says which file has a position. The position
less the file's first one is the row, and the footer of the file says which row group
has it. So a read opens only the files, row groups and columns that it needs. It skips
files and row groups whose times cannot match.

A footer or a row group is checked before it is decoded (see `braidlog.archive.groups`),
so damage is never decoded. `verify` in `braidlog.archive.verification` checks the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from braidlog.archive.groups import CheckedFile
from braidlog.archive.layout import (
    MANIFESTS,
    ArchivedFile,
    Manifest,
    decode,
    generation_of,
    manifest_name,
)
from braidlog.archive.place import Location, Place
from braidlog.archive.rows import COLUMNS, EVERY, Choice, chosen_columns, records_of
from braidlog.errors import (
    ArchiveDamagedError,
    BeyondEndError,
    InvalidArgumentError,
    NotFoundError,
    TrimmedError,
    UnavailableError,
)

if TYPE_CHECKING:
    from braidlog._native import Record

# Rows that are decoded at a time, by their bytes before compression.
_BATCH_BYTES: Final = 4 << 20
_BATCH_ROWS_MAX: Final = 1 << 15


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows ``begin`` to ``end``, as positions, of one row group."""

    group: int
    first: int
    """Position of its first row."""
    begin: int
    end: int
    rows: int
    """How many rows are decoded at a time."""


class Archive:
    """One generation of an archive. Get one from `Log.archive` or `open_archive`.

    A generation never changes. `refresh` looks for a newer one.
    """

    def __init__(self, place: Place, manifest: Manifest) -> None:
        """Bind to a generation; users call `open_archive`."""
        self.place = place
        self.manifest = manifest

    def __repr__(self) -> str:
        """Show place and range."""
        return f"<Archive {self.location!r} {self.begin}..{self.end}>"

    @property
    def location(self) -> str:
        """Path or URI."""
        return self.place.location

    @property
    def begin(self) -> int:
        """First position in the archive."""
        return self.manifest.begin

    @property
    def end(self) -> int:
        """One past the last position in the archive."""
        return self.manifest.end

    def refresh(self) -> bool:
        """Switch to the newest generation; return whether there was a newer one.

        Raises:
            InvalidArgumentError: the archive there belongs to another log.
            ArchiveDamagedError: the archive is gone.
        """
        found = newest(self.place)
        if found is None:
            msg = f"the archive at {self.location} has lost its manifest"
            raise ArchiveDamagedError(msg, path=self.location)
        _check_log(self.place, found, self.manifest.log_id)
        newer = found.generation > self.manifest.generation
        if newer:
            self.manifest = found
        return newer

    # -- reading -----------------------------------------------------------------

    def batches(
        self,
        begin: int | None = None,
        end: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        choice: Choice = EVERY,
    ) -> Iterator[pa.RecordBatch]:
        """Iterate over positions ``begin`` to ``end`` as record batches, in order.

        ``columns`` are those of a log, and ``stream`` and ``llsn``. ``choice`` leaves
        out whole row groups only, so batches may have rows that it excludes.

        Raises:
            TrimmedError: ``begin`` is before `begin`.
            BeyondEndError: ``begin`` is beyond `end`.
            ArchiveDamagedError: a file is gone or damaged.
        """
        names = chosen_columns(columns)
        for _, batch in self._pieces(begin, end, names, choice):
            yield batch

    def decoded_bytes(self, file: ArchivedFile) -> int:
        """Return about how many bytes a file holds before compression.

        Raises:
            ArchiveDamagedError: the file is gone or damaged.
        """
        with self._opened(file) as checked:
            groups = range(checked.metadata.num_row_groups)
            return sum(checked.metadata.row_group(n).total_byte_size for n in groups)

    def to_arrow(
        self,
        begin: int | None = None,
        end: int | None = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Return positions ``begin`` to ``end`` as one table; see `batches`."""
        names = chosen_columns(columns)
        schema = pa.schema([(name, COLUMNS[name]) for name in names])
        found = self.batches(begin, end, columns=names)
        return pa.Table.from_batches(list(found), schema)

    def records(
        self,
        begin: int | None = None,
        end: int | None = None,
        *,
        choice: Choice = EVERY,
        reverse: bool = False,
    ) -> Iterator[tuple[list[Record], int]]:
        """Iterate over lists of wanted records, each with the position behind it.

        With ``reverse`` the last record comes first, and with each list comes the
        position that it begins with. A row group is held in memory for that.

        Raises:
            TrimmedError, BeyondEndError, ArchiveDamagedError: as `batches`.
        """
        names = [name for name in COLUMNS if name not in ("stream", "llsn")]
        for position, batch in self._pieces(begin, end, names, choice, reverse=reverse):
            records = records_of(batch, position, choice)
            if reverse:
                records.reverse()
                yield records, position
            else:
                yield records, position + batch.num_rows

    def _pieces(
        self,
        begin: int | None,
        end: int | None,
        names: list[str],
        choice: Choice,
        *,
        reverse: bool = False,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        begin, stop = self._bounds(begin, end)
        files = list(self.manifest.holding(begin, stop))
        for file in reversed(files) if reverse else files:
            if choice.may_hold(file.timestamp_min, file.timestamp_max):
                yield from self._rows(file, begin, stop, names, choice, reverse=reverse)

    def _bounds(self, begin: int | None, end: int | None) -> tuple[int, int]:
        begin = self.begin if begin is None else begin
        stop = self.end if end is None else min(end, self.end)
        if begin < 0 or stop < 0:
            raise InvalidArgumentError(f"positions begin at 1, got {min(begin, stop)}")
        if begin < self.begin:
            msg = f"the archive at {self.location} begins at position {self.begin}"
            raise TrimmedError(msg, first=self.begin)
        if begin > self.end:
            msg = f"position {begin} is not in the archive at {self.location} yet"
            raise BeyondEndError(msg, next=self.end)
        return begin, stop

    def _rows(
        self,
        file: ArchivedFile,
        begin: int,
        end: int,
        names: list[str],
        choice: Choice,
        *,
        reverse: bool,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        schema = pa.schema([(name, COLUMNS[name]) for name in names])
        with self._opened(file) as checked:
            parts = list(_parts(checked.metadata, file, begin, end, choice))
            for part in reversed(parts) if reverse else parts:
                pieces = _read(checked.group(part.group), part, names, schema)
                # A row group is decoded from its beginning on.
                yield from reversed(list(pieces)) if reverse else pieces

    @contextmanager
    def _opened(self, file: ArchivedFile) -> Iterator[CheckedFile]:
        path = self.place.shown(file.path)
        try:
            with self.place.open(file.path) as raw:
                yield CheckedFile(raw, file, path)
        except FileNotFoundError:
            raise ArchiveDamagedError(f"{path} no longer exists", path=path) from None
        except OSError as error:
            raise UnavailableError(f"{path}: {error}", path=path) from error


def _parts(
    metadata: Any, file: ArchivedFile, begin: int, end: int, choice: Choice
) -> Iterator[_Part]:
    if metadata.num_rows != file.rows:
        msg = f"{file.path} has {metadata.num_rows} rows instead of {file.rows}"
        raise ArchiveDamagedError(msg, path=file.path)
    first = file.begin
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        last = first + group.num_rows
        low, high = max(first, begin), min(last, end)
        if low < high and choice.may_hold(*_times(group, file)):
            rows = group.num_rows * _BATCH_BYTES // max(1, group.total_byte_size)
            yield _Part(number, first, low, high, max(1, min(rows, _BATCH_ROWS_MAX)))
        first = last


def _times(group: Any, file: ArchivedFile) -> tuple[int, int]:
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == "timestamp" and column.is_stats_set:
            found = column.statistics
            if found.has_min_max:
                return found.min_raw, found.max_raw
    return file.timestamp_min, file.timestamp_max


def _read(
    opened: Any, part: _Part, names: list[str], schema: pa.Schema
) -> Iterator[tuple[int, pa.RecordBatch]]:
    position = part.first
    batches = opened.iter_batches(
        batch_size=part.rows, row_groups=[part.group], columns=names, use_threads=False
    )
    for batch in batches:
        begin = max(position, part.begin)
        end = min(position + batch.num_rows, part.end)
        if begin < end:
            kept = batch.slice(begin - position, end - begin)
            arrays = [kept.column(name).cast(schema.field(name).type) for name in names]
            yield begin, pa.RecordBatch.from_arrays(arrays, schema=schema)
        position += batch.num_rows
        if position >= part.end:
            return


def newest(place: Place) -> Manifest | None:
    """Return the newest generation at a place, None if there is none.

    Raises:
        ArchiveDamagedError: its manifest is damaged.
        NewerFormatError: a later version wrote it.
    """
    before: int | None = None
    while True:
        found = [generation_of(name) for name in place.names(MANIFESTS)]
        generation = max((g for g in found if g is not None), default=None)
        if generation is None:
            return None
        name = f"{MANIFESTS}/{manifest_name(generation)}"
        try:
            manifest = decode(place.read(name), place.shown(name))
        except FileNotFoundError:
            # Removed between the two looks, because there are later ones.
            if before == generation:
                msg = f"{place.shown(name)} cannot be read"
                raise ArchiveDamagedError(msg, path=place.shown(name)) from None
            before = generation
            continue
        if manifest.generation != generation:
            msg = f"{place.shown(name)} is generation {manifest.generation}"
            raise ArchiveDamagedError(msg, path=place.shown(name))
        return manifest


def open_archive(location: Location, *, log_id: str | None = None) -> Archive:
    """Open the newest generation of an archive for reading.

    The location is a path, or a URI of a file system that Arrow knows. With ``log_id``,
    the archive must belong to that log.

    Raises:
        NotFoundError: there is no archive.
        InvalidArgumentError: the archive belongs to another log.
        ArchiveDamagedError: its manifest is damaged.
        NewerFormatError: a later version wrote it.
    """
    place = Place.of(location)
    manifest = newest(place)
    if manifest is None:
        raise NotFoundError(f"{place.location} has no archive")
    if log_id is not None:
        _check_log(place, manifest, log_id)
    return Archive(place, manifest)


def _check_log(place: Place, manifest: Manifest, log_id: str) -> None:
    if manifest.log_id != log_id:
        raise InvalidArgumentError(
            f"the archive at {place.location} belongs to log {manifest.log!r} "
            f"with id {manifest.log_id!r}, not to the one with id {log_id!r}"
        )
