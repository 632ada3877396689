"""Raw directories, stream by stream: parts of a log for many readers at once.

*Theory of operation.* `braidlog.store.merge` passes over directories front to back,
in one process that locks them. Here a range of one stream is read through the number
index of a directory that has it, without a lock; another directory takes its place
where the first is damaged, or has trimmed what the other still has. Commits that no
file tells of are given with the directory (`RawSource.commits`). The log ends at the
first position that no stream has.

*Invariants.* The positions are those that a merge of the directories gives. Copies are
not compared: that takes all directories at once, and is what a merge does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from braidlog import _native
from braidlog.closable import Closable
from braidlog.errors import CorruptionError, LogError, NotFoundError, TrimmedError
from braidlog.store.catalog import SegmentRange
from braidlog.store.merge import RawLog, Standing

_READ_BYTES: Final = 4 << 20

Run: TypeAlias = tuple[int, int, int]
"""A commit: LLSN, GLSN, length."""


class RawCatalog:
    """What a directory that no node runs on says of itself, read without a lock."""

    def __init__(self, path: str | Path) -> None:
        """Read the catalog, and where the streams stand.

        Raises:
            NotFoundError: there is no node's directory.
            CorruptionError: durable bytes of the newest segment are damaged.
        """
        self.path = Path(path)
        follower = _open(self.path)
        try:
            state = follower.state()
            streams = {row[1] for row in state.values()}
            self._standing = {each: follower.standing(each) for each in streams}
        finally:
            follower.close()
        self._rows = [
            RawLog(name, row[1], row[3], explicit_commit=False)
            for name, row in sorted(state.items())
        ]

    def logs(self) -> list[RawLog]:
        """Return the logs by name; how they commit is not said here."""
        return self._rows

    def state(self, stream: int) -> Standing:
        """Return where a stream stands, by the files alone.

        Raises:
            NotFoundError: the directory has no such stream.
        """
        if stream not in self._standing:
            raise NotFoundError(f"{self.path} has no replica of stream {stream}")
        return self._standing[stream]


def _open(path: Path) -> _native.Follower:
    # Whoever plans holds the lock for a moment: that is no sign of a node, and all that
    # a node would find is shown, not only what the last one had published.
    return _native.Follower.open(path, locked=True)


@dataclass(frozen=True, slots=True)
class RawSource:
    """A directory, and what its streams are called in all of them."""

    path: Path
    streams: tuple[tuple[int, int], ...]
    """(number in the directory, number in all of them)."""
    explicit: bool
    """False: an embedded log, where durable means committed."""
    commits: Mapping[int, tuple[Run, ...]] = field(default_factory=dict)
    """By number in the directory: what is committed behind what its files tell of."""


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
    told: int
    """LLSN behind the last one that its files say is committed."""
    commits: tuple[Run, ...]
    """What is committed from there on."""

    @property
    def end(self) -> int:
        """LLSN behind the last one that is committed."""
        return self.commits[-1][0] + self.commits[-1][2] if self.commits else self.told

    def runs(self, begin: int, end: int) -> list[Run]:
        """Return the commit runs of the LLSNs that it has."""
        begin, end = max(begin, self.first), min(end, self.end)
        if begin >= end:
            return []
        if not self.explicit:
            return [(begin, begin, end - begin)]
        found: list[Run] = []
        if begin < self.told:
            found += self.follower.runs(self.number, begin, min(end, self.told))
        for llsn, glsn, length in self.commits:
            low, high = max(begin, llsn), min(end, llsn + length)
            if low < high:
                found.append((low, glsn + low - llsn, high - low))
        return found

    def ceil(self, glsn: int) -> int | None:
        """Return the first LLSN that is not before a position; None if it has none."""
        if not self.explicit:
            return max(glsn, self.first) if glsn < self.end else None
        found = self.follower.glsn_ceil(self.number, glsn)
        if found is not None and found[1] < self.told:
            return found[1]
        for llsn, begin, length in self.commits:
            if glsn < begin + length:
                return llsn + max(0, glsn - begin)
        return None


class RawStreams(Closable):
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
        follower = _open(source.path)
        self._followers.append(follower)
        for number, stream in source.streams:
            first, told, *_ = follower.view(number).range()
            commits = source.commits.get(number, ())
            copy = _Copy(
                source.path, follower, number, source.explicit, first, told, commits
            )
            self._copies.setdefault(stream, []).append(copy)

    @property
    def streams(self) -> tuple[int, ...]:
        """The numbers of the streams."""
        return tuple(sorted(self._copies))

    def cut(self, position: int) -> dict[int, int]:
        """Return the first LLSN of each stream that is not before a position."""
        return {
            stream: _ceil(copies, position) for stream, copies in self._copies.items()
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
            end = self._copies[stream][0].end
            for copy in self._copies[stream]:
                runs += [(glsn, length) for _, glsn, length in copy.runs(begin, end)]
                end = min(end, copy.first)  # What it has trimmed another may have.
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
        copies = list(self._copies.get(stream, []))
        while begin < end:
            failure: LogError | None = None
            able = [copy for copy in copies if copy.first <= begin < copy.end]
            for copy in able:
                try:
                    parts = _chunk(copy, stream, begin, min(end, copy.end))
                except CorruptionError as error:
                    failure = error
                    # The others have what it lacks; it comes last from here on.
                    copies.remove(copy)
                    copies.append(copy)
                else:
                    yield from parts
                    begin = parts[-1].llsn + parts[-1].count
                    break
            else:
                raise failure or self._lacking(stream, begin, end)

    def _lacking(self, stream: int, begin: int, end: int) -> LogError:
        first = min((copy.first for copy in self._copies.get(stream, [])), default=1)
        if begin < first:
            msg = f"stream {stream} was trimmed to LLSN {first} in all directories"
            return TrimmedError(msg, first=first)
        msg = f"none of the directories has LLSNs {begin} to {end} of stream {stream}"
        return CorruptionError(msg)

    def close(self) -> None:
        """Let go of the directories. Idempotent."""
        for follower in self._followers:
            follower.close()


def _ceil(copies: Sequence[_Copy], position: int) -> int:
    """Return the first LLSN that is not before a position, of all that copies have."""
    found = [at for copy in copies if (at := copy.ceil(position)) is not None]
    return min(found, default=copies[0].end)


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
