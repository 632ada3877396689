"""What a rescue reads of a directory, and what it leaves there."""

import hashlib
import struct
from pathlib import Path

import msgspec
import pytest

from braidlog.errors import CorruptionError, NewerFormatError, NotFoundError
from braidlog.metarepo.succession import Copy, GroupStart
from braidlog.node.repository.raft_log import GroupLog
from braidlog.node.rescue.files import digest_of, read_copy, read_seed, write_seed
from braidlog.node.rescue.ring import write_locked
from braidlog.raft import Base, Entry, HardState, Membership, Stored, Write
from braidlog.store.node_store import NodeStore
from compat.layouts import FORMATS, Layouts

BASE = Base(3, 2, Membership(voters=(1, 2)), b"state")
SEED = GroupStart(2, 9, (1, 2), True, b"state" * 9)


def opened(path: Path) -> NodeStore:
    return NodeStore(path, entropy=7, segment_bytes=64 << 10, wal_bytes_max=2 << 20)


def entries(*numbers: int, term: int = 2) -> tuple[Entry, ...]:
    return tuple(Entry(n, term, data=b"%d" % n * 900) for n in numbers)


def test_the_copy_of_a_node_that_does_not_run(tmp_path: Path) -> None:
    store = opened(tmp_path / "n")
    old = GroupLog.create(store, 1, Base(membership=Membership(voters=(1,))))
    old.write(Write(1, entries=entries(1, 2)))
    log = GroupLog.create(store, 2, BASE)
    # Rolled back in the middle of a batch, and over several segments.
    log.write(Write(1, entries=entries(4, 5, 6)))
    hard = HardState(4, 1, 5)
    for at in range(5, 90, 5):
        log.write(Write(at, entries=entries(*range(at, at + 5), term=4)))
    log.write(Write(99, hard_state=hard))
    store.sync()
    del log, old
    store.close()
    before = {p.name: p.read_bytes() for p in (tmp_path / "n").glob("*[A-Z]")}
    expected = (*entries(4), *entries(*range(5, 90), term=4))
    assert read_copy(tmp_path / "n", 5) == Copy(5, 2, Stored(BASE, expected, hard))
    with write_locked(tmp_path / "n"):
        found = read_copy(tmp_path / "n", 5, locked=True)
    assert found is not None
    assert found.stored.entries == expected
    assert {p.name: p.read_bytes() for p in (tmp_path / "n").glob("*[A-Z]")} == before


def test_a_directory_without_a_copy(tmp_path: Path) -> None:
    opened(tmp_path / "n").close()
    assert read_copy(tmp_path / "n", 1) is None
    with pytest.raises(NotFoundError):
        read_copy(tmp_path / "none", 1)


def test_a_copy_that_is_damaged(tmp_path: Path) -> None:
    store = opened(tmp_path / "n")
    log = GroupLog.create(store, 1, BASE)
    for at in range(4, 40, 5):
        log.write(Write(at, entries=entries(*range(at, at + 5))))
    store.sync()
    store.close()
    [first, *_] = sorted((tmp_path / "n" / "wal").glob("*.wal"))
    data = bytearray(first.read_bytes())
    data[20_000:20_100] = b"\xff" * 100
    first.write_bytes(data)
    with pytest.raises(CorruptionError):
        read_copy(tmp_path / "n", 1)


def test_a_seed_is_what_the_document_says_and_what_was_written(tmp_path: Path) -> None:
    write_seed(tmp_path, SEED)
    written = (tmp_path / "RESCUED").read_bytes()
    said = Layouts.of(FORMATS).head("rescued", written)
    assert said["magic"].to_bytes(4, "little") == b"BRSC"
    assert said["format"] == 1
    digest = hashlib.blake2b(written[40:], digest_size=32).digest()
    assert written[8:40] == digest == digest_of(SEED)
    assert msgspec.msgpack.decode(written[40:]) == [2, 9, [1, 2], True, b"state" * 9]
    assert read_seed(tmp_path, digest) == SEED
    other = replace_epoch(SEED)
    write_seed(tmp_path, other)
    assert read_seed(tmp_path, digest_of(other)) == other
    assert [path.name for path in tmp_path.iterdir()] == ["RESCUED"]


def replace_epoch(seed: GroupStart) -> GroupStart:
    return msgspec.structs.replace(seed, epoch=3)


def test_a_seed_that_is_not_the_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptionError, match="the node needs it to start"):
        read_seed(tmp_path, digest_of(SEED))
    write_seed(tmp_path, SEED)
    with pytest.raises(CorruptionError, match="differs from what the rescue wrote"):
        read_seed(tmp_path, digest_of(replace_epoch(SEED)))
    path = tmp_path / "RESCUED"
    written = path.read_bytes()
    path.write_bytes(written[:4] + struct.pack("<I", 2) + written[8:])
    with pytest.raises(NewerFormatError):
        read_seed(tmp_path, digest_of(SEED))
    path.write_bytes(written[:20])
    with pytest.raises(CorruptionError):
        read_seed(tmp_path, digest_of(SEED))
