"""Logs as Python sequences: ``log[-1]``, ``log[a:b]``, ``reversed(log)``.

*Theory of operation.* An index is a position, so it counts from 1, or, if it is
negative, from the end: -1 is the last record. A slice is a view: it remembers which
positions it stands for and reads them when somebody iterates, batch by batch. So a
slice of a log of any size costs nothing and fits memory; ``list(log[-10:])`` makes a
list. (`range`, `memoryview` and NumPy arrays are sliced in the same way.)

A slice is cut to what the log has, as Python does it. One thing is refused: positions
that were trimmed and are named by number. Leaving them out would look as if nothing had
ever been there.

Pure, but for the log that it is given.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, overload

from braidlog.errors import InvalidArgumentError, PositionError, TrimmedError
from braidlog.store.arguments import checked_int, checked_position

if TYPE_CHECKING:
    from braidlog._native import Record


class Sliceable(Protocol):
    """What a slice needs of a log."""

    @property
    def name(self) -> str:
        """Name of the log."""

    def _positions(self) -> range: ...

    def get(self, position: int) -> Record:
        """Return a record."""

    def read(
        self,
        begin: int | None = None,
        end: int | None = None,
        *,
        reverse: bool = False,
    ) -> Iterator[Record]:
        """Iterate over records."""


class AsyncSliceable(Protocol):
    """What a slice needs of a log for asyncio."""

    @property
    def name(self) -> str:
        """Name of the log."""

    async def _positions(self) -> range: ...

    async def get(self, position: int) -> Record:
        """Return a record."""

    def read(
        self,
        begin: int | None = None,
        end: int | None = None,
        *,
        reverse: bool = False,
    ) -> AsyncIterator[Record]:
        """Iterate over records."""


@dataclass(frozen=True, slots=True)
class Span:
    """Positions ``begin`` to ``end``, and whether the last one comes first."""

    begin: int
    end: int
    reverse: bool = False

    def __len__(self) -> int:
        """Return the number of positions."""
        return self.end - self.begin

    def part(self, wanted: slice) -> Span:
        """Return what a slice takes of it, counted from 0 as in every sequence."""
        step = _step(wanted)
        start, stop, _ = wanted.indices(len(self))
        if step < 0:
            start, stop = stop + 1, start + 1
        stop = max(start, stop)
        if self.reverse:
            begin, end = self.end - stop, self.end - start
        else:
            begin, end = self.begin + start, self.begin + stop
        return Span(begin, end, self.reverse != (step < 0))


def place_of(index: object, there: range) -> int:
    """Return the position that an index means in a log that has ``there``.

    Raises:
        TypeError: it is no integer.
        PositionError: it is 0, or the log has not so many records.
    """
    number = checked_int(index, "log index")
    if number >= 0:
        return checked_position(number)
    if number < -len(there):
        have = f"{len(there)} record{'' if len(there) == 1 else 's'}"
        raise PositionError(f"log[{number}] does not exist: the log has {have}")
    return there.stop + number


def span_of(wanted: slice, there: range) -> Span:
    """Return the positions that a slice means in a log that has ``there``.

    Raises:
        TypeError: a bound is no integer.
        InvalidArgumentError: the step is neither 1 nor -1.
        PositionError: it begins at 0.
        TrimmedError: it names positions that were trimmed.
    """
    if _step(wanted) < 0:
        # From ``start`` down to the position above ``stop``.
        floor = there.start - 1
        begin = _bound(wanted.stop, there, floor, floor) + 1
        end = _bound(wanted.start, there, floor, there.stop - 1) + 1
    else:
        begin = _bound(wanted.start, there, there.start, there.start)
        end = _bound(wanted.stop, there, there.start, there.stop)
        if wanted.start is not None and begin == 0:
            checked_position(begin)
    end = min(end, there.stop)
    if begin >= end:
        return Span(there.stop, there.stop, _step(wanted) < 0)
    if begin < there.start:
        msg = f"position {begin} was trimmed: the log begins at {there.start}"
        raise TrimmedError(msg, first=there.start)
    return Span(begin, end, _step(wanted) < 0)


def _step(wanted: slice) -> int:
    step = 1 if wanted.step is None else checked_int(wanted.step, "slice step")
    if step not in (1, -1):
        msg = f"the step of a slice of a log must be 1 or -1, got {step}"
        raise InvalidArgumentError(msg)
    return step


def _bound(index: object, there: range, floor: int, default: int) -> int:
    if index is None:
        return default
    number = checked_int(index, "slice index")
    # Counted from the end a bound stops where the log does: the last ten may be three.
    return number if number >= 0 else max(there.stop + number, floor)


class LogSlice(Sequence["Record"]):
    """Part of a log: a view that reads its records when it is iterated.

    Which positions it stands for is fixed when it is made. Trimming may take them away;
    then reading them raises `TrimmedError`. Iterate as often as you like.
    """

    def __init__(self, log: Sliceable, span: Span) -> None:
        """Bind to positions of a log; users write ``log[a:b]``."""
        self._log = log
        self._span = span

    def __repr__(self) -> str:
        """Show the log and the positions."""
        return _shown("LogSlice", self._log.name, self._span)

    @property
    def begin(self) -> int:
        """First position."""
        return self._span.begin

    @property
    def end(self) -> int:
        """One past the last position."""
        return self._span.end

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._span)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> LogSlice: ...
    def __getitem__(self, index: int | slice) -> Record | LogSlice:
        """Return a record, counted from 0 as in every sequence, or a part."""
        if isinstance(index, slice):
            return LogSlice(self._log, self._span.part(index))
        number = checked_int(index, "slice index")
        span = self._span
        if not -len(span) <= number < len(span):
            msg = f"index {number} is out of range: the slice has {len(span)} records"
            error = PositionError(msg)
            error.hint = "Indices of a slice begin at 0, as in a list"
            raise error
        number %= len(span)
        return self._log.get(
            span.end - 1 - number if span.reverse else span.begin + number
        )

    def __iter__(self) -> Iterator[Record]:
        """Iterate over the records."""
        return self._read(reverse=self._span.reverse)

    def __reversed__(self) -> Iterator[Record]:
        """Iterate over the records, the last one first."""
        return self._read(reverse=not self._span.reverse)

    def _read(self, *, reverse: bool) -> Iterator[Record]:
        span = self._span
        # Nothing can be read at any time, also where everything was trimmed meanwhile.
        return (
            self._log.read(span.begin, span.end, reverse=reverse) if span else iter(())
        )


class AsyncLogSlice:
    """Part of a log for asyncio: ``async for record in log[-10:]``.

    Which positions it stands for is found out whenever an iteration begins.
    """

    def __init__(self, log: AsyncSliceable, wanted: slice) -> None:
        """Bind to a slice of a log; users write ``log[a:b]``."""
        _step(wanted)
        self._log = log
        self._wanted = wanted

    def __repr__(self) -> str:
        """Show the log and the slice."""
        bounds = (self._wanted.start, self._wanted.stop, self._wanted.step)
        shown = ":".join("" if bound is None else str(bound) for bound in bounds)
        return f"<AsyncLogSlice {self._log.name!r} [{shown.removesuffix(':')}]>"

    def __aiter__(self) -> AsyncIterator[Record]:
        """Iterate over the records."""
        return self._read(backwards=False)

    def __reversed__(self) -> AsyncIterator[Record]:
        """Iterate over the records, the last one first."""
        return self._read(backwards=True)

    async def _read(self, *, backwards: bool) -> AsyncIterator[Record]:
        span = span_of(self._wanted, await self._log._positions())
        reverse = span.reverse != backwards
        if not span:
            return
        async for record in self._log.read(span.begin, span.end, reverse=reverse):
            yield record


class Indexed:
    """What makes a log a sequence; a log has it as its base."""

    @overload
    def __getitem__(self: Sliceable, index: int) -> Record: ...
    @overload
    def __getitem__(self: Sliceable, index: slice) -> LogSlice: ...
    def __getitem__(self: Sliceable, index: int | slice) -> Record | LogSlice:
        """Return the record at a position, or a view of a range of them.

        -1 is the last record. A slice ``log[a:b]`` has positions ``a`` to ``b``,
        half-open; it reads nothing before it is iterated, and fits memory whatever it
        covers. Its step is 1 or -1.

        Raises:
            PositionError: 0, or further back than the log has records.
            TrimmedError: the position, or one of the slice, was trimmed.
            BeyondEndError: the position is not written yet. Slices are cut there.
        """
        if isinstance(index, slice):
            return LogSlice(self, span_of(index, self._positions()))
        number = checked_int(index, "log index")
        return self.get(place_of(number, self._positions()) if number < 0 else number)

    def __reversed__(self: Sliceable) -> Iterator[Record]:
        """Iterate over everything that can be read now, the last record first."""
        return self.read(reverse=True)


class AsyncIndexed:
    """What makes a log for asyncio a sequence: ``await log[-1]``."""

    @overload
    def __getitem__(self: AsyncSliceable, index: int) -> Awaitable[Record]: ...
    @overload
    def __getitem__(self: AsyncSliceable, index: slice) -> AsyncLogSlice: ...
    def __getitem__(
        self: AsyncSliceable, index: int | slice
    ) -> Awaitable[Record] | AsyncLogSlice:
        """Return the record at a position, to be awaited, or a view of a range.

        As `Log.__getitem__`; which positions a slice has is found out when an iteration
        begins: ``async for record in log[-10:]``.
        """
        if isinstance(index, slice):
            return AsyncLogSlice(self, index)
        return _get(self, checked_int(index, "log index"))

    def __reversed__(self: AsyncSliceable) -> AsyncIterator[Record]:
        """Iterate over everything that can be read now, the last record first."""
        return self.read(reverse=True)


async def _get(log: AsyncSliceable, index: int) -> Record:
    there = await log._positions() if index < 0 else range(0)
    return await log.get(place_of(index, there))


def _shown(kind: str, name: str, span: Span) -> str:
    way = ", the last one first" if span.reverse else ""
    return f"<{kind} {name!r} {span.begin}..{span.end}{way}>"
