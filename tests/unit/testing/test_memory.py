"""The store in memory, where it is more than a store."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from braidlog.errors import (
    ClosedError,
    LockedError,
    LogFullError,
    ReadOnlyError,
    TooLargeError,
)
from braidlog.testing import MemoryStore


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    with MemoryStore(segment_bytes=1 << 16, wal_bytes_max=1 << 20) as store:
        yield store


def test_a_restart_closes_the_store_and_keeps_its_contents(store: MemoryStore) -> None:
    log = store.create_log("a")
    log.append_many([b"x", b"y"])
    log.set_cursor("reader", 2)
    with store.reopen() as again:
        assert store.closed
        with pytest.raises(ClosedError):
            log.append(b"late")
        assert [record.value for record in again.log("a")] == [b"x", b"y"]
        assert again.log("a").cursor("reader").position == 2
        assert again.log("a").append(b"z") == 3
        with pytest.raises(LockedError):
            store.reopen()


def test_a_reader_follows_the_writer(store: MemoryStore) -> None:
    log = store.create_log("a")
    with store.reopen(read_only=True) as reader:
        followed = reader.log("a")
        assert not store.closed
        assert followed.end == 1
        log.append(b"x")
        assert followed.wait(1, timeout=10)
        assert followed[-1].value == b"x"
        with pytest.raises(ReadOnlyError):
            followed.append(b"y")


def test_stores_have_nothing_in_common(store: MemoryStore) -> None:
    store.create_log("a")
    with MemoryStore() as other:
        assert other.logs() == []


def test_the_limits_are_those_of_a_directory(store: MemoryStore) -> None:
    log = store.create_log("a")
    with pytest.raises(TooLargeError):
        log.append(bytes(1 << 15))

    def fill() -> None:
        while True:
            log.append(bytes(1 << 12))

    with pytest.raises(LogFullError):
        fill()
    log.trim(log.end)
    store.maintain()
    log.append(b"fits again")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_reader_does_not_cross_a_fork(store: MemoryStore) -> None:
    """A thread of the parent may hold a lock of the disk, which nothing here frees."""
    store.create_log("a").append(b"x")
    reader = store.reopen(read_only=True)
    log = reader.log("a")
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (reader.logs, lambda: log.get(1), lambda: list(log.read())):
            try:
                call()
            except ClosedError:
                refused += 1
        os._exit(0 if refused == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert log.get(1).value == b"x"
    reader.close()
