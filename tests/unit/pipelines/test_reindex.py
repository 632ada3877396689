"""Side files that were lost come back to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

import braidlog
from braidlog.errors import NotFoundError
from braidlog.pipelines.reindex_job import reindex
from braidlog.store import inspect as files


def filled(path: Path) -> dict[Path, bytes]:
    """Fill several segments; return their side files."""
    with braidlog.open(path, segment_bytes=64 << 10) as node:
        log = node.create_log("orders")
        for number in range(300):
            log.append(b"%d" % number * 300, key=b"k")
    return {each: each.read_bytes() for each in sorted((path / "wal").glob("*.idx"))}


def test_lost_side_files_are_what_they_were(tmp_path: Path) -> None:
    sides = filled(tmp_path / "a") | filled(tmp_path / "b")
    one, two, three, *whole = sides
    one.unlink()
    two.write_bytes(b"\x01" + sides[two][1:])
    three.write_bytes(sides[three][:-1])
    times = [path.stat().st_mtime_ns for path in whole]
    directories = [tmp_path / "a", tmp_path / "b"]
    report = reindex(directories, tmp_path / "out", workers=1)
    assert {path: path.read_bytes() for path in sides} == sides
    assert report.figures["side_files_written"] == report.tasks == 3
    assert [path.stat().st_mtime_ns for path in whole] == times
    assert not list(tmp_path.rglob("*.tmp"))
    for directory in directories:
        assert files.verify(directory).findings == []
    again = reindex(directories, tmp_path / "out", workers=1)
    assert (again.tasks, again.published["proved"]) == (0, [])


def test_of_a_damaged_segment_nothing_is_made(tmp_path: Path) -> None:
    sides = filled(tmp_path / "data")
    lost = next(iter(sides))
    lost.unlink()
    number = int(lost.stem)
    [row] = [r for r in files.segments(tmp_path / "data") if r.number == number]
    slot = Path(row.path)
    slot = slot if slot.is_absolute() else tmp_path / "data" / slot
    damaged = bytearray(slot.read_bytes())
    damaged[len(damaged) // 2] ^= 4
    slot.write_bytes(damaged)
    report = reindex([tmp_path / "data"], tmp_path / "out", workers=1)
    assert not lost.exists()
    assert report.figures == {"segments_damaged": 1}
    assert slot.name in report.published["findings"][0]


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        reindex([tmp_path / "nothing"], tmp_path / "out", workers=1)
