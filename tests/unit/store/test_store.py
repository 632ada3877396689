"""Nodes: the catalog, opening and closing, what is seen at the second open."""
# One file: the life of one directory, from its creation to what its next open sees.

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import pytest

import braidlog
from braidlog import Log, Store
from braidlog.errors import (
    AlreadyExistsError,
    ClosedError,
    ForeignFormatError,
    InvalidArgumentError,
    LockedError,
    LogFullError,
    NotFoundError,
    TooLargeError,
)
from braidlog.types import Compression
from unit.store.conftest import SEGMENT_BYTES, Opener, values

NAMES = ["a", "A", "ü", "日本語", "🎉" * 60, " ", "a-b", "..a", "x" * 255]
OLD_NAMES = ["a/b", "../a", "a\nb", "-", "..", "\x00"]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names(node: Store, opener: Opener, name: str) -> None:
    node.create_log(name).append(name.encode())
    node.close()
    node = opener()
    assert node.logs() == [name]
    assert node.log(name).name == name
    assert values(node.log(name)) == [name.encode()]


@pytest.mark.parametrize("name", OLD_NAMES, ids=range(len(OLD_NAMES)))
def test_a_name_of_a_former_version_is_used_as_ever(
    node: Store, opener: Opener, name: str
) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be the name of a log"):
        node.create_log(name)
    node._backend.store.create_log(name, 7, b"{}")
    log = node.create_log(name, exist_ok=True)
    log.append(b"x")
    with pytest.raises(InvalidArgumentError, match="cannot be the name of a cursor"):
        log.cursor(name)
    node._backend.store.create_cursor(log._stream, name, False, 0)
    log.cursor(name).commit(2)
    log.set_cursor(name, 1).delete()
    node.close()
    node = opener()
    assert node.logs() == [name]
    assert values(node.log(name)) == [b"x"]
    node.delete_log(name)
    assert node.logs() == []


def test_bad_names(node: Store) -> None:
    with pytest.raises(InvalidArgumentError, match="must not be empty") as caught:
        node.create_log("")
    assert not isinstance(caught.value, TooLargeError)
    with pytest.raises(TooLargeError, match="256 bytes, at most 255 fit"):
        node.create_log("é" * 128)
    with pytest.raises(ValueError, match="surrogates"):
        node.create_log("\ud800")
    with pytest.raises(TypeError):
        node.create_log(5)  # type: ignore[arg-type]
    assert node.logs() == []


def test_names_of_one_log_are_not_those_of_another(node: Store) -> None:
    # Composed and decomposed, upper and lower: a name is its bytes.
    names = ["é", "e\u0301", "E\u0301", "É"]
    for name in names:
        node.create_log(name).append(name.encode())
    assert node.logs() == sorted(names)
    assert [values(node.log(name)) for name in names] == [[n.encode()] for n in names]


def test_creating_twice(node: Store) -> None:
    first = node.create_log("a", compression="zstd")
    with pytest.raises(AlreadyExistsError, match='"a" already exists'):
        node.create_log("a")
    again = node.create_log("a", exist_ok=True, compression="lz4", retention_ms=5)
    assert (again.id, again.options) == (first.id, first.options)


def test_what_is_not_there(node: Store) -> None:
    node.create_log("here")
    with pytest.raises(NotFoundError, match=r"not exist \(there are: 'here'\)"):
        node.log("other")
    with pytest.raises(NotFoundError, match="did you mean 'here'\\? Check"):
        node.log("there")
    with pytest.raises(NotFoundError):
        node.delete_log("there")


def test_a_missing_log_does_not_list_thousands(node: Store) -> None:
    for number in range(10, 40):
        node.create_log(f"log{number}")
    with pytest.raises(NotFoundError, match=r"'log10', .*, 'log29' and 10 more\)"):
        node.log("other")


def test_deleting(node: Store, opener: Opener) -> None:
    for name in "abc":
        node.create_log(name).append(name.encode())
    node.delete_log("b")
    assert node.logs() == ["a", "c"]
    node.create_log("b")
    assert len(node.log("b")) == 0
    node.close()
    node = opener()
    assert [len(node.log(name)) for name in node.logs()] == [1, 0, 1]


def test_deleting_gives_the_space_back(opener: Opener) -> None:
    bound = 8 * SEGMENT_BYTES
    node = opener(wal_bytes_max=bound)
    for _ in range(5):
        log = node.create_log("big")
        log.append_many([bytes(10_000)] * 300)
        node.delete_log("big")
    assert sum(path.stat().st_size for path in node.path.rglob("*.wal")) <= bound


@pytest.mark.parametrize("compression", get_args(Compression))
def test_compression(node: Store, opener: Opener, compression: Compression) -> None:
    log = node.create_log("a", compression=compression)
    many = [b"%06d" % i * 20 for i in range(5000)]
    log.append_many(many)
    log.append(b"one" * 1000)
    stored = log.stats().bytes
    raw = sum(map(len, many))
    assert (stored < raw / 2) == (compression != "none")
    assert log.describe().compression == compression
    node.close()
    log = opener().log("a")
    assert values(log) == [*many, b"one" * 1000]
    before = log.stats().bytes
    log.append_many(many)
    assert log.stats().bytes - before < stored * 1.1


OPTIONS: list[dict[str, Any]] = [
    {"compression": "gzip"},
    {"compression": None},
    {"retention_ms": -1},
    {"retention_ms": 1.5},
    {"retention_ms": "5"},
    {"retention_ms": True},
    {"retention_ms": 10**30},
    {"retention_bytes": -1},
    {"retention_bytes": 2.0},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_bad_options_are_refused(node: Store, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=next(iter(options))):
        node.create_log("a", **options)
    assert node.logs() == []
    if "compression" not in options:
        with pytest.raises(InvalidArgumentError):
            node.create_log("a").set_options(**options)
    node.maintain()


KEYWORDS: list[tuple[type[Exception], dict[str, Any]]] = [
    (InvalidArgumentError, {"segment_bytes": 65_537}),
    (InvalidArgumentError, {"segment_bytes": 0}),
    (InvalidArgumentError, {"segment_bytes": -1}),
    (InvalidArgumentError, {"segment_bytes": 1 << 32}),
    (TypeError, {"segment_bytes": 1.5}),
    (InvalidArgumentError, {"wal_bytes_max": 3 * SEGMENT_BYTES}),
    (InvalidArgumentError, {"wal_bytes_max": -1}),
    (InvalidArgumentError, {"unsynced_bytes_max": -1}),
    (InvalidArgumentError, {"sync_method": "never"}),
    (TypeError, {"sync_method": 5}),
    (TypeError, {"unknown": 5}),
]


@pytest.mark.parametrize(("error", "options"), KEYWORDS, ids=str)
def test_bad_keywords_of_open(
    opener: Opener, error: type[Exception], options: dict[str, Any]
) -> None:
    with pytest.raises(error):
        opener(**options)
    assert opener().logs() == []


@pytest.mark.parametrize("method", ["direct", "dsync", "fdatasync"])
def test_sync_methods(opener: Opener, method: str) -> None:
    for i in range(1, 4):
        with opener(sync_method=method) as node:
            log = node.create_log("a", exist_ok=True)
            assert log.append(b"%d" % i) == i


def test_many_logs(node: Store, opener: Opener) -> None:
    logs = [node.create_log(f"log-{i}") for i in range(300)]
    for turn in range(3):
        for log in logs:
            log.submit(b"%s %d" % (log.name.encode(), turn))
    node.close()
    node = opener()
    assert len(node.logs()) == 300
    for name in node.logs():
        expected = [b"%s %d" % (name.encode(), turn) for turn in range(3)]
        assert values(node.log(name)) == expected


def test_a_path_of_any_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / "ü" / "deep"
    with braidlog.open(str(deep), create=True) as node:
        node.create_log("a").append(b"x")
    monkeypatch.chdir(tmp_path)
    with braidlog.open(os.path.join("ü", "deep")) as node:  # noqa: PTH118
        assert len(node.log("a")) == 1
    for wrong, error in (
        (None, TypeError),
        (b"x", TypeError),
        ("", InvalidArgumentError),
        ("a\0b", InvalidArgumentError),
    ):
        with pytest.raises(error):
            braidlog.open(wrong)  # type: ignore[arg-type]


def test_a_program_may_change_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "data" / "wal").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with braidlog.open("data", segment_bytes=1 << 16) as node:
        log = node.create_log("a")
        with braidlog.open("data", read_only=True) as follower:
            monkeypatch.chdir(elsewhere)
            for _ in range(5):  # Each fills a segment, so files are made.
                log.append_many([bytes(8000)] * 7)
            node.maintain()
            assert len(follower.log("a").to_arrow()) == len(log) == 35
        assert node.path == tmp_path / "data"
    assert [*Path("data").rglob("*")] == [Path("data/wal")]
    with braidlog.open(tmp_path / "data") as node:
        assert len(list(node.log("a").read())) == 35


def test_a_path_that_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    for read_only in (False, True):
        with pytest.raises(InvalidArgumentError, match="file is a file: name the dir"):
            braidlog.open(path, read_only=read_only)
        with pytest.raises(
            InvalidArgumentError, match=r"cannot be created: .*file is a file"
        ):
            braidlog.open(path / "below", create=True)


def test_a_foreign_directory_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("mine")
    with pytest.raises(ForeignFormatError, match="not empty") as caught:
        braidlog.open(tmp_path)
    assert caught.value.path == str(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]


def test_read_only_needs_a_node(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(NotFoundError, match=str(path)):
            braidlog.open(path, read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_one_writer(node: Store, opener: Opener) -> None:
    with pytest.raises(LockedError, match=f"this very process {os.getpid()}") as caught:
        opener()
    assert caught.value.retryable
    assert caught.value.path.endswith("LOCK")
    node.close()
    opener().close()


def raised(call: Callable[[], object]) -> type[Exception] | None:
    try:
        call()
    except Exception as error:
        return type(error)
    return None


def test_close_is_idempotent_and_final(node: Store) -> None:
    assert not node.closed
    node.close()
    node.close()
    calls = {
        "logs": node.logs,
        "log": lambda: node.log("a"),
        "create": lambda: node.create_log("a"),
        "delete": lambda: node.delete_log("a"),
        "stats": node.stats,
        "sync": node.sync,
        "maintain": node.maintain,
        "provision": lambda: node.provision(1),
        "enter": node.__enter__,
    }
    for name, call in calls.items():
        assert raised(call) is ClosedError, name
    assert repr(node).endswith("writer>")


def test_close_from_many_threads_returns_when_it_is_free(
    node: Store, opener: Opener
) -> None:
    log = node.create_log("a")
    for _ in range(1000):
        log.submit(b"x" * 1000)

    def close_and_open(_: int) -> int:
        node.close()
        try:
            with opener() as again:
                return len(again.log("a"))
        except LockedError:
            # By another of us: `test_one_writer` shows that a close sets it free.
            return 1000

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(close_and_open, range(8))) == {1000}


def test_close_makes_submitted_records_durable(node: Store, opener: Opener) -> None:
    log = node.create_log("a")
    pending = [log.submit(b"%d" % i) for i in range(1000)]
    node.close()
    assert [each.result() for each in pending] == list(range(1, 1001))
    assert len(opener().log("a")) == 1000


def test_the_context_manager_closes_on_an_error(opener: Opener) -> None:
    with pytest.raises(ZeroDivisionError), opener() as node:
        _ = 1 // 0
    assert node.closed


def held_files(data: Path) -> list[str]:
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(link.readlink()))
    return [name for name in found if name.startswith(str(data))]


@pytest.mark.parametrize("read_only", [False, True])
def test_closing_leaves_no_thread_and_no_file(
    opener: Opener, data: Path, read_only: bool
) -> None:
    before = threading.active_count()
    with opener() as node:
        log = node.create_log("a", exist_ok=True)
        log.append_many([bytes(1000)] * 5000)
        log.submit(b"x").result()
    with opener(read_only=read_only) as node:
        log = node.log("a")
        reading, record = log.read(), log[7]
        assert next(reading).position == 1
        assert held_files(data)
    # Whoever still holds these must not keep the file system busy.
    assert held_files(data) == []
    assert (log.name, record.position) == ("a", 7)
    assert threading.active_count() == before


def test_the_report_of_an_open(node: Store, opener: Opener) -> None:
    assert node.report["created"]
    node.create_log("a").append(b"x")
    node.close()
    report = opener().report
    assert (report["created"], report["clean"], report["torn"]) == (False, True, None)


def test_stats(node: Store) -> None:
    before = node.stats()
    log = node.create_log("a")
    log.append_many([bytes(1000)] * 3000)
    stats = node.stats()
    assert (before.logs, stats.logs) == (0, 1)
    assert stats.syncs > before.syncs
    assert stats.synced_bytes - before.synced_bytes > 3_000_000
    assert stats.segments >= 3
    assert stats.wal_bytes == stats.segments * SEGMENT_BYTES <= stats.wal_bytes_max
    assert stats.segment_bytes == SEGMENT_BYTES
    assert stats.samples > 0


def test_describe(node: Store) -> None:
    log = node.create_log("a", compression="lz4", retention_ms=10**9)
    log.append_many([b"x"] * 10, timestamps=range(10))
    log.trim(4)
    log.cursor("c")
    found = log.describe()
    assert (found.name, found.first, found.end, found.records) == ("a", 4, 11, 7)
    assert (found.compression, found.retention_ms, found.retention_bytes) == (
        "lz4",
        10**9,
        None,
    )
    assert (found.cursors, found.id, found.stream) == (1, log.id, 1)
    assert found.segments == 1
    assert found.bytes > 0
    assert len(found.id) == 32
    stats = log.stats()
    assert (stats.timestamp_min, stats.timestamp_max) == (0, 9)
    assert repr(log) == "<Log 'a' 4..11>"


def test_segments_cover_the_log(node: Store) -> None:
    log = node.create_log("a")
    log.append_many([bytes(1000)] * 5000)
    rows = log.segments()
    assert [row.begin for row in rows[1:]] == [row.end for row in rows[:-1]]
    assert (rows[0].begin, rows[-1].end) == (1, 5001)


def test_options_can_be_replaced(node: Store, opener: Opener) -> None:
    log = node.create_log("a", compression="zstd", retention_ms=5)
    log.set_options(retention_bytes=10**9)
    assert (log.options.retention_ms, log.options.retention_bytes) == (None, 10**9)
    node.close()
    options = opener().log("a").options
    assert (options.compression, options.retention_bytes) == ("zstd", 10**9)


def test_a_full_log_says_so_and_goes_on_after_a_trim(opener: Opener) -> None:
    node = opener(wal_bytes_max=6 * SEGMENT_BYTES)
    log = node.create_log("a")

    def fill() -> None:
        while True:
            log.append(bytes(100_000))

    with pytest.raises(LogFullError, match="Trim") as caught:
        fill()
    written = log.end - 1
    assert written > 10
    assert caught.value.used <= caught.value.limit == 6 * SEGMENT_BYTES
    assert caught.value.retryable
    assert len(list(log)) == written
    log.cursor("c").commit(3)  # What is small and needed still goes.
    log.trim(log.end)
    assert log.append(b"again") == written + 1
    for _ in range(100):
        log.trim(log.append(bytes(100_000)))


def test_threads(node: Store, opener: Opener) -> None:
    logs = [node.create_log(name) for name in "ab"]

    def work(number: int) -> list[tuple[int, int, bytes]]:
        done = []
        for i in range(60):
            log, value = logs[i % 2], b"%d %d" % (number, i)
            match i % 3:
                case 0:
                    done.append((i % 2, log.append(value), value))
                case 1:
                    done.append((i % 2, log.submit(value).result(), value))
                case _:
                    (position,) = log.append_many([value])
                    done.append((i % 2, position, value))
        return done

    with ThreadPoolExecutor(8) as pool:
        done = [each for part in pool.map(work, range(8)) for each in part]
    node.close()
    node = opener()
    for which, name in enumerate("ab"):
        mine = {position: value for log, position, value in done if log == which}
        assert mine == {record.position: record.value for record in node.log(name)}


def test_threads_create_the_same_log(node: Store) -> None:
    barrier = threading.Barrier(8)

    def create(number: int) -> list[str]:
        ids = []
        for turn in range(20):
            barrier.wait()
            log = node.create_log(f"log-{turn}", exist_ok=True)
            log.append(b"%d" % number)
            ids.append(log.id)
        return ids

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(create, range(8)))
    assert all(ids == found[0] for ids in found)
    assert [len(node.log(name)) for name in node.logs()] == [8] * 20


def test_housekeeping_survives_whatever_happens(
    node: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looked = threading.Semaphore(0)

    def broken(self: Log, now_us: int) -> int:
        looked.release()
        raise RuntimeError("unexpected")

    monkeypatch.setattr(Log, "apply_retention", broken)
    with caplog.at_level(logging.ERROR, "braidlog"):
        node.create_log("a", retention_ms=1)
        assert looked.acquire(timeout=10)
        assert looked.acquire(timeout=10)
    assert "housekeeping" in caplog.text
