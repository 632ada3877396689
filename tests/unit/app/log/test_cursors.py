"""Which hosts a log knows, and which of them still count."""

from __future__ import annotations

from braidlog.app.log.cursors import KnownHost, counting, known, signs
from braidlog.wire.results import CursorRow

A, B, C = ("a" * 32, "b" * 32, "c" * 32)
ROWS = [
    CursorRow(f"app-{A}", 50, True, 1_000, 60),
    CursorRow(f"snapshot-{A}", 41, False, 900, 600),
    # Gone for longer than its lease; what it has of snapshots holds on.
    CursorRow(f"app-{B}", 30, True, 500, 60),
    CursorRow(f"snapshot-{B}", 21, False, 500, 600),
    # Of an older version: for ever.
    CursorRow(f"snapshot-{C}", 11, False, 100, 0),
    CursorRow("app-reader", 5, True, 1, 0),
    CursorRow(f"app-{A}x", 5, True, 1, 0),
]


def test_hosts_are_told_from_other_readers() -> None:
    assert known(ROWS, 1_050) == [
        KnownHost(A, 1_000, 50, live=True, snapshot=40, counts=True),
        KnownHost(B, 500, 30, live=False, snapshot=20, counts=True),
        KnownHost(C, 100, None, live=False, snapshot=10, counts=True),
    ]


def test_a_lease_ends() -> None:
    assert [each.counts for each in known(ROWS, 1_100)] == [True, False, True]
    assert [each.live for each in known(ROWS, 1_060)] == [False, False, False]
    assert f"snapshot-{B}" in counting(ROWS, 1_099)
    assert f"snapshot-{B}" not in counting(ROWS, 1_100)


def test_signs_of_hosts() -> None:
    found = signs(ROWS, 1_050)
    assert found.keys() == {bytes.fromhex(A), bytes.fromhex(B)}
    assert [each.live for each in found.values()] == [True, False]
    assert found[bytes.fromhex(A)].touched == 1_000
