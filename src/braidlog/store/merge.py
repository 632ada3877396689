"""Raw directories, merged: the records of one log in its order, in bounded memory.

*Theory of operation.* The merge is the core's: one pass over each file, front to back,
what is not in order in the file through the number index, copies compared byte by byte.
Memory does not grow with the log. For each directory it is its newest segment, what the
node that wrote it promised (``order_bytes_max``, `PENDING_BYTES_DEFAULT` unless it was
told otherwise), and a few MiB to read with.

Damaged bytes are passed over, and named: a directory gives what can be read before and
behind them, and another one has to have the rest. A merge that may not go on behind
holes ends with an error where none has it, or where nothing proves that there is no
more of it.

Which directories may be trusted is not decided here, but by the fault log, and commits
that are on none of the disks are told by the metadata repository:
`braidlog.node.rescue.raw.open_raw` asks both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from braidlog import _native
from braidlog.closable import Closable
from braidlog.errors import CorruptionError

PENDING_BYTES_DEFAULT: Final = 64 << 20
"""What a writer promises of each log, unless it is told another ``order_bytes_max``."""

_READ_BYTES: Final = 1 << 20

Context: TypeAlias = tuple[int, int, int, int, int]
"""A commit: version, GLSN, LLSN, length, high watermark."""

Standing: TypeAlias = tuple[int, int, int, int, int, list[tuple[int, int]], Context]
"""Of a stream: low, committed, next, durable end, epoch, epochs, latest commit."""

OnHole: TypeAlias = Literal["stop", "fail", "skip"]
"""Where no directory has a record: end there, raise, or go on behind it."""


@dataclass(frozen=True, slots=True)
class RawLog:
    """A log of a directory's catalog; in a cluster a replica or a Raft group."""

    name: str
    stream: int
    options: bytes
    explicit_commit: bool
    """False: an embedded log, where durable means committed."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Records ``first..first + count`` of an encoded batch."""

    position: int
    """GLSN of the first of them."""
    stream: int
    llsn: int
    first: int
    count: int
    batch: bytes


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a file that were left out."""

    path: str
    begin: int
    """The first byte that cannot be trusted."""
    end: int | None
    """Where whole frames begin again, or the file ends; None where that is unknown."""
    reason: str

    def __str__(self) -> str:
        """Name the place, as one line of a report."""
        to = "" if self.end is None else f" to {self.end}"
        return f"{self.path} from offset {self.begin}{to}: {self.reason}"


@dataclass(frozen=True, slots=True)
class SourceFigures:
    """What was read of one directory."""

    path: str
    bytes: int
    """Of segment files, front to back, each once."""
    late_bytes: int
    """Of batches that are not in order in the file, through the number index."""
    pending_bytes_peak: int
    """Most bytes that were held because their place was not known yet."""
    damages: tuple[Damage, ...]
    """What could not be read of it, as far as it was read."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a merge did so far."""

    next: int
    """Position behind the last record."""
    records: int
    bytes: int
    duplicates: int
    """Copies that were compared and found the same."""
    holes: tuple[tuple[int, int], ...]
    """Positions that no directory has. Of a merge that ended at one, that one."""
    sources: tuple[SourceFigures, ...]
    unproven: tuple[int, ...] = ()
    """Streams of which the end is damaged wherever they are: there may be more."""
    notes: tuple[str, ...] = ()
    """What else may be missing, and why."""
    left_out: tuple[Damage, ...] = ()
    """Directories of which nothing can be read."""

    @property
    def damages(self) -> tuple[Damage, ...]:
        """All that was left out, with its place."""
        return self.left_out + tuple(
            damage for source in self.sources for damage in source.damages
        )


class RawDirectory(Closable):
    """The directory of one node that is not running, locked while this is open."""

    def __init__(self, path: str | Path, *, order_bytes_max: int | None = None) -> None:
        """Read the newest segment of a directory.

        `order_bytes_max` replaces what the writer promised, for a log that breaks it.

        Raises:
            LockedError: a node runs on it.
            NotFoundError: there is no node's directory.
            CorruptionError: it is damaged where it says what streams it has.
        """
        self.path = Path(path)
        self.native = _native.RawDirectory.open(
            self.path, order_bytes_max=order_bytes_max
        )

    def logs(self) -> list[RawLog]:
        """Return the logs of the catalog by name."""
        return [RawLog(*row) for row in self.native.logs()]

    def state(self, stream: int) -> Standing:
        """Return where a stream stands, with the commits that `commit` told of.

        Raises:
            NotFoundError: the directory has no such stream.
        """
        return self.native.state(stream)

    def damages(self) -> tuple[Damage, ...]:
        """Return what cannot be read of the end of its log."""
        return tuple(Damage(*row) for row in self.native.damages())

    def doubtful(self) -> frozenset[int]:
        """Return the streams whose ends are not known for that reason."""
        return frozenset(self.native.doubtful())

    def commit(self, stream: int, epoch: int, context: Context) -> None:
        """Take over a commit that no file tells of; nothing is written.

        It has to be of the epoch in which the stream's last records were stored, and to
        go on where the stream is committed. Before anything reads the directory.

        Raises:
            FencedError: it is of another epoch.
            SequenceGapError, BeyondEndError: it does not go on there.
            InvalidArgumentError: a merge reads the directory.
        """
        self.native.commit(stream, epoch, context)

    def close(self) -> None:
        """Let go of the directory, once what reads it is closed. Idempotent."""
        self.native.close()


class RawMerge(Closable):
    """The records of a log in raw directories, once, in the order of their positions.

    Iterating gives Arrow data of about 1 MiB with the columns of a log, positions
    without a gap: ``pyarrow.record_batch(batch)``.
    """

    def __init__(
        self,
        sources: Sequence[tuple[RawDirectory, Mapping[int, int]]],
        *,
        begin: int | None = None,
        end: int | None = None,
        on_hole: OnHole = "stop",
        notes: tuple[str, ...] = (),
        left_out: tuple[Damage, ...] = (),
        unproved: CorruptionError | None = None,
    ) -> None:
        """Merge streams of directories, each with a number the same in all of them.

        Begins at the position `begin`; without one at the first that was not trimmed.
        `end` is the position behind the last committed one, if somebody knows it.
        `notes` and `left_out` are shown in the figures. `unproved` says why there may
        be more behind what comes out: a merge that may not go on behind holes raises it
        at its end.

        Raises:
            InvalidArgumentError: `on_hole` is none of the three.
            CorruptionError: the number index of a trimmed log is damaged.
        """
        rows = [(directory.native, dict(streams)) for directory, streams in sources]
        self._native = _native.RawMerge(rows, begin=begin, end=end, on_hole=on_hole)
        self.committed: dict[int, int] = {}
        """LLSN behind the last committed record of each stream, as known anywhere."""
        self.end = 1
        """Position behind the last one that is known; some before it may be missing."""
        for directory, streams in sources:
            for local, number in streams.items():
                _, committed, *_, (_, glsn, _, length, _) = directory.state(local)
                known = self.committed.get(number, 0)
                self.committed[number] = max(known, committed)
                # Without commit frames positions are LLSNs.
                self.end = max(self.end, glsn + length, committed)
        self.end = max(self.end, end or 1)
        self._stack = ExitStack()
        self._left_out = left_out
        self._unproved = unproved
        if unproved is not None and on_hole == "skip":
            notes, self._unproved = (*notes, unproved.message), None
        self._notes = notes

    def own(self, directory: RawDirectory) -> None:
        """Close a directory with this."""
        self._stack.callback(directory.close)

    def __iter__(self) -> Iterator[_native.ArrowBatch]:
        """Give out the records as Arrow data.

        Raises:
            CorruptionError: copies differ (both places are named), damage that no other
                directory makes up for, or may not, or a hole and ``on_hole="fail"``.
            TooLargeError: a writer did not keep what it promised; ``order_bytes_max``
                reads it anyway, with that much memory.
        """
        yield from self._native
        self.check_end()

    def encoded(self) -> Iterator[list[Encoded]]:
        """Give out the records as they are stored, about 1 MiB at a time.

        Raises what iterating raises.
        """
        while rows := self._native.encoded(_READ_BYTES):
            yield [Encoded(*row) for row in rows]
        self.check_end()

    def check_end(self) -> None:
        """Refuse if the log may go on behind what the directories give.

        Raises:
            CorruptionError: it may, and the merge may not go on behind holes.
        """
        if self._unproved is not None:
            raise self._unproved

    def drain(self, records: int = (1 << 62)) -> tuple[int, int]:
        """Read and check up to `records` records: (records, bytes of their batches)."""
        done = self._native.drain(records)
        if done[0] < records:
            self.check_end()
        return done

    def figures(self) -> Figures:
        """Return what was done so far."""
        found = self._native.figures()
        sources = tuple(
            SourceFigures(
                damages=tuple(Damage(*each) for each in row.pop("damages")), **row
            )
            for row in found.pop("sources")
        )
        holes = tuple(tuple(hole) for hole in found.pop("holes"))
        unproven = tuple(found.pop("unproven"))
        return Figures(
            **found,
            holes=holes,
            unproven=unproven,
            sources=sources,
            notes=self._notes,
            left_out=self._left_out,
        )

    def close(self) -> None:
        """End the merge and let go of its directories. Idempotent."""
        self._native.close()
        self._stack.close()
