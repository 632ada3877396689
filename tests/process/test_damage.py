"""Damaged and missing files: each has its error, path, offset and next step."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import braidlog
from braidlog import Store
from braidlog.errors import (
    CorruptionError,
    ForeignFormatError,
    FormatError,
    LogError,
    MissingFileError,
    NewerFormatError,
)

pytestmark = pytest.mark.process

SEGMENT_BYTES = 1 << 20
RECORDS = 4000


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Have a node of several segments; copy it before use."""
    data = tmp_path_factory.mktemp("intact") / "data"
    with braidlog.open(data, segment_bytes=SEGMENT_BYTES) as node:
        log = node.create_log("a")
        for i in range(0, RECORDS, 100):
            log.append_many([b"%d " % (i + j) + bytes(1000) for j in range(100)])
        assert node.stats().segments >= 4
    return data


@pytest.fixture
def data(intact: Path, tmp_path: Path) -> Path:
    """Have a copy of the intact node."""
    return shutil.copytree(intact, tmp_path / "data")


def flip(path: Path, offset: int) -> None:
    """Flip a bit."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def remove(data: Path, pattern: str) -> None:
    """Remove files."""
    for path in data.glob(pattern):
        path.unlink()


def replace(data: Path, pattern: str, content: bytes) -> None:
    """Write something else into files."""
    for path in list(data.glob(pattern)) or [data / pattern]:
        path.write_bytes(content)


def read_everything(node: Store) -> int:
    log = node.log("a")
    found = [record.value for record in log]
    assert [int(value.split(b" ")[0]) for value in found] == list(range(RECORDS))
    assert log.to_arrow()["value"].to_pylist() == found
    assert len(log) == RECORDS
    return len(found)


FIRST, LAST = "wal/slot-000001.wal", "wal/slot-000004.wal"

# Name: what is done, the error, the file it names, words of its next step.
Damage = tuple[Callable[[Path], None], type[LogError], str, str]
DAMAGES: dict[str, Damage] = {
    "last segment deleted": (
        lambda d: (d / LAST).unlink(),
        MissingFileError,
        LAST,
        "Restore the file",
    ),
    "last segment truncated": (
        lambda d: os.truncate(d / LAST, 4096),
        MissingFileError,
        LAST,
        "4096 bytes instead of",
    ),
    "segment folder gone": (
        lambda d: shutil.rmtree(d / "wal"),
        MissingFileError,
        "wal/slot",
        "Restore the file",
    ),
    "identity deleted": (
        lambda d: (d / "IDENTITY").unlink(),
        MissingFileError,
        "IDENTITY",
        "restore it from a copy",
    ),
    "current deleted": (
        lambda d: (d / "CURRENT").unlink(),
        MissingFileError,
        "CURRENT",
        "Restore the file",
    ),
    "manifest deleted": (
        lambda d: remove(d, "MANIFEST-*"),
        MissingFileError,
        "MANIFEST-",
        "CURRENT names it",
    ),
    "identity of another program": (
        lambda d: replace(d, "IDENTITY", b"SQLite format 3\0" * 3),
        ForeignFormatError,
        "IDENTITY",
        "Check the path",
    ),
    "identity empty": (
        lambda d: replace(d, "IDENTITY", b""),
        CorruptionError,
        "IDENTITY",
        "braidlog repair",
    ),
    "identity flipped": (
        lambda d: flip(d / "IDENTITY", 20),
        CorruptionError,
        "IDENTITY",
        "checksum does not match",
    ),
    "current flipped": (
        lambda d: flip(d / "CURRENT", 5),
        CorruptionError,
        "CURRENT",
        "braidlog repair",
    ),
    "manifest flipped": (
        lambda d: flip(next(d.glob("MANIFEST-*")), 100),
        CorruptionError,
        "MANIFEST-",
        "braidlog repair",
    ),
    "newer directory": (
        lambda d: newer(d / "IDENTITY"),
        NewerFormatError,
        "IDENTITY",
        "Upgrade braidlog",
    ),
}


def newer(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4:8] = struct.pack("<I", 9)
    path.write_bytes(content)


def contents(data: Path) -> dict[str, bytes]:
    """Return every file, but the lock, which any attempt to open touches."""
    return {
        str(path.relative_to(data)): path.read_bytes()
        for path in data.rglob("*")
        if path.is_file() and path.name != "LOCK"
    }


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "follower"])
@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_directory_is_refused_and_left_alone(
    data: Path, case: str, read_only: bool
) -> None:
    damage, error, file, words = DAMAGES[case]
    damage(data)
    if read_only and case == "identity deleted":
        pytest.skip("a follower finds no node there")
    before = contents(data)
    with pytest.raises(error, match=words) as caught:
        braidlog.open(data, read_only=read_only)
    assert type(caught.value) is error
    found = caught.value
    assert isinstance(found, CorruptionError | FormatError)
    assert found.path.startswith(str(data / file)), found.path
    assert found.path in str(found)
    assert not found.retryable
    if isinstance(found, NewerFormatError):
        newest = 3 if case == "newer directory" else 2
        assert (found.found, found.supported) == (9, newest)
    assert contents(data) == before


SEALED: dict[str, Callable[[Path], None]] = {
    "deleted": lambda d: (d / FIRST).unlink(),
    "truncated": lambda d: os.truncate(d / FIRST, 300_000),
    "empty": lambda d: os.truncate(d / FIRST, 0),
}


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "follower"])
@pytest.mark.parametrize("case", SEALED)
def test_a_missing_old_segment_is_found_by_who_opens_or_reads_it(
    data: Path, case: str, read_only: bool
) -> None:
    SEALED[case](data)
    before = contents(data)

    def open_and_read() -> None:
        with braidlog.open(data, read_only=read_only) as node:
            read_everything(node)

    with pytest.raises(MissingFileError, match="Restore the file") as caught:
        open_and_read()
    assert caught.value.path == str(data / FIRST)
    if read_only:
        assert contents(data) == before


@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "follower"])
@pytest.mark.parametrize("offset", [5000, 300_000, 900_000])
def test_a_flipped_bit_is_found_by_who_reads_it(
    data: Path, read_only: bool, offset: int
) -> None:
    flip(data / FIRST, offset)
    with braidlog.open(data, read_only=read_only) as node:
        log = node.log("a")
        reads: list[Callable[[], object]] = [
            lambda: list(log.read()),
            lambda: [log[i] for i in range(1, 1000)],
            log.to_arrow,
            lambda: list(log.batches()),
        ]
        for read in reads:
            with pytest.raises(CorruptionError, match="repair") as caught:
                read()
            assert caught.value.path == str(data / FIRST)
            assert 0 < caught.value.offset <= offset
        # What is elsewhere can be read.
        assert log[RECORDS].value.startswith(b"%d " % (RECORDS - 1))
        assert len(list(log.read(RECORDS - 500))) == 501


def test_swapped_segments_are_found(data: Path) -> None:
    one, other = data / FIRST, data / "wal/slot-000002.wal"
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    with braidlog.open(data) as node, pytest.raises(CorruptionError):
        list(node.log("a"))


def test_a_segment_of_another_node_is_found(data: Path, tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "other", segment_bytes=SEGMENT_BYTES) as node:
        node.create_log("a").append_many([bytes(1000)] * RECORDS)
    shutil.copy(tmp_path / "other" / LAST, data / LAST)
    with pytest.raises((CorruptionError, ForeignFormatError), match="slot-000004"):
        braidlog.open(data)


HARMLESS: dict[str, Callable[[Path], None]] = {
    "watermark deleted": lambda d: (d / "WATERMARK").unlink(),
    "watermark garbage": lambda d: replace(d, "WATERMARK", b"garbage"),
    "checkpoint deleted": lambda d: (d / "CHECKPOINT").unlink(),
    "checkpoint garbage": lambda d: replace(d, "CHECKPOINT", b"garbage" * 50),
    "checkpoint flipped": lambda d: flip(d / "CHECKPOINT", 60),
    "lock deleted": lambda d: (d / "LOCK").unlink(),
    "index files deleted": lambda d: remove(d, "wal/*.idx"),
    "index files garbage": lambda d: replace(d, "wal/*.idx", b"garbage" * 50),
    "index file flipped": lambda d: flip(next(d.glob("wal/*.idx")), 60),
    "spare segment deleted": lambda d: remove(d, "wal/slot-000005.wal"),
    "a file of somebody else": lambda d: replace(d, "wal/README", b"mine"),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_what_can_be_made_again_is_made_again(data: Path, case: str) -> None:
    HARMLESS[case](data)
    with braidlog.open(data) as node:
        assert read_everything(node) == RECORDS
        node.log("a").append_many([b"more"] * 5000)
        node.log("a").trim(2 * SEGMENT_BYTES // 1000)
    if "somebody" in case:
        assert (data / "wal" / "README").read_text() == "mine"
    with braidlog.open(data) as node:
        assert node.log("a").end == RECORDS + 5001
