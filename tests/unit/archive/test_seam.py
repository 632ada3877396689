"""Where the next record comes from, for every place of log and archive."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from braidlog.archive.seam import Piece, SeamProgress, bounds, missing, next_piece
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


@dataclass
class Files:
    """An archive that has some positions."""

    begin: int
    end: int
    location: str = "x"


def walked(walk: SeamProgress, firsts: Iterator[int]) -> list[int]:
    """Read one position after the other, while the log is trimmed."""
    seen: list[int] = []
    while walk:
        piece = walk.next(next(firsts))
        assert isinstance(piece, Piece)
        places = range(piece.begin, piece.end)
        for position in reversed(places) if walk.reverse else places:
            first = next(firsts)
            if not piece.archived and position < first:
                assert walk.overtaken(piece, first)
                break
            seen.append(position)
            walk.reached(position if walk.reverse else position + 1)
        else:
            walk.finish(piece)
    return seen


@pytest.mark.parametrize("reverse", [False, True])
def test_a_walk_sees_every_position_once_while_the_log_is_trimmed(
    reverse: bool,
) -> None:
    for step, first in itertools.product(range(1, 9), range(1, 8)):
        firsts = (min(8, first + number // step) for number in itertools.count())
        walk = SeamProgress(None, None, range(first, 9), Files(1, 8))
        walk.reverse = reverse
        expected = list(range(1, 9))
        if reverse:
            expected.reverse()
        assert walked(walk, firsts) == expected, (step, first)


def test_a_walk_looks_at_the_archive_again_before_it_says_what_is_missing() -> None:
    walk = SeamProgress(2, None, range(2, 9), None)
    walk.reached(3)
    assert walk.next(5) is None
    assert walk.required(5, Files(1, 5)) == Piece(True, 3, 5)
    with pytest.raises(TrimmedError, match="positions 4 to 4 are lost"):
        SeamProgress(2, None, range(2, 9), None).required(5, Files(1, 4))
