"""Each promise of docs/guarantees.md has tests in tests/evidence.md; some are here."""

import re
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path

import pytest

import braidlog
from braidlog.errors import (
    CorruptionError,
    InvalidArgumentError,
    LogError,
    LogFullError,
    TooLargeError,
    TrimmedError,
)
from docs.documents import ROOT, has_test

GUARANTEES = ROOT / "docs" / "guarantees.md"
EVIDENCE = ROOT / "tests" / "evidence.md"
NAMED = re.findall(r"`([\w/]+\.(?:rs|py))::(\w+)`", EVIDENCE.read_text())
SEGMENT = 64 << 10


def small(path: Path, segments: int = 12) -> braidlog.Store:
    return braidlog.open(path, segment_bytes=SEGMENT, wal_bytes_max=segments * SEGMENT)


def test_the_named_tests_exist() -> None:
    gone = [each for each in NAMED if not has_test(*each)]
    assert gone == [], "tests/evidence.md names tests that do not exist"


def sections(document: Path) -> dict[str, str]:
    """Return the text under each heading of the second level."""
    parts = document.read_text().split("\n## ")[1:]
    return dict(part.split("\n", 1) for part in parts)


def test_every_promise_names_a_test() -> None:
    evidence = sections(EVIDENCE)
    assert list(evidence) == list(sections(GUARANTEES)), (
        "tests/evidence.md has the sections of docs/guarantees.md, in its order"
    )
    assert [name for name, text in evidence.items() if "::" not in text] == []


SHOWING = [
    "native/core/src/wal/tests/*.rs",
    "tests/process/test_*.py",
    "tests/cluster/test_*.py",
    "tests/property/test_*.py",
    "tests/conformance/test_*.py",
    "tests/unit/store/test_*.py",
]


def test_no_file_of_tests_that_show_guarantees_is_left_out() -> None:
    left_out = []
    for pattern in SHOWING:
        files = {
            str(path.relative_to(ROOT))
            for path in ROOT.glob(pattern)
            if re.search(r"#\[test\]|def test_", path.read_text())
        }
        assert files, pattern
        left_out += sorted(files - {file for file, _ in NAMED})
    assert left_out == [], "name a test of each in a section of tests/evidence.md"


def test_no_test_is_named_twice_for_one_guarantee() -> None:
    for name, text in sections(EVIDENCE).items():
        rows = re.findall(r"^\| `([^`]*::\w+)`", text, re.M)
        assert len(rows) == len(set(rows)), name


def test_a_flip_in_an_acknowledged_record_is_refused(tmp_path: Path) -> None:
    with small(tmp_path / "data") as node:
        log = node.create_log("log")
        good = [bytes([65 + number]) * 6000 for number in range(12)]
        for value in good:
            log.append(value)
    slots = sorted((tmp_path / "data" / "wal").glob("*.wal"))
    for slot in slots:
        data = slot.read_bytes()
        for number in range(12):
            at = data.find(good[number][:600])
            if at < 0:
                continue
            copy = tmp_path / f"copy-{number}"
            shutil.copytree(tmp_path / "data", copy)
            flipped = bytearray(data)
            flipped[at + 300] ^= 4
            (copy / "wal" / slot.name).write_bytes(flipped)
            with pytest.raises(CorruptionError) as caught, small(copy) as node:
                list(node.log("log").read())
            assert caught.value.path.endswith(slot.name)


def fill(log: braidlog.Log) -> None:
    while True:
        log.append_many([b"x" * 1000] * 8)


def test_the_disk_space_stays_within_the_bound(tmp_path: Path) -> None:
    bound = 8 * SEGMENT
    with small(tmp_path, 8) as node:
        log = node.create_log("log")
        files: list[set[tuple[int, int]]] = []
        for _ in range(20):
            with pytest.raises(LogFullError) as caught:
                fill(log)
            assert caught.value.limit == bound
            found = [path.stat() for path in (tmp_path / "wal").glob("*.wal")]
            files.append({(file.st_ino, file.st_size) for file in found})
            before = log.end
            log.trim(before=before)
            assert log.append(b"room again") == before
    size = sum(f.stat().st_size for f in (tmp_path / "wal").glob("*.wal"))
    assert size <= bound
    again = all(before <= after for before, after in pairwise(files))
    assert again, "segments are written again, not made anew"


def test_a_pin_holds_until_its_lease_ends(tmp_path: Path) -> None:
    with small(tmp_path) as node:
        log = node.create_log("log")
        log.append_many([b"x"] * 10)
        log.cursor("for-ever", pin=True).commit(4)
        log.cursor("leased", pin=True, lease=0.05).commit(2)
        assert log.trim(before=8) == 2
        time.sleep(0.06)
        assert log.trim(before=8) == 4
        assert log.trim(before=8, ignore_pins=True) == 8
        with pytest.raises(TrimmedError) as caught:
            log.get(7)
        assert caught.value.first == 8


def test_retention_keeps_at_least_what_it_says(tmp_path: Path) -> None:
    with small(tmp_path) as node:
        log = node.create_log("log", retention_bytes=2 * SEGMENT)
        for _ in range(60):
            log.append(b"x" * 8000)
        node.maintain()
        kept = sum(segment.bytes for segment in log.segments() if segment.begin)
        assert 2 * SEGMENT <= kept <= 4 * SEGMENT
        timed = node.create_log("timed", retention_ms=1000)
        timed.append_many([b"old", b"young", b"late"], timestamps=[1, 5_000_000, 2])
        node.maintain(now_us=5_500_000)
        assert timed.first == 2


@pytest.mark.parametrize("read_only", [False, True])
def test_a_reader_that_stops_half_way_holds_up_nothing(
    read_only: bool, tmp_path: Path
) -> None:
    with small(tmp_path, 24) as node, ExitStack() as stack:
        log = node.create_log("log")
        log.append_many([b"x" * 2000] * 100)
        side = node
        if read_only:
            side = stack.enter_context(braidlog.open(tmp_path, read_only=True))
        reader = side.log("log").read()
        assert next(reader).position == 1
        for _ in range(10):
            log.trim(before=log.end)
            log.append_many([b"y" * 2000] * 100)
        assert len(log) == 100
        # What it still holds in memory it may go on with; never with anything else.
        with suppress(TrimmedError):
            assert {record.value for record in reader} == {b"x" * 2000}


def test_an_open_scans_one_segment(tmp_path: Path) -> None:
    for name, records in (("short", 8), ("long", 220)):
        with small(tmp_path / name, 40) as node:
            log = node.create_log("log")
            for _ in range(records):
                log.append(b"x" * 8000)
            segments = node.stats().segments
        with small(tmp_path / name, 40) as node:
            assert node.report["scanned_bytes"] < SEGMENT
    assert segments > 30


def test_bad_calls_change_nothing(tmp_path: Path) -> None:
    with small(tmp_path) as node:
        log = node.create_log("log")
        who = braidlog.Producer(1)
        calls: list[tuple[type[Exception], Callable[[], object]]] = [
            (TooLargeError, lambda: log.append(b"x" * SEGMENT)),
            (InvalidArgumentError, lambda: log.append(b"x", producer=who, sequence=2)),
            (InvalidArgumentError, lambda: node.create_log("log")),
            (InvalidArgumentError, lambda: node.create_log("")),
            (InvalidArgumentError, lambda: node.create_log("x", retention_ms=-1)),
            (InvalidArgumentError, lambda: node.log("other")),
            (LogError, lambda: log.trim(before=9)),
            (LogError, lambda: log.cursor("c").commit(9)),
            (LogError, lambda: log.get(1)),
            (TypeError, lambda: log.append("text")),  # type: ignore[arg-type]
        ]
        for expected, call in calls:
            with pytest.raises(expected):
                call()
        assert (log.first, log.end, node.logs()) == (1, 1, ["log"])
        assert log.append(b"good", producer=who, sequence=1) == 1
