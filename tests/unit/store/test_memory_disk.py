"""The disk of simulations: what a crash leaves, failures, the same again."""

import pytest

from braidlog import _native
from braidlog.errors import (
    CorruptionError,
    InvalidArgumentError,
    LogError,
    StoreFailedError,
    UnavailableError,
)
from braidlog.store.node_store import NodeStore

SEGMENT = 64 << 10


def opened(disk: _native.MemoryDisk) -> NodeStore:
    return NodeStore(
        "/n", entropy=7, disk=disk, segment_bytes=SEGMENT, wal_bytes_max=16 * SEGMENT
    )


def put(node: NodeStore, value: bytes) -> None:
    log = node.open("stream.1")
    data = _native.encode_batch([value], timestamps=0)
    log.native.append(log.number, 0, [data])


def held(disk: _native.MemoryDisk) -> list[bytes]:
    node = opened(disk)
    log = node.open("stream.1")
    end = log.native.state(log.number)[2]
    batches = log.native.read(log.number, 1, end, 1 << 20)
    return [r.value for llsn, _, b in batches for r in _native.Batch(b).records(llsn)]


def test_a_crash_keeps_what_was_synced_and_nothing_that_was_not_written() -> None:
    disk = _native.MemoryDisk(seed=3)
    node = opened(disk)
    node.create("stream.1")
    put(node, b"synced")
    node.sync()
    put(node, b"not")
    for policy in ("drop", "subset", "torn", "keep"):
        assert held(disk.crash(policy)) == [b"synced"]
    put(node, b"more")
    node.sync()
    assert held(disk.crash("drop")) == [b"synced", b"not", b"more"]
    with pytest.raises(InvalidArgumentError):
        disk.crash("gently")


def test_a_crash_while_the_directory_is_made() -> None:
    seen = set()
    for seed in range(12):
        disk = _native.MemoryDisk(seed)
        opened(disk).create("stream.1")
        seen.add(tuple(sorted(disk.crash("torn").files())) == tuple(disk.files()))
        assert held(disk.crash("torn")) == []
    assert len(seen) == 2, "what nobody synced is sometimes there and sometimes not"


def run(seed: int) -> list[tuple[str, bytes]]:
    disk = _native.MemoryDisk(seed)
    node = opened(disk)
    node.create("stream.1")
    for i in range(80):
        put(node, bytes([i]) * 3000)
        if i % 7 == 0:
            node.sync()
        if i % 20 == 19:
            log = node.open("stream.1")
            run = (i + 1, 1 + 20 * (i // 20), 1 + 20 * (i // 20), 20, i + 1)
            log.native.commit(log.number, 0, run)
            log.native.trim(log.number, i)
            node.sync()
            node.housekeeping()
            node.clean(1)
            disk = disk.crash()
            node = opened(disk)
    return [(path, disk.read(path)) for path, _ in disk.files()]


def test_the_same_calls_leave_the_same_bytes() -> None:
    assert run(1) == run(1)


def test_a_failed_write_that_landed_all_the_same() -> None:
    for landed in (False, True):
        disk = _native.MemoryDisk()
        node = opened(disk)
        node.create("stream.1")
        put(node, b"a")
        disk.fail_next_sync(landed)
        with pytest.raises(StoreFailedError):
            node.sync()
        assert held(disk.crash("drop")) == ([b"a"] if landed else [])


def test_syncs_fail_until_they_do_not() -> None:
    disk = _native.MemoryDisk()
    opened(disk).create("stream.1")
    after = disk.crash("keep")
    after.fail_syncs(on=True)
    with pytest.raises(LogError):
        opened(after)
    again = after.crash("keep")
    assert held(again) == []


def test_a_full_disk() -> None:
    disk = _native.MemoryDisk()
    node = opened(disk)
    node.create("stream.1")
    disk.set_free(0)

    def fill() -> None:
        for _ in range(60):
            put(node, bytes(9000))
            node.sync()

    with pytest.raises(UnavailableError):
        fill()
    disk.set_free(None)
    put(node, b"room")
    node.sync()


def test_a_flipped_bit_is_noticed() -> None:
    disk = _native.MemoryDisk()
    node = opened(disk)
    node.create("stream.1")
    put(node, bytes(5000))
    node.close()
    slot = next(path for path, _ in disk.files() if path.endswith(".wal"))
    size = dict(disk.files())[slot]
    with pytest.raises(LogError):
        disk.flip_bit(slot, size)
    with pytest.raises(InvalidArgumentError):
        disk.flip_bit(slot, 0, bit=8)
    damaged = disk.crash("keep")
    damaged.flip_bit(slot, 0, 3)
    with pytest.raises(LogError):
        opened(damaged)
    body = disk.crash("keep")
    body.flip_bit(slot, disk.read(slot).find(b"BRB1") + 200)
    with pytest.raises(CorruptionError):
        held(body)
