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

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar, get_origin, get_type_hints

from braidlog.errors import (
    ArchiveDamagedError,
    InvalidArgumentError,
    NewerFormatError,
)

T = TypeVar("T")

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


def checksum_of(data: bytes) -> str:
    """Return the checksum of bytes."""
    return hashing(data).hexdigest()


def hashing(data: bytes = b"") -> hashlib.blake2b:
    """Begin a checksum."""
    return hashlib.blake2b(data, digest_size=16)


# -- bytes ---------------------------------------------------------------------------


def _plain(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def encode(manifest: Manifest) -> bytes:
    """Return a manifest as it is stored."""
    body = asdict(manifest) | {"begin": manifest.begin, "end": manifest.end}
    whole = {
        "format": FORMAT,
        "manifest": body,
        "checksum": checksum_of(_plain(body)),
    }
    return _plain(whole) + b"\n"


def decode(data: bytes, path: str) -> Manifest:
    """Return the manifest that was stored at a path.

    Raises:
        NewerFormatError: a later version wrote it.
        ArchiveDamagedError: it is not what was written.
    """
    try:
        whole = json.loads(data)
        found = whole["format"]
    except (ValueError, TypeError, KeyError):
        raise ArchiveDamagedError(
            f"{path} is not a manifest of an archive", path=path
        ) from None
    if not isinstance(found, int) or found < 1:
        raise ArchiveDamagedError(f"{path} is not a manifest of an archive", path=path)
    if found > FORMAT:
        msg = (
            f"{path} has format {found}, but this version reads up to "
            f"{FORMAT}: upgrade Braidlog"
        )
        raise NewerFormatError(msg, path=path, found=found, supported=FORMAT)
    try:
        body = whole["manifest"]
        if checksum_of(_plain(body)) != whole["checksum"]:
            msg = f"the checksum of {path} does not match"
            raise ArchiveDamagedError(msg, path=path)
        return _manifest(body)
    except (TypeError, KeyError, ValueError) as error:
        msg = f"{path} is not a manifest of an archive: {error}"
        raise ArchiveDamagedError(msg, path=path) from error


def _manifest(body: dict[str, Any]) -> Manifest:
    files = [file_of(row) for row in body["files"]]
    rest = {name: body[name] for name in ("log", "log_id", "generation", "job")}
    found = _typed(Manifest, rest | {"files": tuple(files)})
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
    streams = tuple(_typed(StreamRange, part) for part in row["streams"])
    return _typed(ArchivedFile, row | {"streams": streams})


def _typed(kind: type[T], values: dict[str, Any]) -> T:
    made = kind(**values)
    for name, hint in get_type_hints(kind).items():
        if not isinstance(getattr(made, name), get_origin(hint) or hint):
            raise InvalidArgumentError(f"{name} is {getattr(made, name)!r}")
    return made
