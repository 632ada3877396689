"""Where the next record comes from, for every place of log and archive."""

from __future__ import annotations

import itertools

import pytest

from braidlog.archive.seam import bounds, missing, next_piece
from braidlog.errors import TrimmedError

ENDS = range(1, 7)


def test_every_position_comes_once_or_is_said_to_be_gone() -> None:
    for begin, end, first, a, b in itertools.product(ENDS, repeat=5):
        archived = range(a, b)
        there = set(archived) | set(range(first, 10))
        wanted = range(begin, end)
        seen: list[int] = []
        position, error = begin, None
        while position < end and error is None:
            piece = next_piece(position, end, first, archived)
            if piece is None:
                error = missing(position, first, archived, "x")
                break
            assert piece.begin == position < piece.end <= end
            source = archived if piece.archived else range(first, 10)
            assert set(range(piece.begin, piece.end)) <= set(source)
            seen += range(piece.begin, piece.end)
            position = piece.end
        if set(wanted) <= there:
            assert seen == list(wanted), (begin, end, first, archived)
        else:
            # Before anything is given out, and with a position from which it goes on.
            assert error is not None
            assert seen == []
            assert set(range(error.first, 10)) <= there
            gone = set(range(begin, max(ENDS))) - there
            assert str(min(gone)) in error.message


def test_the_bounds_reach_into_the_archive() -> None:
    assert bounds(None, None, range(5, 9), range(2, 6)) == (2, 9)
    assert bounds(None, 7, range(5, 9), range(0)) == (5, 7)
    assert bounds(3, 99, range(5, 9), range(4, 6)) == (3, 9)
    assert isinstance(missing(3, 5, range(4, 6), "x"), TrimmedError)
    with pytest.raises(ValueError, match="begin at 1"):
        bounds(-1, None, range(5, 9), range(2, 6))
