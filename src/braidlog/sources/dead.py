"""Reads a log from what is left of a cluster: directories of nodes that do not run.

Theory of operation: the fault logs of the directories decide which of them are valid
(`braidlog.node.rescue.raw`). There are two ways to read what they have.

- In one pass of all files (`braidlog.store.merge`), front to back, which locks the
  directories, compares copies, and passes over damage: `records`, and `batches` from
  position 0 on.
- In ranges, found by the number index (`braidlog.store.raw_streams`), for many tasks
  at once. A range of one stream comes from one directory, and from another one where
  that is damaged. With ``compare`` it is read from every directory that has it, a few
  MiB at a time, and a lock that is shared with other readers keeps nodes from beginning
  to run on a directory meanwhile. Without it tasks take no lock: whoever plans has seen
  that no node runs.

Invariants: a range comes out as a pass of all files gives it, or not at all. The
`doubt` of a look says why the streams alone may not tell all of the log: that is for a
pass of all files to decide.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import logging
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from braidlog import _native
from braidlog.client.batches import NativeCodec
from braidlog.client.read.span_rows import rows_of, with_places
from braidlog.errors import (
    BeyondEndError,
    CorruptionError,
    LockedError,
    TrimmedError,
)
from braidlog.node.rescue.raw import choose_raw, open_raw
from braidlog.sources.copies import compared
from braidlog.sources.plan import Extent, Span, extents_of
from braidlog.sources.source import ALL_STREAMS, LogSource, Look
from braidlog.store.merge import Damage, Figures, OnHole
from braidlog.store.raw_streams import RawStreams, StoredPart

if TYPE_CHECKING:
    import pyarrow as pa

    from braidlog._native import Record

Cut: TypeAlias = Literal["strict", "any-copy"]
"""Where no directory has a position: end there, or go on behind it."""

_ON_HOLE: Final[dict[Cut, OnHole]] = {"strict": "stop", "any-copy": "skip"}
_log = logging.getLogger(__name__)
_LOCK: Final = "LOCK"
_BYTES_MIN: Final = 1 << 30
"""A pass of all files reads that in two seconds or so. Reading it in ranges costs some
times the processor time, the more the shorter commits are."""

_END: Final = (1 << 62) - 1
"""Behind every position: where a log ends is known when all of it was read."""

_codec: Final = NativeCodec()


@dataclass(slots=True)
class Lacks:
    """What is missing of a log, each thing once."""

    damages: list[Damage] = field(default_factory=list)
    """Bytes that were left out, by file and offset."""
    holes: list[tuple[int, int]] = field(default_factory=list)
    """Positions that no directory has, half-open."""
    notes: list[str] = field(default_factory=list)
    """What else may be missing, and why."""

    def add(self, figures: Figures) -> None:
        """Add what a reading found."""
        known = {(each.path, each.begin): at for at, each in enumerate(self.damages)}
        for damage in figures.damages:
            at = known.get((damage.path, damage.begin))
            if at is None:
                self.damages.append(damage)
            else:
                self.damages[at] = damage
        self.holes += [hole for hole in figures.holes if hole not in self.holes]
        said = [
            f"the end of stream {n} is damaged everywhere" for n in figures.unproven
        ]
        self.notes += [
            note for note in (*figures.notes, *said) if note not in self.notes
        ]


@dataclass(frozen=True, slots=True)
class DeadLook(Look):
    """The log, which does not change; `cut` and `extents` are for the source's life."""

    id: str
    first: int
    end: int
    doubt: str
    """Why the streams do not tell all of the log; empty if they do."""
    streams: RawStreams

    def cut(self, position: int) -> dict[int, int]:
        """Return the first LLSN of each stream that is not before a position."""
        return self.streams.cut(position)

    def extents(
        self,
        begin: Mapping[int, int],  # noqa: ARG002, RUF100
        end: Mapping[int, int],
    ) -> dict[int, list[Extent]]:
        """Return the segments of each stream."""
        return {stream: extents_of(self.streams.segments(stream)) for stream in end}


class DeadSource(LogSource):
    """A log in raw directories: those of a dead cluster that the fault log calls valid.

    Or the directory of an embedded log. Copies that differ end a reading that compares
    them, with both places named.
    """

    id: Final = ""  # The catalogs do not have it.

    def __init__(
        self,
        directories: Sequence[str | Path],
        log: str,
        *,
        compare: bool = True,
        cut: Cut = "strict",
    ) -> None:
        """Name directories and log; nothing is opened before it is read.

        ``cut`` is for a pass of all files.
        """
        self.name = f"{log} in {', '.join(map(str, directories))}"
        self.cut = cut
        self.gaps = cut == "any-copy"
        self.figures: Figures | None = None
        """What the last pass of all files found: copies, holes, damage."""
        self.found: Final = Lacks()
        """What all of them found to be missing."""
        self._directories = list(directories)
        self._log = log
        self._compare = compare
        self._reading: Generator[Record] | None = None
        self._looked = ExitStack()
        self._said: tuple[str, ...] = ()

    def _file_bytes(self) -> int:
        return sum(
            file.stat().st_size
            for directory in self._directories
            for file in Path(directory, "wal").glob("*.wal")
        )

    # -- ranges ------------------------------------------------------------------

    def ranges(
        self, until: int | None, bytes_per_task: int, *, ahead: int = 0
    ) -> list[Span]:
        """Cut the positions into tasks, if the streams tell all of a large log.

        Otherwise one task is to read all from position 0 on, in one pass of all files.
        Where the log ends is known then, so ``until`` is not checked here.
        """
        try:
            look = self.look()
        except CorruptionError as error:
            why = error.message
        else:
            extents = look.by_position(look.first, look.end)
            size = sum(extent.bytes for extent in extents)
            small = f"it has {size} bytes only" if size < _BYTES_MIN else ""
            why = look.doubt or small
        if not why:
            return super().ranges(until, bytes_per_task, ahead=ahead)
        _log.info("one task reads log %r: %s", self._log, why)
        end = _END if until is None or ahead else until + 1
        return [Span(0, end, self._file_bytes())]

    def look(self) -> DeadLook:
        """Return the log; what it may lack is logged once. Ends the look before it.

        Raises:
            LockedError: a node runs on one of the directories.
            NotReadyError: a member that may know more is missing.
            InvalidArgumentError: no choice of directories is safe.
            NotFoundError: there is no such directory, or no valid one has the log.
            CorruptionError: the end of one is damaged, and no other has all of it; or
                copies are to be compared.
        """
        self._looked.close()
        try:
            with open_raw(self._directories, self._log) as merge:
                figures, committed, last = merge.figures(), merge.committed, merge.end
        except LockedError as error:
            msg = (
                f"{error.message}: option 'raw' is for stopped nodes; read a "
                "running one with 'cluster' or 'path'"
            )
            raise LockedError(msg, path=error.path) from None
        said = (*map(str, figures.damages), *figures.notes)
        if said != self._said:
            _log.warning("log %r: %s", self._log, "; ".join(said))
            self._said = said
        if figures.damages and self._compare:
            raise _damaged(figures, "copies cannot be compared there")
        streams = self._opened(self._looked)
        ends, end = streams.cut(_END), streams.end(figures.next)
        if figures.damages and (
            figures.unproven
            or any(ends.get(stream, 0) < llsn for stream, llsn in committed.items())
        ):
            msg = (
                "no other directory has everything that this one had; use a "
                "pipeline, which reads damaged directories in one task"
            )
            raise _damaged(figures, msg)
        doubt = ""
        if ends != committed:
            doubt = f"its streams end at {ends}, committed is {committed}"
        elif end != last:
            doubt = f"position {end} is missing, the last one is {last}"
        return DeadLook(self.id, figures.next, end, doubt, streams)

    def _opened(self, stack: ExitStack) -> RawStreams:
        if self._compare:
            for directory in self._directories:
                stack.enter_context(_shared(Path(directory)))
        return stack.enter_context(RawStreams(choose_raw(self._directories, self._log)))

    def batches(
        self,
        begin: int,
        end: int,
        *,
        columns: Sequence[str],
        stream: int = ALL_STREAMS,
        since: int | None = None,
        until: int | None = None,
        turn: int = 0,  # noqa: ARG002, RUF100
    ) -> Iterator[pa.RecordBatch]:
        """Yield a range, once each, in order; all positions from 0 on in one pass.

        Raises:
            LockedError: a node runs on one of the directories.
            CorruptionError: copies differ, or no directory has a record undamaged.
            BeyondEndError: a pass of all files ends before ``end``.
        """
        if stream == ALL_STREAMS and not begin:
            return self._in_one_pass(end, columns)
        return self._range(stream, begin, end, list(columns), since, until)

    def _range(
        self,
        stream: int,
        begin: int,
        end: int,
        columns: list[str],
        since: int | None,
        until: int | None,
    ) -> Iterator[pa.RecordBatch]:
        def rows(
            number: int, low: int, high: int
        ) -> Iterator[tuple[StoredPart, pa.RecordBatch | None]]:
            if self._compare:
                for part, batch in compared(streams, number, low, high):
                    yield part, with_places(batch, columns, part)
                return
            for part in streams.parts(number, low, high):
                yield (
                    part,
                    rows_of(_codec, part, columns=columns, since=since, until=until),
                )

        from braidlog.sources.chunks import rechunk

        with ExitStack() as stack:
            streams = self._opened(stack)
            if stream == ALL_STREAMS:
                highs = streams.cut(end)
                each = [rows(n, low, highs[n]) for n, low in streams.cut(begin).items()]
                found = _without_gap(
                    heapq.merge(*each, key=lambda pair: pair[0].glsn), begin, end
                )
            else:
                found = (batch for _, batch in rows(stream, begin, end))
            # Inside: the directories stay locked until the last row is given out.
            yield from rechunk(batch for batch in found if batch is not None)

    # -- a pass of all files -----------------------------------------------------

    def _in_one_pass(
        self, end: int, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        merge = open_raw(self._directories, self._log)
        after = 0
        with contextlib.closing(merge):
            for each in merge:
                batch = pa.record_batch(each)
                first = batch.column("position")[0].as_py()
                rows = batch.slice(0, max(0, end - first))
                if rows.num_rows:
                    yield rows.select(list(columns))
                after = first + rows.num_rows
                if after >= end:
                    return
        if end != _END and after < end:
            msg = (
                f"the directories have the log up to {after - 1}, but {end - 1} "
                "was asked for"
            )
            raise BeyondEndError(msg, next=after)

    def records(self, begin: int | None, end: int | None = None) -> Iterator[Record]:
        """Read the records once, in order; ends an earlier reading.

        Raises:
            LockedError: a node runs on one of the directories.
            NotReadyError: a directory that may know more is missing; it is named.
            InvalidArgumentError: no choice of directories is safe.
            NotFoundError: no valid directory has the log.
            TrimmedError: it is read from its first record, which nobody has any more.
            CorruptionError: copies differ, or damage that no other directory makes up
                for.
        """
        if self._reading is not None:
            self._reading.close()
        self._reading = self._records(begin, end)
        return self._reading

    def _records(self, begin: int | None, end: int | None) -> Generator[Record]:
        merge = open_raw(
            self._directories,
            self._log,
            begin=begin,
            on_hole=_ON_HOLE[self.cut],
        )
        found = False
        with contextlib.closing(merge):
            try:
                for rows in merge.encoded():
                    found = True
                    for row in rows:
                        if end is not None and row.position >= end:
                            return
                        last = row.first + row.count
                        if end is not None:
                            last = min(last, row.first + end - row.position)
                        yield from _native.Batch(row.batch).records(
                            row.position - row.first, row.first, last
                        )
                        if end is not None and row.position + row.count >= end:
                            return  # Whatever is behind it.
            finally:
                self.figures = merge.figures()
                self.found.add(self.figures)
        holes = self.figures.holes
        if begin == 1 and not found and holes and holes[0][1] < merge.end:
            # Not a hole where a log ends: without its first record it has no state.
            first = holes[0][1]
            msg = f"the log begins at {first} in these directories"
            raise TrimmedError(msg, first=first)

    def close(self) -> None:
        """Let go of the directories. Idempotent."""
        self._looked.close()
        if self._reading is not None:
            self._reading.close()
            self._reading = None


def _damaged(figures: Figures, what: str) -> CorruptionError:
    damage = figures.damages[0]
    msg = f"{damage}: {what}"
    return CorruptionError(msg, path=damage.path, offset=damage.begin)


def _without_gap(
    rows: Iterable[tuple[StoredPart, pa.RecordBatch | None]], begin: int, end: int
) -> Iterator[pa.RecordBatch | None]:
    for part, batch in rows:
        if part.glsn != begin:
            break
        begin += part.count
        yield batch
    if begin != end:
        raise CorruptionError(f"none of the directories has position {begin}")


@contextlib.contextmanager
def _shared(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory together with others who read."""
    with (directory / _LOCK).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            msg = (
                f"a node is running on {directory}: read the log from the node, "
                "or stop it"
            )
            raise LockedError(msg, path=str(directory)) from None
        yield
