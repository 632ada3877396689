"""What copies of a log say of the same positions, compared. Pure.

Each copy is told as rows: position, stream, LLSN and a hash of the record, in the order
in which it stores them. Whatever a fault does to a record, it shows here as one of:

=========== ==========================================================================
missing     a position that no copy has, or that one does not have between others
doubled     a position that a copy has twice, or a record at a second position
swapped     records whose places were exchanged, or that are not in order
diverged    a copy says of a position something else than most of the others
=========== ==========================================================================

Damaged bytes (``damaged``) are found by who reads the copy.

Invariants: a position is dense in the union of all copies; LLSNs of a stream rise with
positions by exactly one; two copies of a position are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

FINDINGS_MAX: Final = 100
"""Of each kind and copy in one range: the first ones are kept, all are counted."""

Array = Any


@dataclass(frozen=True, slots=True)
class CopyFinding:
    """Something that is not as it should be."""

    kind: str
    copy: str
    """Which copy; empty where it is about all of them."""
    position: int
    """The first bad one; 0 where no position is known."""
    problem: str
    count: int = 1
    """Positions, from the first on, in one piece."""
    stream: int = 0
    llsn: int = 0


@dataclass(frozen=True, slots=True)
class Holding:
    """What a copy has of a stream: LLSNs, from the first up to the last.

    The stream 0 stands for the whole log, and its LLSNs for positions.
    """

    stream: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one copy in a range of positions, in stored order, and what it holds."""

    copy: str
    pieces: tuple[tuple[Array, Array, Array, Array], ...]
    """Position, stream, LLSN and hash; pieces are ordered, each for itself."""
    holdings: tuple[Holding, ...]


def compare(copies: Sequence[Rows], begin: int, end: int) -> list[CopyFinding]:
    """Compare what copies say of positions ``begin`` to ``end``.

    Every position of the range is expected in at least one of them.
    """
    found: list[CopyFinding] = []
    columns: list[tuple[Array, ...]] = []
    for number, rows in enumerate(copies):
        found += _ordered(rows)
        kept = _once(rows)
        found += _dense(rows.copy, kept)
        columns.append((*kept, np.full(len(kept[0]), number)))
    merged = [np.concatenate([each[i] for each in columns]) for i in range(5)]
    truth, bad = _truth(merged)
    found += _nowhere(truth[0], begin, end)
    found += _told_otherwise(copies, merged, bad)
    for rows, kept in zip(copies, columns, strict=True):
        found += _lacking(rows, kept[0], truth)
    return sorted(found, key=lambda each: (each.position, each.copy, each.kind))


def _ordered(rows: Rows) -> Iterator[CopyFinding]:
    """Find what is not in the order of positions, or is there twice, in one piece."""
    faults = (
        ("doubled", np.equal, "is there twice"),
        ("swapped", np.less, "is behind a later one"),
    )
    for piece in rows.pieces:
        steps = np.diff(piece[0])
        for kind, holds, what in faults:
            for at in np.flatnonzero(holds(steps, 0))[:FINDINGS_MAX]:
                problem = f"position {piece[0][at + 1]} {what}"
                yield _at(rows.copy, piece, at + 1, kind, problem)


def _once(rows: Rows) -> tuple[Array, Array, Array, Array]:
    """Return the rows of all pieces by position; of one that is there twice, one."""
    if not rows.pieces:
        empty = np.empty(0, np.int64)
        return empty, empty, empty, empty
    columns = [np.concatenate([piece[i] for piece in rows.pieces]) for i in range(4)]
    _, first = np.unique(columns[0], return_index=True)
    return tuple(column[first] for column in columns)  # type: ignore[return-value]


def _dense(copy: str, rows: tuple[Array, ...]) -> Iterator[CopyFinding]:
    """Find LLSNs that are there twice, or do not rise where positions do."""
    positions, streams, llsns, _ = rows
    order = np.lexsort((positions, llsns, streams))
    same = (np.diff(streams[order]) == 0) & (np.diff(llsns[order]) == 0)
    again = order[np.flatnonzero(same) + 1]
    for row in again[:FINDINGS_MAX]:
        problem = (
            f"LLSN {llsns[row]} of stream {streams[row]} occurs at a second position"
        )
        yield _at(copy, rows, row, "doubled", problem)
    order = np.lexsort((positions, streams))
    order = order[~np.isin(order, again)]
    falls = (np.diff(streams[order]) == 0) & (np.diff(llsns[order]) < 0)
    for at in np.flatnonzero(falls)[:FINDINGS_MAX]:
        row, before = order[at + 1], llsns[order[at]]
        problem = f"LLSN {llsns[row]} of stream {streams[row]} comes after {before}"
        yield _at(copy, rows, row, "swapped", problem)


def _at(
    copy: str, rows: tuple[Array, ...], row: int, kind: str, problem: str
) -> CopyFinding:
    positions, streams, llsns, _ = rows
    return CopyFinding(
        kind,
        copy,
        int(positions[row]),
        problem,
        stream=int(streams[row]),
        llsn=int(llsns[row]),
    )


def _truth(merged: Sequence[Array]) -> tuple[tuple[Array, Array, Array], Array]:
    """Return position, stream and LLSN of each position, and those told in two ways."""
    positions = merged[0]
    if not len(positions):
        return (positions, positions, positions), positions
    order = np.argsort(positions, kind="stable")
    sorted_positions = positions[order]
    starts = np.flatnonzero(np.diff(sorted_positions, prepend=sorted_positions[0] - 1))
    differs = np.zeros(len(starts), bool)
    for column in merged[1:4]:
        told = column[order]
        least = np.minimum.reduceat(told, starts)
        differs |= least != np.maximum.reduceat(told, starts)
    first = order[starts]
    truth = (positions[first], merged[1][first], merged[2][first])
    return truth, sorted_positions[starts][differs]


def _nowhere(positions: Array, begin: int, end: int) -> Iterator[CopyFinding]:
    """Find positions that no copy has."""
    edges = np.concatenate([[begin - 1], positions, [end]])
    for at in np.flatnonzero(np.diff(edges) > 1)[:FINDINGS_MAX]:
        first, count = int(edges[at]) + 1, int(edges[at + 1] - edges[at]) - 1
        problem = f"no copy has positions {first} to {first + count - 1}"
        yield CopyFinding("missing", "", first, problem, count)


def _lacking(
    rows: Rows, positions: Array, truth: tuple[Array, Array, Array]
) -> Iterator[CopyFinding]:
    """Find what a copy does not have between the first and last that it has."""
    for holding in rows.holdings:
        whole = holding.stream == 0
        numbers = truth[0] if whole else truth[2]
        theirs = (numbers >= holding.first) & (numbers <= holding.last)
        if not whole:
            theirs &= truth[1] == holding.stream
        theirs &= ~np.isin(truth[0], positions, assume_unique=True)
        places, llsns = truth[0][theirs], numbers[theirs]
        runs = np.split(np.arange(len(llsns)), np.flatnonzero(np.diff(llsns) != 1) + 1)
        for run in (each for each in runs[:FINDINGS_MAX] if len(each)):
            position, llsn = int(places[run[0]]), int(llsns[run[0]])
            last = llsn + len(run) - 1
            what = f"LLSNs {llsn} to {last} of stream {holding.stream}"
            if whole:
                what, llsn = f"positions {llsn} to {last}", 0
            yield CopyFinding(
                "missing",
                rows.copy,
                position,
                f"{what} are missing",
                len(run),
                holding.stream,
                llsn,
            )


_Told = tuple[int, int, int]
"""Stream, LLSN and hash."""


def _told_otherwise(
    copies: Sequence[Rows], merged: Sequence[Array], bad: Array
) -> Iterator[CopyFinding]:
    """Find who says something else than most of the others; there are few of these."""
    told: dict[int, dict[int, _Told]] = {}
    chosen = np.flatnonzero(np.isin(merged[0], bad[: FINDINGS_MAX * len(copies)]))
    for at in chosen:
        row: _Told = (int(merged[1][at]), int(merged[2][at]), int(merged[3][at]))
        told.setdefault(int(merged[0][at]), {})[int(merged[4][at])] = row
    agreed = {position: _agreed(rows) for position, rows in told.items()}
    contents = {row[2]: at for at, row in agreed.items() if row is not None}
    for position, rows in sorted(told.items()):
        most = agreed[position]
        for number, row in sorted(rows.items()):
            if row == most:
                continue
            yield _difference(copies[number].copy, position, row, most, contents)


def _agreed(rows: Mapping[int, _Told]) -> _Told | None:
    """Return what most copies say, None where there is no such majority."""
    [(row, count), *others] = Counter(rows.values()).most_common()
    return None if others and others[0][1] == count else row


def _difference(
    copy: str,
    position: int,
    row: _Told,
    most: _Told | None,
    contents: Mapping[int, int],
) -> CopyFinding:
    kind, problem = "diverged", "its record is another one than the other copies have"
    elsewhere = contents.get(row[2])
    if most is None:
        problem = "copies differ and none has a majority: compare them"
    elif row[2] == most[2]:
        problem = (
            f"this copy says LLSN {row[1]} of stream {row[0]}, the others say "
            f"LLSN {most[1]} of stream {most[0]}"
        )
    elif elsewhere is not None and elsewhere != position:
        kind, problem = "swapped", f"its record is the one of position {elsewhere}"
    return CopyFinding(kind, copy, position, problem, stream=row[0], llsn=row[1])
