"""The directory of a first node, made of a backup of a directory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from braidlog import durable
from braidlog.backup.layout import Backup
from braidlog.backup.place import Place, place_of
from braidlog.errors import (
    AlreadyExistsError,
    BackupDamagedError,
    InvalidArgumentError,
    LockedError,
    NotFoundError,
    UnavailableError,
)
from braidlog.faultlog.scan import scan
from braidlog.metarepo.machine.state import decode_state
from braidlog.node.rescue import restored
from braidlog.node.rescue.fault_log import FaultLog
from braidlog.node.rescue.files import read_seed
from braidlog.node.rescue.restored import Wanted, restore_node
from braidlog.node.rescue.ring import read_ring
from braidlog.store.node_store import NodeStore
from braidlog.testing import MemoryStore

WANTED = Wanted("shop", node=3)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return place_of(tmp_path / "place")


@pytest.fixture
def backup(place: Place) -> Backup:
    with MemoryStore(segment_bytes=64 << 10, wal_bytes_max=16 << 20) as store:
        log = store.create_log("orders")
        for number in range(40):
            log.append(b"%d" % number * 400)
        log.trim(before=9)
        log.cursor("c", pin=True).commit(12)
        store.create_log("empty")
        return store.backup(place.location)


def make(
    place: Place, backup: Backup, target: Path, wanted: Wanted = WANTED, **more: Any
) -> Any:
    return restore_node(place, backup, target, wanted, now=1, **more)


def check(target: Path, streams: int = 1) -> None:
    record = scan(read_ring(target), path=str(target)).newest
    assert record is not None
    assert (record.cluster, record.node) == ("shop", 3)
    state = decode_state(read_seed(target, record.state).state)
    named = {log.name: log for log in state.logs.values()}
    orders = named["orders"]
    assert (orders.trim, orders.high_watermark, len(orders.streams)) == (9, 40, streams)
    assert orders.cursors["c"].position == 12
    assert state.stream_next == 2 * streams + 1
    store = NodeStore(target, entropy=1)
    try:
        assert store.streams() == list(range(1, 2 * streams + 1))
        replica = store.open(f"stream.{orders.streams[0]}")
        low, committed, following, *_, context = replica.native.state(replica.number)
        assert (low, committed, following) == (9, 41, 41)
        assert context[-1] == 40
        assert replica.native.runs(replica.number, 9, 41) == [(9, 9, 32)]
    finally:
        store.close()


def test_the_directory_has_all_that_a_cluster_begins_with(
    place: Place, backup: Backup, tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []
    done = make(place, backup, tmp_path / "node", progress=lambda *at: told.append(at))
    assert (done.records, done.logs) == (32, 2)
    assert told[-1] == (backup.bytes, backup.bytes)
    check(tmp_path / "node")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["node", "place"]
    make(place, backup, tmp_path / "more", Wanted("shop", node=3, streams=4))
    check(tmp_path / "more", streams=4)


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(""),
        Wanted("shop", node=0),
        Wanted("shop", streams=0),
        Wanted("shop", replication=0),
        Wanted("shop", replication=10),
        Wanted("shop", streams=100_000),
    ],
)
def test_settings_that_make_no_sense_change_nothing(
    place: Place, backup: Backup, tmp_path: Path, wanted: Wanted
) -> None:
    with pytest.raises(InvalidArgumentError):
        make(place, backup, tmp_path / "node", wanted)
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


def test_nothing_is_overwritten(place: Place, backup: Backup, tmp_path: Path) -> None:
    target = tmp_path / "node"
    target.mkdir()
    (target / "mine").touch()
    with pytest.raises(AlreadyExistsError):
        make(place, backup, target)
    with pytest.raises(NotFoundError, match="does not exist"):
        make(place, backup, tmp_path / "a" / "b")
    (target / "mine").unlink()
    aside = tmp_path / "node.restoring"
    aside.mkdir()
    (aside / "data").mkdir()
    with pytest.raises(AlreadyExistsError, match="already exists"):
        make(place, backup, target)
    shutil.rmtree(aside)
    make(place, backup, target)
    check(target)
    with pytest.raises(AlreadyExistsError):
        make(place, backup, target)


def stopping(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, stop)


STEPS: list[Callable[[pytest.MonkeyPatch], None]] = [
    lambda m: stopping(m, durable, "replace"),
    lambda m: stopping(m, restored, "NodeStore"),
    lambda m: stopping(m, restored._Node, "_place_batch"),
    lambda m: stopping(m, restored._Node, "_commit"),
    lambda m: stopping(m, NodeStore, "sync"),
    lambda m: stopping(m, restored, "write_seed"),
    lambda m: stopping(m, FaultLog, "record"),
    lambda m: stopping(m, durable, "move"),
]


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_a_restore_that_stops_anywhere_leaves_no_directory(
    place: Place, backup: Backup, tmp_path: Path, step: int
) -> None:
    """Nothing cleans up behind it, as after a kill; the same call goes through."""
    target = tmp_path / "node"
    with pytest.MonkeyPatch.context() as patched:
        STEPS[step](patched)
        with pytest.raises(KeyboardInterrupt):
            make(place, backup, target)
    assert not target.exists()
    make(place, backup, target)
    check(target)
    assert not (tmp_path / "node.restoring").exists()


def test_two_restores_exclude_each_other(
    place: Place, backup: Backup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = restored._Node.filled
    seen: list[int] = []

    def beside(self: Any) -> Any:
        if not seen:
            seen.append(1)
            with pytest.raises(LockedError):
                make(place, backup, tmp_path / "node")
        return filled(self)

    monkeypatch.setattr(restored._Node, "filled", beside)
    make(place, backup, tmp_path / "node")
    check(tmp_path / "node")


def test_a_damaged_part_is_named(place: Place, backup: Backup, tmp_path: Path) -> None:
    path = tmp_path / "place" / backup.parts[0].path
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BackupDamagedError) as caught:
        make(place, backup, tmp_path / "node")
    assert caught.value.path == str(path)
    assert not (tmp_path / "node").exists()


def test_what_the_system_refuses_is_named(
    place: Place, backup: Backup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "move", full)
    with pytest.raises(UnavailableError, match="No space left") as caught:
        make(place, backup, tmp_path / "node")
    assert str(tmp_path / "node") in caught.value.path
