"""What an archive is: files of Parquet, each a range of positions, and manifests.

    <archive>/_manifests/00000000000000000003.json    generation 3
    <archive>/data/000000000000/<begin>-<end>-<attempt>.parquet

Theory of operation: data files are written first, under names that no other attempt
uses, and count for nothing. A *generation* makes them part of the archive: a manifest
that lists all files, under a name that can be created once. The generation with the
greatest number is the archive. So what a reader sees is one range of positions without
a gap, each once, whatever else lies in the directory.

Invariants, checked when a manifest is made and when one is read: files are in order,
none is empty, each begins where the one before it ends; of each stream the LLSNs of a
file go on where those of an earlier file ended.

Pure: names and bytes only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from braidlog import documents
from braidlog.documents import typed
from braidlog.errors import ArchiveDamagedError, InvalidArgumentError

FORMAT: Final = 1
# Tools that read or clean tables leave names alone that begin with an underscore.
MANIFESTS: Final = "_manifests"
DATA: Final = "data"
# Positions that share a folder: a listing stays short, and a folder can be told to be
# all old by its name.
_FOLDER_POSITIONS: Final = 10_000_000
_DATA_FILE: Final = re.compile(rf"{DATA}/\d{{12}}/(\d{{20}})-\d{{20}}-[\w-]+\.parquet")
_GENERATION: Final = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True, slots=True)
class StreamRange:
    """LLSNs ``begin`` to ``end`` of one log stream."""

    stream: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One Parquet file: positions ``begin`` to ``end``, a row each, in order."""

    path: str
    """Relative to the archive, with slashes."""
    begin: int
    end: int
    bytes: int
    checksum: str
    """BLAKE2b-128 of its bytes, in hexadecimal: what ``b2sum -l 128`` prints."""
    footer_bytes: int
    footer_checksum: str
    """Of the last bytes, which say where the pages are and have no checksum there."""
    timestamp_min: int
    timestamp_max: int
    """Both in microseconds, and both of records that are there."""
    streams: tuple[StreamRange, ...]
    """Which LLSNs the positions are, by stream."""

    @property
    def rows(self) -> int:
        """How many records it holds."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Manifest:
    """One generation of an archive."""

    log: str
    """Name of the log when it was archived, for people."""
    log_id: str
    """Identity of the log, 32 hexadecimal digits."""
    generation: int
    """From 1."""
    job: str
    """Who published it: a repetition of the same job finds its own work."""
    files: tuple[ArchivedFile, ...]

    def __post_init__(self) -> None:
        """Refuse what is no archive.

        Raises:
            InvalidArgumentError: a gap, an overlap, nothing at all.
        """
        if self.generation < 1 or not self.files:
            msg = f"generation {self.generation} of {len(self.files)} files"
            raise InvalidArgumentError(msg)
        if not re.fullmatch(r"[0-9a-f]{32}", self.log_id):
            raise InvalidArgumentError(f"{self.log_id!r} is not the id of a log")
        if outside := [f.path for f in self.files if not _DATA_FILE.fullmatch(f.path)]:
            raise InvalidArgumentError(f"{outside[0]!r} is not the name of a data file")
        _check_files(self.files)

    @property
    def begin(self) -> int:
        """First position."""
        return self.files[0].begin

    @property
    def end(self) -> int:
        """One past the last position."""
        return self.files[-1].end

    def followed_by(self, job: str, files: Iterable[ArchivedFile]) -> Manifest:
        """Return the next generation, in which a job added these files.

        Raises:
            InvalidArgumentError: they do not begin where this one ends.
        """
        whole = (*self.files, *files)
        return Manifest(self.log, self.log_id, self.generation + 1, job, whole)

    def holding(self, begin: int, end: int) -> tuple[ArchivedFile, ...]:
        """Return the files that hold some of positions ``begin`` to ``end``."""
        return tuple(f for f in self.files if f.begin < end and begin < f.end)


def _check_files(files: tuple[ArchivedFile, ...]) -> None:
    position, reached = files[0].begin, dict[int, int]()
    for file in files:
        if file.begin != position or file.end <= file.begin or file.begin < 1:
            raise InvalidArgumentError(
                f"{file.path} has positions {file.begin} to {file.end}, "
                f"{position} comes next"
            )
        if sum(part.end - part.begin for part in file.streams) != file.rows:
            raise InvalidArgumentError(
                f"the LLSN ranges of {file.path} do not add up to its {file.rows} "
                "records"
            )
        for part in file.streams:
            if part.begin != reached.get(part.stream, part.begin):
                raise InvalidArgumentError(
                    f"{file.path} has LLSN {part.begin} of stream {part.stream}, "
                    f"{reached[part.stream]} comes next"
                )
            reached[part.stream] = part.end
        position = file.end


# -- names ---------------------------------------------------------------------------


def begin_of(path: str) -> int | None:
    """Return where a data file begins, or one that is being written, by its name."""
    match = _DATA_FILE.fullmatch(path.removesuffix(".tmp"))
    return int(match[1]) if match else None


def manifest_name(generation: int) -> str:
    """Return the name of a generation within the folder of manifests."""
    return f"{generation:020d}.json"


def generation_of(name: str) -> int | None:
    """Return the generation that a name in the folder of manifests stands for."""
    match = _GENERATION.fullmatch(name)
    return int(match[1]) if match else None


def data_name(begin: int, end: int, attempt: str) -> str:
    """Return where the positions ``begin`` to ``end`` go; an attempt has its own."""
    folder = begin // _FOLDER_POSITIONS
    return f"{DATA}/{folder:012d}/{begin:020d}-{end:020d}-{attempt}.parquet"


# -- bytes ---------------------------------------------------------------------------


def encode(manifest: Manifest) -> bytes:
    """Return a manifest as it is stored."""
    body = asdict(manifest) | {"begin": manifest.begin, "end": manifest.end}
    return documents.encode("manifest", FORMAT, body)


def decode(data: bytes, path: str) -> Manifest:
    """Return the manifest that was stored at a path.

    Raises:
        NewerFormatError: a later version wrote it.
        ArchiveDamagedError: it is not what was written.
    """
    what, damaged = "a manifest of an archive", ArchiveDamagedError
    return documents.decode(
        data, path, "manifest", FORMAT, _manifest, what=what, damaged=damaged
    )


def _manifest(body: dict[str, Any]) -> Manifest:
    files = [file_of(row) for row in body["files"]]
    rest = {name: body[name] for name in ("log", "log_id", "generation", "job")}
    found = typed(Manifest, rest | {"files": tuple(files)})
    if (found.begin, found.end) != (body["begin"], body["end"]):
        raise InvalidArgumentError(
            f"it has positions {found.begin} to {found.end}, which differs "
            "from what it says"
        )
    return found


def file_of(row: dict[str, Any]) -> ArchivedFile:
    """Return the file that `dataclasses.asdict` made a row of.

    Raises:
        TypeError, KeyError, ValueError: it made something else.
    """
    streams = tuple(typed(StreamRange, part) for part in row["streams"])
    return typed(ArchivedFile, row | {"streams": streams})
