"""Copies of a log that has one fault: it is found, where it is, and nothing else is."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from braidlog.pipelines.audit_compare import CopyFinding, Holding, Rows, compare

Row = tuple[int, int, int, int]
"""Position, stream, LLSN and hash."""

seeds = st.integers(0, 1 << 32)


def a_log(draw: random.Random, records: int, streams: int) -> list[Row]:
    """Return records that streams take in turns, each with LLSNs of its own."""
    next_llsn = dict.fromkeys(range(1, streams + 1), 1)
    begin = draw.randrange(1, 5)
    rows = []
    for position in range(begin, begin + records):
        stream = draw.randrange(1, streams + 1)
        rows.append((position, stream, next_llsn[stream], draw.getrandbits(62)))
        next_llsn[stream] += 1
    return rows


def told(name: str, rows: list[Row], draw: random.Random, *, whole: bool) -> Rows:
    """Return a copy as an audit reads it: in pieces, by stream if it is a node's."""
    held = {stream for _, stream, _, _ in rows}
    pieces: list[list[Row]] = []
    holdings = []
    if whole:
        cut = draw.randrange(1, len(rows) + 1)
        # Files have ranges of their own: no two rows change places between them.
        while cut < len(rows) and rows[cut - 1][0] > rows[cut][0]:
            cut += 1
        pieces = [rows[:cut], rows[cut:]]
        positions = [row[0] for row in rows]
        holdings = [Holding(0, min(positions), max(positions))]
    else:
        for stream in sorted(held):
            mine = [row for row in rows if row[1] == stream]
            pieces.append(mine)
            llsns = [row[2] for row in mine]
            holdings.append(Holding(stream, min(llsns), max(llsns)))
    columns: Any = tuple(
        tuple(np.array(column, np.int64) for column in zip(*piece, strict=True))
        for piece in pieces
        if piece
    )
    return Rows(name, columns, tuple(holdings))


def audited(copies: list[list[Row]], draw: random.Random) -> list[CopyFinding]:
    """Compare copies: node 0, node 1 and an archive, which is in the order of all."""
    names = ("node 0", "node 1", "archive")
    begin = min(row[0] for row in copies[0])
    end = max(row[0] for rows in copies for row in rows) + 1
    rows = [
        told(name, each, draw, whole=name == "archive")
        for name, each in zip(names, copies, strict=True)
    ]
    return compare(rows, begin, end)


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_in_copies_of_one_log_nothing_is_found(seed: int) -> None:
    """Also where they are of different length, and nodes hold some streams only."""
    draw = random.Random(seed)
    rows = a_log(draw, draw.randrange(2, 80), draw.randrange(1, 5))
    copies = [rows, rows[: draw.randrange(1, len(rows) + 1)], rows]
    if draw.random() < 0.5:
        mine = [row for row in rows if row[1] != 1]
        copies[1] = mine or rows
    assert audited(copies, draw) == []


FAULTS = {
    "a record that one copy lacks": "missing",
    "some that one copy lacks": "missing",
    "a record that nobody has": "missing",
    "a record that is there twice": "doubled",
    "a record at a second position": "doubled",
    "another record": "diverged",
    "another record in the archive": "diverged",
    "two records in each other's place": "swapped",
    "two rows in the wrong order": "swapped",
    "a record of another stream": "diverged",
}


@pytest.mark.parametrize("fault", FAULTS)
@settings(max_examples=25, deadline=None)
@given(seeds)
def test_the_one_fault_is_found_where_it_is(fault: str, seed: int) -> None:
    draw = random.Random(seed)
    rows = a_log(draw, 60, draw.randrange(1, 4))
    copies = [list(rows), list(rows), list(rows)]
    at = draw.randrange(20, 40)
    position, stream, llsn, digest = rows[at]
    # A copy may begin later and end earlier: what it lacks there is no fault.
    assume(any(row[1] == stream for row in rows[:at]))
    assume(any(row[1] == stream for row in rows[at + 12 :]))
    bad, name = copies[1], "node 1"
    match fault:
        case "a record that one copy lacks":
            del bad[at]
        case "some that one copy lacks":
            gone = [row for row in rows[at : at + 12] if row[1] == stream]
            copies[1] = [row for row in rows if row not in gone]
        case "a record that nobody has":
            copies, name = [[row for row in rows if row[0] != position]] * 3, ""
        case "a record that is there twice":
            bad.insert(at, bad[at])
        case "a record at a second position":
            end = rows[-1][0] + 1
            copies = [[*each, (end, 1, _last(rows) + 1, 7)] for each in copies]
            copies[1][-1] = (end, stream, llsn, digest)
            position = end
        case "another record":
            bad[at] = (position, stream, llsn, digest ^ 1)
        case "another record in the archive":
            copies[2][at], name = (position, stream, llsn, digest ^ 1), "archive"
        case "two records in each other's place":
            other = rows[at + 1]
            bad[at] = (position, stream, llsn, other[3])
            bad[at + 1] = (*other[:3], digest)
        case "two rows in the wrong order":
            copies[2][at], copies[2][at + 1] = rows[at + 1], rows[at]
            name = "archive"
        case "a record of another stream":
            bad[at] = (position, 9, 1, digest)
    found = audited(copies, draw)
    kinds = [each for each in found if each.kind == FAULTS[fault]]
    assert kinds, found
    assert kinds[0].copy == name
    assert kinds[0].position == position
    assert {each.copy for each in found} <= {name, ""}


def _last(rows: list[Row]) -> int:
    return max((row[2] for row in rows if row[1] == 1), default=0)
