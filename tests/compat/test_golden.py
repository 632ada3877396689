"""This build reads what released versions wrote, exactly, and goes on from there."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.errors import (
    LogInUseError,
    LostRecordsError,
    SequenceGapError,
    TableCursorError,
    TablePinError,
)
from braidlog.store import inspect
from compat.contents import contents
from compat.directory import Directory

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())


@pytest.fixture(params=["closed", "crashed"])
def state(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def expected(version: str, state: str) -> dict[str, Any]:
    text = (GOLDEN / version / "expected.json").read_text()
    return dict(json.loads(text)[state])


@pytest.fixture
def directory(version: str, state: str, tmp_path: Path) -> Path:
    with zipfile.ZipFile(GOLDEN / version / f"{state}.zip") as archive:
        archive.extractall(tmp_path / "data")
    return tmp_path / "data"


def test_there_is_one_for_each_format() -> None:
    assert VERSIONS == ["v1", "v2", "v3"]


def test_a_follower_reads_it(directory: Path, expected: dict[str, Any]) -> None:
    with braidlog.open(directory, read_only=True) as node:
        assert contents(node) == expected


def test_a_writer_reads_it_and_goes_on(
    directory: Path, expected: dict[str, Any], state: str
) -> None:
    with braidlog.open(directory) as node:
        assert node.report["clean"] is (state == "closed")
        assert contents(node) == expected
        log = node.log("plain")
        end = log.end
        assert log.append(b"new") == end == expected["plain"]["end"]
    with braidlog.open(directory) as node:
        assert node.log("plain")[end].value == b"new"
        assert len(node.log("zstd")) == 300


def test_its_producer_windows_still_hold(directory: Path) -> None:
    producer = braidlog.Producer(7, epoch=2)
    with braidlog.open(directory) as node:
        log = node.log("plain")
        assert log.next_sequence(producer) == 5
        end = log.end
        stored = log.append(b"again", producer=producer, sequence=4)
        assert log[stored].value == b"again"
        assert log.end == end
        with pytest.raises(SequenceGapError):
            log.append(b"x", producer=producer, sequence=9)


def test_random_reads_and_times_work(directory: Path, expected: dict[str, Any]) -> None:
    with braidlog.open(directory, read_only=True) as node:
        for name, log in expected.items():
            for position, timestamp, *_ in log["records"][::7]:
                assert node.log(name)[position].timestamp == timestamp
        assert node.log("zstd").find(150) == 151


def test_nothing_but_side_files_of_another_version_is_found(
    directory: Path, version: str
) -> None:
    findings = inspect.verify(directory).findings
    assert {(found.severity, found.path[-4:]) for found in findings} == (
        {("degraded", ".idx")} if version == "v1" else set()
    )
    for found in findings:
        assert "version 1, this build reads 2" in found.problem


def test_the_document_still_describes_it(
    directory: Path, expected: dict[str, Any]
) -> None:
    parsed = Directory(directory)
    ranges = {
        stream.name: [stream.state["low"], stream.state["next"]]
        for stream in parsed.streams.values()
    }
    assert ranges == {
        name: [log["first"], log["end"]] for name, log in expected.items()
    }


def test_a_directory_with_a_declared_hole_is_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(GOLDEN / "holes.zip") as archive:
        archive.extractall(tmp_path)
    with braidlog.open(tmp_path) as node:
        log = node.log("orders")
        found = {record.position: record.value for record in log.read(skip_holes=True)}
        there = [*range(1, 11), *range(16, 41)]
        assert found == {n: b"%d" % (n - 1) for n in there}
        with pytest.raises(LostRecordsError):
            log.get(13)
        assert log.append(b"next") == 41


def test_a_directory_with_null_values_is_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(GOLDEN / "nulls.zip") as archive:
        archive.extractall(tmp_path)
    expected = json.loads((GOLDEN / "nulls.json").read_text())
    assert inspect.verify(tmp_path).findings == []
    with braidlog.open(tmp_path, read_only=True) as node:
        assert contents(node) == expected
    with braidlog.open(tmp_path) as node:
        assert contents(node) == expected
        log = node.log("nulls")
        assert log[2].value is None
        assert log[3].value == b""
        assert log[3].headers == (("a", None), ("b", b""))
        end = log.append(None)
        assert log[end].value is None
    parsed = Directory(tmp_path)
    assert parsed.files.nulls
    assert parsed.compressions == {0, 1, 2}
    [stream] = [s for s in parsed.streams.values() if s.name == "nulls"]
    assert len(stream.records) == end


def test_a_directory_with_a_short_file_is_read_and_grows(tmp_path: Path) -> None:
    with zipfile.ZipFile(GOLDEN / "short.zip") as archive:
        archive.extractall(tmp_path)
    [slot] = (tmp_path / "wal").glob("slot-*.wal")
    assert slot.stat().st_size == 1 << 20
    assert inspect.verify(tmp_path).findings == []
    with braidlog.open(tmp_path) as node:
        log = node.log("orders")
        assert [record.value for record in log] == [b"%d" % n for n in range(40)]
        log.append_many([bytes(1000)] * 1500)
        assert slot.stat().st_size == 4 << 20
    with braidlog.open(tmp_path, read_only=True) as node:
        assert node.log("orders").end == 1541


def test_a_directory_with_tables_is_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(GOLDEN / "tables.zip") as archive:
        archive.extractall(tmp_path)
    assert inspect.verify(tmp_path).findings == []
    stock, copy = inspect.state(tmp_path).tables
    assert (stock.name, stock.id, stock.start, stock.pin) == (
        "stock",
        f"{400:032x}",
        7,
        7,
    )
    assert [(index.name, index.field, index.state) for index in stock.indexes] == [
        ("by json:/city", "json:/city", "active"),
        ("late", "json:/price:float", "active"),
        ("used", "header:x", "active"),
    ]
    assert (copy.name, copy.log, copy.options) == (
        "stock of 2",
        "orders",
        {"history": 9},
    )
    assert [(index.name, index.field, index.state) for index in copy.indexes] == [
        ("by header:city", "header:city", "active"),
        ("half", "value", "building"),
    ]
    with braidlog.open(tmp_path) as node:
        assert node.log("orders").trim(20) == 7
        with pytest.raises(LogInUseError, match='"stock", "stock of 2"'):
            node.delete_log("orders")
        with pytest.raises(TablePinError, match='table "stock"') as caught:
            node.log("orders").trim(20, ignore_pins=True)
        assert (caught.value.table, caught.value.position) == ("stock", 7)
        pin = node.log("orders").cursor(f"table:{400:032x}")
        with pytest.raises(TableCursorError) as owned:
            pin.commit(9)
        assert owned.value.table == "stock"
