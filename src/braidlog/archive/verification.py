"""Read every byte of an archive and report damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from braidlog.archive.layout import ArchivedFile
from braidlog.archive.place import Place
from braidlog.archive.reading import Archive
from braidlog.archive.rows import COLUMNS
from braidlog.archive.tally import Tally
from braidlog.documents import hashing
from braidlog.errors import CorruptionError

_CHUNK: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that differs from the archived one."""

    path: str
    begin: int
    """First position of the file."""
    end: int
    problem: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What was read, and the damage that was found."""

    begin: int
    end: int
    generation: int
    files: int
    bytes: int
    damage: tuple[Damage, ...]

    @property
    def sound(self) -> bool:
        """Whether no damage was found."""
        return not self.damage


def verify(
    archive: Archive,
    begin: int | None = None,
    end: int | None = None,
    *,
    progress: Callable[[int, int], object] | None = None,
) -> Verified:
    """Read the files of an archive, and compare them with its manifest.

    Reads all files, or those that hold some of positions ``begin`` to ``end``. Checks
    the bytes, that positions and the LLSNs of each stream are dense, and the
    timestamps. ``progress`` is called with the bytes read and the bytes in all.

    Raises:
        UnavailableError: the system refused a read; nothing is known about the file.
    """
    manifest, damage = archive.manifest, []
    files = manifest.holding(
        manifest.begin if begin is None else begin, manifest.end if end is None else end
    )
    total, done = sum(file.bytes for file in files), 0
    for file in files:
        problem = _problem(archive, file)
        if problem:
            path = archive.place.shown(file.path)
            damage.append(Damage(path, file.begin, file.end, problem))
        done += file.bytes
        if progress is not None:
            progress(done, total)
    return Verified(
        archive.begin,
        archive.end,
        manifest.generation,
        len(files),
        total,
        tuple(damage),
    )


def _problem(archive: Archive, file: ArchivedFile) -> str:
    try:
        if _checksum(archive.place, file.path) != file.checksum:
            return "its bytes differ from those that were archived"
        return _contents(archive, file)
    except FileNotFoundError:
        return "it does not exist any more"
    except CorruptionError as error:
        return error.message


def _checksum(place: Place, name: str) -> str:
    with place.open(name) as file:
        found = hashing()
        for data in _chunks(file):
            found.update(data)
        return found.hexdigest()


def _chunks(file: pa.NativeFile) -> Iterator[bytes]:
    while data := file.read(_CHUNK):
        yield data


def _contents(archive: Archive, file: ArchivedFile) -> str:
    tally = Tally(file.begin)
    for batch in archive.batches(file.begin, file.end, columns=list(COLUMNS)):
        tally.add(batch)
    if tally.position != file.end or tally.ranges() != file.streams:
        return "its positions and LLSNs differ from those in the manifest"
    if tally.times != (file.timestamp_min, file.timestamp_max):
        return "its timestamps differ from those in the manifest"
    return ""
