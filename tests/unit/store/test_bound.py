"""The bound on a log's size belongs to the directory."""

from pathlib import Path

import braidlog

SEGMENT = 65536


def _bound(path: Path, wal_bytes_max: int | None = None) -> int:
    with braidlog.open(
        path, segment_bytes=SEGMENT, wal_bytes_max=wal_bytes_max
    ) as node:
        return node.stats().wal_bytes_max


def test_an_open_without_a_bound_keeps_the_stored_one(tmp_path: Path) -> None:
    path = tmp_path / "data"
    assert _bound(path, wal_bytes_max=9 * SEGMENT) == 9 * SEGMENT
    assert _bound(path) == 9 * SEGMENT
    assert _bound(path, wal_bytes_max=20 * SEGMENT) == 20 * SEGMENT
    assert _bound(path) == 20 * SEGMENT
    assert _bound(tmp_path / "other") == 64 << 30
