"""The streams of a log as one sequence, in the order of GLSNs.

Theory of operation: each stream is read on its own, from any replica; what arrives is
kept as spans, parts of encoded batches. A batch is contiguous in GLSN, so a whole span
is passed on as soon as it begins at the position of the merge. GLSNs are dense: while
no stream has the position, some stream is still to deliver it, and all that have room
are asked. A stream that has the position next has nothing buffered, so the bound of
what is buffered per stream cannot block the merge.

A stream is entered by GLSN and then followed by LLSN, which is the same on all
replicas: after a failure the next replica goes on where the last one stopped, and what
it sends twice is cut off.

Invariants: every position is passed on exactly once, in order; the LLSNs of a stream
are dense; a position that every stream is past, and that none delivered, is a loss of
records and raises.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from braidlog.errors import CorruptionError, RemoteProtocolError
from braidlog.wire.messages import Records, Run

# A large credit is asked for in parts: while one is passed on, the next is under way.
_PARTS: Final = 4
_PART_BYTES_MIN: Final = 256 << 10


class MergeGapError(CorruptionError):
    """A position is in none of the streams: committed records are missing."""

    code = 62
    hint = "Run `braidlog verify` on the nodes of the log"


@dataclass(frozen=True, slots=True)
class Span:
    """Part of a batch: records ``skip`` to ``skip + count`` of ``data``."""

    stream: int
    llsn: int
    """Of the first record of the part."""
    glsn: int
    skip: int
    count: int
    size: int
    """Records of the whole batch."""
    data: memoryview

    def after(self, count: int) -> Span:
        """Return what follows the first ``count`` records."""
        return Span(
            self.stream,
            self.llsn + count,
            self.glsn + count,
            self.skip + count,
            self.count - count,
            self.size,
            self.data,
        )

    def before(self, glsn: int) -> Span:
        """Return what is before ``glsn``."""
        count = min(self.count, glsn - self.glsn)
        return Span(
            self.stream, self.llsn, self.glsn, self.skip, count, self.size, self.data
        )


@dataclass(frozen=True, slots=True)
class Want:
    """What to read next from a stream."""

    stream: int
    begin: int
    by_glsn: bool
    bytes_max: int


def spans_of(records: Records, payload: memoryview) -> list[Span]:
    """Return the batches of an answer, each with its place.

    Raises:
        RemoteProtocolError: the parts of the answer contradict one another.
    """
    _check_lengths(records, payload)
    spans: list[Span] = []
    ends = (*records.llsns[1:], records.next)
    runs = iter(records.runs)
    run = next(runs, None)
    offset = 0
    for llsn, end, size in zip(records.llsns, ends, records.sizes, strict=False):
        while run is not None and run.llsn_begin + run.length <= llsn:
            run = next(runs, None)
        glsn = _place(records.stream, run, llsn, end)
        data = payload[offset : offset + size]
        spans.append(Span(records.stream, llsn, glsn, 0, end - llsn, end - llsn, data))
        offset += size
    return spans


def _check_lengths(records: Records, payload: memoryview) -> None:
    if len(records.llsns) != len(records.sizes):
        msg = f"{len(records.llsns)} batches have {len(records.sizes)} sizes"
        raise RemoteProtocolError(msg)
    if sum(records.sizes) != len(payload):
        msg = f"sizes give {sum(records.sizes)} bytes, {len(payload)} came"
        raise RemoteProtocolError(msg)


def _place(stream: int, run: Run | None, llsn: int, end: int) -> int:
    if run is None or not (run.llsn_begin <= llsn < end <= run.llsn_begin + run.length):
        msg = f"no run of stream {stream} holds LLSNs {llsn} to {end}"
        raise RemoteProtocolError(msg)
    return run.glsn_begin + llsn - run.llsn_begin


@dataclass(slots=True)
class _Source:
    """What is known of one stream."""

    spans: deque[Span] = field(default_factory=deque)
    buffered: int = 0
    next: int = 0
    """LLSN that comes next; 0 while the stream is entered by GLSN."""
    complete: int = 0
    asked: bool = False
    gone: bool = False
    """Whether the log has it no longer."""


class Merge:
    """Positions ``begin`` to ``end`` of a log, for ever without an ``end``."""

    def __init__(
        self,
        streams: Iterable[int],
        begin: int,
        end: int | None = None,
        *,
        credit_bytes: int = 4 << 20,
    ) -> None:
        """Start at ``begin``; at most about ``credit_bytes`` are kept per stream."""
        self.position = begin
        self.end = end
        self._part = max(credit_bytes // _PARTS, min(credit_bytes, _PART_BYTES_MIN))
        self._buffered_max = credit_bytes - self._part
        self._sources = {stream: _Source() for stream in streams}

    @property
    def done(self) -> bool:
        """Whether everything was passed on."""
        return self.end is not None and self.position >= self.end

    @property
    def streams(self) -> frozenset[int]:
        """The streams that are merged."""
        return frozenset(self._sources)

    def extend(self, streams: Iterable[int]) -> None:
        """Merge these streams as well: the log got them."""
        for stream in streams:
            self._sources.setdefault(stream, _Source())

    def forget(self, streams: Iterable[int]) -> None:
        """Ask no more for streams that the log has no longer: all of it is trimmed.

        What is buffered is passed on as long as it comes next.
        """
        for stream in streams:
            source = self._sources.get(stream)
            if source is not None:
                source.gone = True
                if not source.spans:
                    del self._sources[stream]

    def wants(self) -> list[Want]:
        """Return what to read now; it counts as asked for until `feed` or `lost`."""
        if self.done:
            return []
        wanted = []
        for stream, source in self._sources.items():
            full = source.buffered > self._buffered_max
            if source.asked or full or source.gone or self._is_over(source):
                continue
            source.asked = True
            by_glsn = not source.next
            begin = self.position if by_glsn else source.next
            wanted.append(Want(stream, begin, by_glsn, self._part))
        return wanted

    def _is_over(self, source: _Source) -> bool:
        return self.end is not None and source.complete >= self.end - 1

    def lost(self, stream: int) -> None:
        """Take note that no answer will come: it may be asked for again."""
        if (source := self._sources.get(stream)) is not None:
            source.asked = False

    def enter(self, stream: int) -> None:
        """Enter a stream by GLSN again, because its next LLSN was trimmed."""
        if stream in self._sources:
            self._sources[stream] = _Source()

    def feed(self, records: Records, payload: memoryview) -> None:
        """Take an answer.

        Raises:
            RemoteProtocolError: it does not follow what came before.
        """
        spans = spans_of(records, payload)
        if (source := self._sources.get(records.stream)) is None:
            return
        source.asked = False
        for span in spans:
            self._keep(source, span)
        if not spans and not source.next:
            # Nothing at or behind the position yet: the LLSN that follows is known.
            source.next = records.next
        source.complete = max(source.complete, records.complete)

    def _keep(self, source: _Source, span: Span) -> None:
        end = span.llsn + span.count
        if not source.next:
            behind = min(span.count, max(0, self.position - span.glsn))
            span = span.after(behind)
        elif span.llsn > source.next:
            msg = f"stream {span.stream} goes on at {span.llsn}, not {source.next}"
            raise RemoteProtocolError(msg)
        elif span.llsn < source.next:
            span = span.after(min(span.count, source.next - span.llsn))
        if end > source.next:
            source.next = end
        if span.count:
            source.spans.append(span)
            source.buffered += len(span.data)

    def take(self) -> list[Span]:
        """Return the spans that come next, in order.

        Raises:
            MergeGapError: no stream has the next position or can still deliver it.
        """
        taken: list[Span] = []
        while not self.done and (source := self._at_position()) is not None:
            span = source.spans.popleft()
            source.buffered -= len(span.data)
            if self.end is not None:
                span = span.before(self.end)
            self.position = span.glsn + span.count
            taken.append(span)
        if not taken:
            self.check_dense()
        return taken

    def _at_position(self) -> _Source | None:
        for source in self._sources.values():
            if source.spans and source.spans[0].glsn <= self.position:
                if source.spans[0].glsn < self.position:
                    msg = f"position {source.spans[0].glsn} came twice"
                    raise RemoteProtocolError(msg)
                return source
        return None

    def check_dense(self) -> None:
        """Refuse to wait for a position that no stream can still deliver.

        Raises:
            MergeGapError: the next position is such a one.
        """
        if self.done or not self._sources:
            return
        if all(
            s.spans or s.gone or s.complete >= self.position
            for s in self._sources.values()
        ):
            raise MergeGapError(
                f"position {self.position} is in none of the {len(self._sources)} "
                "streams of the log: committed records are missing"
            )
