"""Where to read next: in the archive, or in the log.

Theory of operation: a log may be trimmed while somebody reads. So the question is asked
anew for every piece: what the log still has comes from the log, what it no longer has
from the archive. A reader that trimming overtakes in the middle of the log asks again
with the position that it has reached, and finds the records in the archive, because
nothing is trimmed before it is archived. Positions name records for ever, so nothing
can come twice or be missed at the seam.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from braidlog.errors import BeyondEndError, InvalidArgumentError, TrimmedError


@dataclass(frozen=True, slots=True)
class Piece:
    """Positions ``begin`` to ``end``, and whether the archive has them to give."""

    archived: bool
    begin: int
    end: int


def bounds(
    begin: int | None, end: int | None, log: range, archived: range
) -> tuple[int, int]:
    """Return what is to be read of a log that has an archive.

    Raises:
        InvalidArgumentError: a position below 0.
        BeyondEndError: ``begin`` is above the end of the log.
    """
    first = min(log.start, archived.start) if archived else log.start
    begin = first if begin is None else begin
    stop = log.stop if end is None else min(end, log.stop)
    if begin < 0 or stop < 0:
        raise InvalidArgumentError(f"positions begin at 1, got {min(begin, stop)}")
    if begin > log.stop:
        raise BeyondEndError(f"position {begin} is not written yet", next=log.stop)
    return begin, stop


def next_piece(position: int, end: int, first: int, archived: range) -> Piece | None:
    """Return what to read from a position on, up to ``end`` at most.

    ``first`` is the first position of the log. None: the archive, as it was looked at,
    does not have it all; look again, and then raise `missing`.
    """
    if position >= first:
        return Piece(False, position, end)
    # All that the log lacks has to be there before a part of it is given out.
    if position in archived and archived.stop >= min(first, end):
        return Piece(True, position, min(first, end))
    return None


def missing(position: int, first: int, archived: range, location: str) -> TrimmedError:
    """Return the error for positions that are neither in the log nor in the archive."""
    if position < archived.start:
        lacks, goes_on = (position, min(first, archived.start)), archived.start
    else:
        lacks, goes_on = (max(position, archived.stop), first), first
    if archived.stop < first:
        goes_on = first
    msg = (
        f"positions {lacks[0]} to {lacks[1] - 1} are lost: the archive at {location}"
        f" has {archived.start} to {archived.stop - 1}, and the log begins at {first}"
    )
    return TrimmedError(msg, first=goes_on)


class _Archive(Protocol):
    """An archive: what it has, and where it is."""

    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def location(self) -> str: ...


class SeamProgress:
    """How far a read of a log and its archive has come.

    The caller reads the piece that `next` names, tells `reached` how far it has come,
    and `finish` at the end of the piece. A read in reverse begins at the end.
    """

    def __init__(
        self, begin: int | None, end: int | None, log: range, archive: _Archive | None
    ) -> None:
        """Begin to read ``begin`` to ``end`` of a log that has ``log``.

        ``archive`` is None while nothing below the log is wanted.

        Raises:
            BeyondEndError: ``begin`` is above the end of the log.
        """
        self.archive = archive
        self.reverse = False
        self.begin, self.end = bounds(begin, end, log, self._archived())

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return self.begin < self.end

    def _archived(self) -> range:
        archive = self.archive
        return range(0) if archive is None else range(archive.begin, archive.end)

    def next(self, first: int) -> Piece | None:
        """Return what to read next of a log that begins at ``first``.

        None: the archive, as it was looked at, does not have it; look at it again.
        """
        if self.reverse and first < self.end:
            return Piece(False, max(self.begin, first), self.end)
        return next_piece(self.begin, self.end, first, self._archived())

    def required(self, first: int, archive: _Archive) -> Piece:
        """Return what to read next, with the archive as it was looked at again.

        Raises:
            TrimmedError: neither the log nor the archive has it.
        """
        self.archive = archive
        piece = self.next(first)
        if piece is None:
            raise missing(self.begin, first, self._archived(), archive.location)
        return piece

    def reached(self, position: int) -> None:
        """Note how far the read has come."""
        if self.reverse:
            self.end = position
        else:
            self.begin = position

    def finish(self, piece: Piece) -> None:
        """Note that a piece was read, which may have had nothing that is wanted."""
        self.reached(piece.begin if self.reverse else piece.end)

    def overtaken(self, piece: Piece, first: int) -> bool:
        """Tell whether trimming to ``first`` has taken what the piece had to give."""
        rest = piece.begin if self.reverse else self.begin
        return not piece.archived and rest < first
