"""Audits of real directories: what is planted in one of three copies is found."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import braidlog
from braidlog import _native
from braidlog.errors import AlreadyExistsError
from braidlog.pipelines import Report, compact, reindex
from braidlog.pipelines.audit_job import audit
from braidlog.sources.origin import Origin
from unit.archive.made import archive_log

COUNT = 400
Row = tuple[bytes, bytes | None, int, list[tuple[str, bytes]]]


def rows() -> list[Row]:
    return [
        (b"value %d" % n * 40, None if n % 7 == 0 else b"k%d" % (n % 5), n, [])
        for n in range(COUNT)
    ]


def make(path: Path, written: list[Row]) -> Path:
    with braidlog.open(path, segment_bytes=64 << 10) as node:
        log = node.create_log("orders")
        for value, key, timestamp, headers in written:
            log.submit(value, key=key, timestamp=timestamp, headers=headers)
    return path


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("sound") / "data", rows())


def audited(copies: list[Path], output: Path) -> Report:
    origin = Origin("orders", raw=tuple(map(str, copies)))
    return audit(origin, output, workers=1)


def three(sound: Path, tmp_path: Path) -> list[Path]:
    copies = [tmp_path / name for name in "abc"]
    for path in copies:
        shutil.copytree(sound, path)
    return copies


def test_the_results_of_another_job_keep_their_report(
    sound: Path, tmp_path: Path
) -> None:
    origin, home = Origin("orders", path=str(sound)), tmp_path / "out"
    compact(origin, home, workers=1)
    report = (home / "report.json").read_bytes()
    with pytest.raises(AlreadyExistsError, match=r"another job \('compact'"):
        audit(origin, home, workers=1)
    with pytest.raises(AlreadyExistsError, match=r"another job \('compact'"):
        reindex([sound], home, workers=1)
    assert (home / "report.json").read_bytes() == report


def test_where_nothing_is_wrong_that_is_proved(sound: Path, tmp_path: Path) -> None:
    copies = three(sound, tmp_path)
    report = audited(copies, tmp_path / "out")
    assert report.published["findings"] == report.published["behind"] == []
    [proof] = report.published["proved"]
    assert f"each position from 1 to {COUNT} is there" in proof
    assert (
        report.figures["records_read"] == report.figures["rows_compared"] == 3 * COUNT
    )
    # It looks again each time: what comes later is found as well.
    assert not audited(copies, tmp_path / "out").unchanged


@pytest.mark.parametrize(
    ("planted", "kind"),
    [
        (lambda row: (b"another", *row[1:]), "diverged"),
        (lambda row: (row[0], b"another", *row[2:]), "diverged"),
        (lambda row: (row[0], None, *row[2:]), "diverged"),
        (lambda row: (*row[:2], row[2] + 1, row[3]), "diverged"),
        (lambda row: (*row[:3], [("h", b"")]), "diverged"),
    ],
)
def test_a_copy_that_diverged(
    sound: Path, tmp_path: Path, planted: Callable[[Row], Row], kind: str
) -> None:
    written = rows()
    written[122] = planted(written[122])
    copies = [*three(sound, tmp_path)[:2], make(tmp_path / "bad", written)]
    [found] = audited(copies, tmp_path / "out").published["findings"]
    where = (found["kind"], found["copy"], found["position"])
    assert where == (kind, str(copies[2]), 123)


def test_records_in_each_others_place(sound: Path, tmp_path: Path) -> None:
    written = rows()
    written[100], written[250] = written[250], written[100]
    copies = [make(tmp_path / "bad", written), *three(sound, tmp_path)[:2]]
    found = audited(copies, tmp_path / "out").published["findings"]
    assert [(each["kind"], each["position"]) for each in found] == [
        ("swapped", 101),
        ("swapped", 251),
    ]


def flip(path: Path) -> None:
    slot = max(
        (path / "wal").glob("*.wal"), key=lambda each: b"value 123" in each.read_bytes()
    )
    data = bytearray(slot.read_bytes())
    data[data.index(b"value 123") + 3] ^= 1
    slot.write_bytes(data)


def lose(path: Path) -> None:
    min((path / "wal").glob("*.wal")).unlink()


def lose_side(path: Path) -> None:
    min((path / "wal").glob("*.idx")).unlink()


@pytest.mark.parametrize("damage", [flip, lose, lose_side])
def test_damage_is_found_and_the_rest_compared(
    sound: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    copies = three(sound, tmp_path)
    damage(copies[1])
    report = audited(copies, tmp_path / "out")
    found: list[dict[str, Any]] = report.published["findings"]
    assert found
    assert {each["copy"] for each in found} == {str(copies[1])}
    # What is behind damaged bytes is read, so what lay in them is known.
    lacks = [each for each in found if each["kind"] == "missing"]
    assert {each["kind"] for each in found} - {"missing"} == {"damaged"}
    assert len(lacks) == (damage is flip)
    for each in lacks:
        assert each["llsn"] <= 124 < each["llsn"] + each["count"]
    assert report.figures["rows_compared"] >= 2 * COUNT
    assert report.published["proved"] == []


def test_a_copy_that_ends_before_is_no_fault(sound: Path, tmp_path: Path) -> None:
    copies = [*three(sound, tmp_path)[:2], make(tmp_path / "short", rows()[:300])]
    report = audited(copies, tmp_path / "out")
    assert report.published["findings"] == []
    assert report.published["behind"] == [
        f"{copies[2]} ends 100 records before the furthest copy of stream 1"
    ]


def test_the_log_of_a_directory_beside_its_writer(tmp_path: Path) -> None:
    make(tmp_path / "data", rows())
    with braidlog.open(tmp_path / "data") as node:
        node.log("orders").append(b"one more")
        report = audit(
            Origin("orders", path=str(tmp_path / "data")), tmp_path / "out", workers=1
        )
    assert report.published["findings"] == []
    assert report.published["end"] == COUNT + 2


def archived(source: Path, place: Path) -> Path:
    with braidlog.open(source, read_only=True) as node:
        archive_log(node.log("orders"), place, 1, 150, 300)
    return place


def with_archive(data: Path, place: Path, output: Path) -> Report:
    origin = Origin("orders", path=str(data))
    return audit(origin, output, archives=[place], workers=1)


def test_an_archive_is_compared_with_its_log(sound: Path, tmp_path: Path) -> None:
    place = archived(sound, tmp_path / "archive")
    report = with_archive(sound, place, tmp_path / "out")
    assert report.published["findings"] == []
    [behind] = report.published["behind"]
    assert behind.startswith(f"{place} ends {COUNT - 299} records before")
    files = sorted(place.rglob("*.parquet"))
    data = bytearray(files[0].read_bytes())
    data[len(data) // 3] ^= 8
    files[0].write_bytes(data)
    files[1].unlink()
    found = with_archive(sound, place, tmp_path / "again").published["findings"]
    assert {each["kind"] for each in found} == {"damaged"}
    assert {each["copy"] for each in found} == {str(place)}
    said = " ".join(each["problem"] for each in found)
    assert all(file.name in said for file in files)


def test_an_archive_that_is_sound_and_yet_another_one(
    sound: Path, tmp_path: Path
) -> None:
    """Its checksums fit what was archived, which is not what the log has."""
    written = rows()
    written[200] = (b"another", *written[200][1:])
    other = make(tmp_path / "other", written)
    place = archived(other, tmp_path / "archive")
    found = with_archive(sound, place, tmp_path / "out").published["findings"]
    assert {each["position"] for each in found} == {201}
    assert all("none has a majority" in each["problem"] for each in found)


def test_a_hash_is_of_everything_that_was_written() -> None:
    batch = pa.record_batch(
        {
            "timestamp": pa.array([1, 1, 2, 1, 1, 1, 1, 1], pa.int64()),
            "key": pa.array(
                [None, b"", None, None, None, None, None, None], pa.binary()
            ),
            "value": pa.array([b"v", b"v", b"v", b"w", b"v", b"v", b"v", b"v"]),
            "headers": pa.array(
                [[], [], [], [], [("a", b"b")], [("ab", b"")], [("a", b"c")], []],
                pa.map_(pa.string(), pa.binary()),
            ),
        }
    )

    def digests(of: Any) -> list[int]:
        found: list[int] = pa.record_batch(_native.digest_records(of))[0].to_pylist()
        return found

    whole = digests(batch)
    assert len(set(whole)) == 7
    assert whole[0] == whole[7]
    assert digests(batch.slice(3)) == whole[3:], "whatever batch a record is in"
