"""Faults of the file system: a full disk, no permission, failing writes and syncs."""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import braidlog
from braidlog import Store
from braidlog.errors import (
    LogError,
    LogFullError,
    StoreFailedError,
    UnavailableError,
)

pytestmark = pytest.mark.process

SEGMENT_BYTES = 1 << 20
RECORDS = 1000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Have a node with records."""
    data = tmp_path / "data"
    with braidlog.open(data, segment_bytes=SEGMENT_BYTES) as node:
        node.create_log("a").append_many([bytes(3000)] * RECORDS)
    return data


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


def fill(node: Store, record: bytes) -> tuple[int, LogError]:
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
    data = tmp_path / "data"
    with (
        file_size_limit(1 << 19),
        pytest.raises(UnavailableError, match="File too large") as caught,
    ):
        braidlog.open(data, segment_bytes=SEGMENT_BYTES)
    assert caught.value.path.startswith(str(data))
    with braidlog.open(data, segment_bytes=SEGMENT_BYTES) as node:
        assert node.create_log("a").append(b"x") == 1


def test_a_limit_that_the_first_file_reaches_as_it_grows(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with file_size_limit(2 << 20), braidlog.open(data, segment_bytes=16 << 20) as node:
        node.create_log("a")
        count, error = fill(node, bytes(10_000))
        assert isinstance(error, UnavailableError)
        assert "slot-" in error.path
        assert count >= 50
    with braidlog.open(data, segment_bytes=16 << 20) as node:
        log = node.log("a")
        assert len(list(log)) == count
        assert log.append(b"x") == count + 1


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# -- a directory that must not be written --------------------------------------------


@pytest.fixture
def frozen(data: Path, tmp_path: Path) -> Iterator[Path]:
    """Have the node on a file system that is mounted read-only."""
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
        assert len(list(node.log("a"))) == RECORDS


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
@pytest.mark.timeout(60)
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
    assert "Open the directory again; acknowledged records are safe" in failure
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
