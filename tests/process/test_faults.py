"""Real faults of the file system: each has its error, path, offset and next step."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import braidlog
from braidlog import Node
from braidlog.errors import (
    CorruptionError,
    ForeignFormatError,
    FormatError,
    LogError,
    LogFullError,
    MissingFileError,
    NewerFormatError,
    StoreFailedError,
    UnavailableError,
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


def for_each(directory: Path, pattern: str, harm: Callable[[Path], None]) -> None:
    for path in directory.glob(pattern):
        harm(path)


def read_everything(node: Node) -> int:
    log = node.log("a")
    found = [record.value for record in log]
    assert [int(value.split(b" ")[0]) for value in found] == list(range(RECORDS))
    assert log.to_arrow()["value"].to_pylist() == found
    assert len(log) == RECORDS
    return len(found)


FIRST, LAST = "wal/slot-000001.wal", "wal/slot-000004.wal"

# Name: what is done, the error, the file it names, words of its next step.
Damage = tuple[Callable[[Path], object], type[LogError], str, str]
DAMAGES: dict[str, Damage] = {
    "first segment deleted": (
        lambda d: (d / FIRST).unlink(),
        MissingFileError,
        FIRST,
        "Put the file back",
    ),
    "last segment deleted": (
        lambda d: (d / LAST).unlink(),
        MissingFileError,
        LAST,
        "Put the file back",
    ),
    "segment truncated": (
        lambda d: os.truncate(d / FIRST, 300_000),
        MissingFileError,
        FIRST,
        "braidlog repair",
    ),
    "last segment truncated": (
        lambda d: os.truncate(d / LAST, 4096),
        MissingFileError,
        LAST,
        "4096 bytes instead of",
    ),
    "segment empty": (
        lambda d: os.truncate(d / FIRST, 0),
        MissingFileError,
        FIRST,
        "0 bytes instead of",
    ),
    "segment folder gone": (
        lambda d: shutil.rmtree(d / "wal"),
        MissingFileError,
        "wal/slot",
        "Put the file back",
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
        "restore it from a copy",
    ),
    "manifest deleted": (
        lambda d: for_each(d, "MANIFEST-*", Path.unlink),
        MissingFileError,
        "MANIFEST-",
        "CURRENT names it",
    ),
    "identity of another program": (
        lambda d: (d / "IDENTITY").write_bytes(b"SQLite format 3\0" * 3),
        ForeignFormatError,
        "IDENTITY",
        "Check the path",
    ),
    "identity empty": (
        lambda d: (d / "IDENTITY").write_bytes(b""),
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
        assert (found.found, found.supported) == (9, 1)
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
        ]
        for read in reads:
            with pytest.raises(CorruptionError, match="repair") as caught:
                read()
            assert caught.value.path == str(data / FIRST)
            assert 0 < caught.value.offset <= offset
        with pytest.raises((CorruptionError, OSError), match="slot-000001"):
            log.to_arrow()
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


HARMLESS: dict[str, Callable[[Path], object]] = {
    "watermark deleted": lambda d: (d / "WATERMARK").unlink(),
    "watermark garbage": lambda d: (d / "WATERMARK").write_bytes(b"garbage"),
    "lock deleted": lambda d: (d / "LOCK").unlink(),
    "index files deleted": lambda d: for_each(d, "wal/*.idx", Path.unlink),
    "index files garbage": lambda d: [
        path.write_bytes(b"garbage" * 50) for path in d.glob("wal/*.idx")
    ],
    "index file flipped": lambda d: for_each(
        d, "wal/*.idx", lambda path: flip(path, 60)
    ),
    "spare segment deleted": lambda d: (d / "wal/slot-000005.wal").unlink(
        missing_ok=True
    ),
    "a file of somebody else": lambda d: (d / "wal" / "README").write_text("mine"),
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


# -- a disk that is full -------------------------------------------------------------


@contextlib.contextmanager
def mounted(where: Path, *options: str) -> Iterator[Path]:
    """Mount something; skip where that is not allowed."""
    where.mkdir()
    mount = ["mount", *options, str(where)]
    if shutil.which("mount") is None:
        pytest.skip("there is no mount command")
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Have a file system of 8 MiB."""
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=8m", "tmpfs") as where:
        yield where


def fill(node: Node, record: bytes) -> tuple[int, LogError]:
    """Append until it is refused; return how many were acknowledged, and the error."""
    log = node.log("a")
    for i in range(100_000):
        try:
            log.append(record)
        except LogError as error:
            return i, error
    pytest.fail("the disk never became full")


def test_a_full_disk(small_disk: Path) -> None:
    data = small_disk / "data"
    with braidlog.open(data, segment_bytes=SEGMENT_BYTES) as node:
        log = node.create_log("a")
        count, error = fill(node, bytes(10_000))
        assert count > 300
        assert isinstance(error, UnavailableError)
        assert error.retryable
        assert "No space left" in str(error) or isinstance(error, LogFullError)
        assert len(list(log)) == log.end - 1 == count
        # Trimming needs no space, and gives some back.
        log.trim(count - 10)
        assert log.append(bytes(10_000)) == count + 1
    with braidlog.open(data) as node:
        log = node.log("a")
        assert [r.position for r in log] == list(range(count - 10, count + 2))


def test_a_disk_filled_by_somebody_else(small_disk: Path) -> None:
    data = small_disk / "data"
    with braidlog.open(data, segment_bytes=SEGMENT_BYTES) as node:
        log = node.create_log("a")
        log.append_many([bytes(1000)] * 500)
        other = small_disk / "other"
        with contextlib.suppress(OSError), other.open("wb") as file:
            while True:
                file.write(bytes(65536))
                file.flush()
        count, error = fill(node, bytes(10_000))
        assert isinstance(error, UnavailableError)
        other.unlink()
        # What was refused can be done again once there is space.
        assert log.append(bytes(10_000)) == 501 + count
    with braidlog.open(data) as node:
        assert len(list(node.log("a"))) == 501 + count


def test_a_full_disk_at_the_first_open(small_disk: Path) -> None:
    with contextlib.suppress(OSError), (small_disk / "other").open("wb") as file:
        file.write(bytes(8 << 20))
    data = small_disk / "data"
    with pytest.raises(UnavailableError, match="No space left") as caught:
        braidlog.open(data, segment_bytes=SEGMENT_BYTES)
    assert caught.value.path.startswith(str(data))
    (small_disk / "other").unlink()
    with braidlog.open(data, segment_bytes=SEGMENT_BYTES) as node:
        assert node.create_log("a").append(b"x") == 1


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SEGMENT_BYTES // 2, hard))
    try:
        with pytest.raises(UnavailableError, match="File too large") as caught:
            braidlog.open(tmp_path / "data", segment_bytes=SEGMENT_BYTES)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "slot-000001.wal" in caught.value.path
    with braidlog.open(tmp_path / "data", segment_bytes=SEGMENT_BYTES) as node:
        assert node.create_log("a").append(b"x") == 1


# -- a directory that must not be written --------------------------------------------


@pytest.fixture
def frozen(data: Path, tmp_path: Path) -> Iterator[Path]:
    """Have the intact node on a file system that is mounted read-only."""
    with mounted(tmp_path / "frozen", "--bind", str(data)) as where:
        remount = ["mount", "-o", "remount,ro,bind", str(where)]
        done = subprocess.run(remount, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
        yield where


def test_a_read_only_mount(frozen: Path) -> None:
    with pytest.raises(UnavailableError, match="Read-only file system") as caught:
        braidlog.open(frozen)
    assert caught.value.path.startswith(str(frozen))
    assert "then retry" in str(caught.value)
    # Nothing is written by who only reads.
    with braidlog.open(frozen, read_only=True) as node:
        assert read_everything(node) == RECORDS


def test_a_directory_without_permission(data: Path) -> None:
    script = """
        import os, sys, braidlog
        from braidlog.errors import UnavailableError
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        try:
            braidlog.open(sys.argv[1])
        except UnavailableError as error:
            print(error, error.path.startswith(sys.argv[1]))
        with braidlog.open(sys.argv[1], read_only=True) as node:
            print(len(list(node.log("a"))))
    """
    for path in (data, data / "wal"):
        path.chmod(0o555)
    for path in data.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    # A user without rights has to get there, and to import what it runs.
    script = "import sys; sys.dont_write_bytecode = True\n" + textwrap.dedent(script)
    for parent in data.parents:
        if parent != Path("/") and parent.stat().st_mode & 0o005 != 0o005:
            parent.chmod(parent.stat().st_mode | 0o005)
        if parent == Path("/tmp"):  # noqa: S108, RUF100
            break
    ran = subprocess.run(
        [sys.executable, "-c", script, str(data)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "ModuleNotFoundError" in ran.stderr or "Permission denied: '/" in ran.stderr:
        pytest.skip("another user cannot run this interpreter")
    assert "Permission denied" in ran.stdout, ran.stderr
    assert ran.stdout.endswith(f"True\n{RECORDS}\n"), ran.stderr


# -- writes and syncs that fail ------------------------------------------------------

APPENDING = """
import sys, braidlog
from braidlog.errors import LogError, StoreFailedError
data, method, pipelined = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
node = braidlog.open(data, sync_method=method)
log = node.log("a")
acknowledged = log.end - 1
try:
    while True:
        if pipelined:
            pending = [log.submit(b"x" * 1000) for _ in range(50)]
            for each in pending:
                acknowledged = each.result()
        else:
            acknowledged = log.append(b"x" * 1000)
except StoreFailedError as error:
    print(error)
for call in (
    lambda: log.append(b"y"),
    lambda: log.submit(b"y").result(),
    lambda: log.append_many([b"y"]),
    lambda: node.create_log("b"),
    lambda: log.trim(2),
    lambda: log.cursor("c"),
    node.sync,
):
    try:
        call()
    except StoreFailedError:
        continue
    print("acknowledged after a failure")
# What was durable is still served, and nothing else.
print(acknowledged, log.end - 1, len(list(log)))
node.close()
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("pipelined", [False, True], ids=["one by one", "pipelined"])
@pytest.mark.parametrize("number", [15, 40])
@pytest.mark.parametrize(
    ("method", "call", "errno"),
    [
        ("direct", "pwritev2", "EIO"),
        ("dsync", "pwritev2", "ENOSPC"),
        ("fdatasync", "fdatasync", "EIO"),
        ("fdatasync", "pwrite64", "EIO"),
    ],
)
def test_a_failed_sync_ends_all_acknowledgement(
    tmp_path: Path, method: str, call: str, errno: str, number: int, pipelined: bool
) -> None:
    data = tmp_path / "data"
    with braidlog.open(data, segment_bytes=SEGMENT_BYTES) as node:
        node.create_log("a").append_many([b"before"] * 10)
    trace = ["strace", "-f", "-qq", "-o", str(tmp_path / "trace")]
    # Fails once: what follows must not be taken for success.
    inject = ["-e", f"trace={call}", "-e", f"inject={call}:error={errno}:when={number}"]
    command = [sys.executable, "-c", APPENDING, str(data), method, str(pipelined)]
    ran = subprocess.run(
        [*trace, *inject, *command], capture_output=True, text=True, check=False
    )
    traced = (tmp_path / "trace").read_text() if (tmp_path / "trace").exists() else ""
    if "INJECTED" not in traced:
        pytest.skip(f"nothing was injected: {ran.stderr[-200:]}")
    assert ran.returncode == 0, ran.stderr
    failure, *other, counts = ran.stdout.splitlines()
    assert other == []
    assert str(data) in failure
    assert "Open the directory again; what was acknowledged is there" in failure
    acknowledged, end, read = map(int, counts.split())
    assert end == read >= acknowledged
    with braidlog.open(data) as node:
        log = node.log("a")
        kept = [record.value for record in log]
        assert len(kept) >= end
        assert kept == [b"before"] * 10 + [b"x" * 1000] * (len(kept) - 10)
        assert node.logs() == ["a"]
        assert log.append(b"goes on") == len(kept) + 1


def test_a_store_that_failed_is_closed_and_opened_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    node = braidlog.open(data, segment_bytes=SEGMENT_BYTES)
    log = node.create_log("a")
    log.append(b"durable")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(StoreFailedError, match="Open the directory again"):
            log.append(b"lost")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(StoreFailedError):
        log.append(b"never")
    with pytest.raises(StoreFailedError):
        log.wait(99)
    with pytest.raises(StoreFailedError):
        list(log.subscribe())
    assert log[1].value == b"durable"
    node.close()
    with braidlog.open(data) as node:
        log = node.log("a")
        assert log[1].value == b"durable"
        assert b"never" not in [record.value for record in log]
