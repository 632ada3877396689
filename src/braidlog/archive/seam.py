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

from braidlog.errors import BeyondEndError, InvalidArgumentError, TrimmedError

__all__ = ["Piece", "bounds", "missing", "next_piece"]


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
        msg = f"position {begin} is not written yet"
        raise BeyondEndError(msg, next=log.stop)
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
