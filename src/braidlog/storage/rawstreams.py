"""Raw directories, stream by stream: parts of a log for many readers at once.

*Theory of operation.* `braidlog.storage.merge` passes over directories front to back,
in one process that locks them. Here a range of one stream is read through the number
index of one directory that has it, without a lock; another directory takes its place if
the first is damaged. What is committed in a stream is what the directory that saw most
of it says. The log ends at the first position that no stream has.

Copies are not compared: that takes all directories at once, and is what a merge does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from braidlog import _native
from braidlog.errors import CorruptionError, LogError, TrimmedError
from braidlog.storage.catalog import SegmentRange
from braidlog.storage.merge import RawLog

__all__ = ["RawCatalog", "RawSource", "RawStreams", "StoredPart"]

_READ_BYTES: Final = 4 << 20


class RawCatalog:
    """What a directory says of itself, read without a lock."""

    def __init__(self, path: str | Path) -> None:
        """Read the catalog.

        Raises:
            NotFoundError: there is no node's directory.
            CorruptionError: durable bytes of the newest segment are damaged.
        """
        self.path = Path(path)
        follower = _native.Follower.open(self.path)
        state = follower.state()
        follower.close()
        self._rows = [
            RawLog(name, row[1], row[3], explicit_commit=False)
            for name, row in sorted(state.items())
        ]

    def logs(self) -> list[RawLog]:
        """Return the logs by name; how they commit is not said here."""
        return self._rows


@dataclass(frozen=True, slots=True)
class RawSource:
    """A directory, and what its streams are called in all of them."""

    path: Path
    streams: tuple[tuple[int, int], ...]
    """(number in the directory, number in all of them)."""
    explicit: bool
    """False: an embedded log, where durable means committed."""


@dataclass(frozen=True, slots=True)
class StoredPart:
    """Records ``skip`` to ``skip + count`` of an encoded batch of ``size`` records."""

    stream: int
    llsn: int
    """Of the first record of the part."""
    glsn: int
    skip: int
    count: int
    size: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Copy:
    """A stream in one directory."""

    path: Path
    follower: _native.Follower
    number: int
    """Of the stream in the directory."""
    explicit: bool
    first: int
    end: int
    """LLSNs that are committed, as far as the directory knows."""

    def runs(self, begin: int, end: int) -> list[tuple[int, int, int]]:
        """Return the commit runs of LLSNs: (LLSN, GLSN, length)."""
        if begin >= end:
            return []
        if not self.explicit:
            return [(begin, begin, end - begin)]
        return self.follower.runs(self.number, begin, end)

    def ceil(self, glsn: int) -> int:
        """Return the first LLSN that is not before a position."""
        if not self.explicit:
            return min(max(glsn, self.first), self.end)
        found = self.follower.glsn_ceil(self.number, glsn)
        return self.end if found is None else min(found[1], self.end)


class RawStreams:
    """The streams of a log in directories that no node runs on."""

    def __init__(self, sources: Sequence[RawSource]) -> None:
        """Open directories to read.

        Raises:
            NotFoundError: a directory has no such stream.
            CorruptionError: durable bytes of a newest segment are damaged.
        """
        self._followers: list[_native.Follower] = []
        self._copies: dict[int, list[_Copy]] = {}
        try:
            for source in sources:
                self._open(source)
        except BaseException:
            self.close()
            raise
        for copies in self._copies.values():
            # What knows most comes first.
            copies.sort(key=lambda copy: (-copy.end, copy.first))

    def _open(self, source: RawSource) -> None:
        follower = _native.Follower.open(source.path)
        self._followers.append(follower)
        for number, stream in source.streams:
            first, end, *_ = follower.view(number).range()
            copy = _Copy(source.path, follower, number, source.explicit, first, end)
            self._copies.setdefault(stream, []).append(copy)

    @property
    def streams(self) -> tuple[int, ...]:
        """The numbers of the streams."""
        return tuple(sorted(self._copies))

    def cut(self, position: int) -> dict[int, int]:
        """Return the first LLSN of each stream that is not before a position."""
        return {
            stream: copies[0].ceil(position) for stream, copies in self._copies.items()
        }

    def end(self, first: int) -> int:
        """Return the first position at or behind ``first`` that no stream has."""
        known = [self._position_behind(copies[0]) for copies in self._copies.values()]
        end = self._walk(max(first, min(known)))
        # Before what all streams know nothing is missing, unless a whole stream is.
        begins, ends = self.cut(first), self.cut(end)
        there = sum(ends[stream] - begins[stream] for stream in ends)
        return end if there == end - first else self._walk(first)

    def _walk(self, position: int) -> int:
        """Return the first position at or behind one that no stream has."""
        runs: list[tuple[int, int]] = []
        for stream, begin in self.cut(position).items():
            copy = self._copies[stream][0]
            runs += [(glsn, length) for _, glsn, length in copy.runs(begin, copy.end)]
        for glsn, length in sorted(runs):
            if glsn > position:
                break
            position = max(position, glsn + length)
        return position

    def _position_behind(self, copy: _Copy) -> int:
        if copy.end <= copy.first:
            return 1
        (_, glsn, length), *_ = copy.runs(copy.end - 1, copy.end)
        return glsn + length

    def segments(self, stream: int) -> list[SegmentRange]:
        """Return where the directory that knows most has a stream, by LLSN."""
        copy = self._copies[stream][0]
        return [
            SegmentRange(number, begin, end, size, frames, low, high, lane > 0)
            for number, lane, begin, end, size, frames, low, high in (
                copy.follower.view(copy.number).segments()
            )
        ]

    def copies(self, stream: int) -> list[tuple[Path, range]]:
        """Return which directories have a stream, with the LLSNs committed there."""
        return [
            (copy.path, range(copy.first, max(copy.first, copy.end)))
            for copy in self._copies.get(stream, [])
        ]

    def copy_chunk(
        self, stream: int, copy: int, begin: int, end: int
    ) -> list[StoredPart]:
        """Return some parts from ``begin`` on, as one of `copies` has them.

        Raises:
            CorruptionError: its bytes are damaged.
        """
        return _chunk(self._copies[stream][copy], stream, begin, end)

    def parts(self, stream: int, begin: int, end: int) -> Iterator[StoredPart]:
        """Yield LLSNs ``begin`` to ``end`` of a stream, in order.

        Each part lies in one commit run, so its positions are consecutive.

        Raises:
            TrimmedError: no directory has the beginning any more.
            CorruptionError: no directory has all of it undamaged.
        """
        failure: LogError | None = None
        for copy in self._copies.get(stream, []):
            try:
                while begin < end and copy.first <= begin and end <= copy.end:
                    for part in _chunk(copy, stream, begin, end):
                        begin = part.llsn + part.count
                        yield part
            except CorruptionError as error:
                failure = error
            if begin >= end:
                return
        if failure is not None:
            raise failure
        first = min((copy.first for copy in self._copies.get(stream, [])), default=1)
        if begin < first:
            msg = f"stream {stream} was trimmed to {first} in all directories"
            raise TrimmedError(msg, first=first)
        msg = f"no directory has {begin} to {end} of stream {stream}"
        raise CorruptionError(msg)

    def close(self) -> None:
        """Let go of the directories. Idempotent."""
        for follower in self._followers:
            follower.close()

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()


def _chunk(copy: _Copy, stream: int, begin: int, end: int) -> list[StoredPart]:
    """Return the parts of some batches, from ``begin`` on without a gap."""
    found = copy.follower.read(copy.number, begin, end, _READ_BYTES)
    if not found:
        msg = f"{copy.path} lacks {begin} of stream {stream}, which it says it has"
        raise CorruptionError(msg, path=str(copy.path))
    last = min(end, found[-1][0] + found[-1][1])
    runs = iter(copy.runs(begin, last))
    run, parts = next(runs, None), []
    for first, size, data in found:
        while begin < min(last, first + size):
            while run is not None and run[0] + run[2] <= begin:
                run = next(runs, None)
            if run is None or run[0] > begin or first > begin:
                msg = f"{copy.path} lacks the commit of {begin} of stream {stream}"
                raise CorruptionError(msg, path=str(copy.path))
            count = min(last, first + size, run[0] + run[2]) - begin
            glsn = run[1] + begin - run[0]
            parts.append(
                StoredPart(stream, begin, glsn, begin - first, count, size, data)
            )
            begin += count
    return parts
