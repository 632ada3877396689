"""The tables of a first node, made of a backup of a directory or a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from braidlog import _native
from braidlog.backup import restored as parts
from braidlog.backup.layout import Backup, BackupIndex
from braidlog.backup.place import Place, place_of
from braidlog.errors import BackupDamagedError, InvalidArgumentError, TooLargeError
from braidlog.faultlog.scan import scan
from braidlog.metarepo.machine.state import State, decode_state
from braidlog.node.rescue import restored_tables
from braidlog.node.rescue.files import read_seed
from braidlog.node.rescue.restored import Wanted, restore_node
from braidlog.node.rescue.ring import read_ring
from braidlog.node.tables.engine import ScanBounds
from braidlog.node.tables.native_engine import NativeEngine
from braidlog.testing import MemoryStore
from braidlog.wire.tables import IndexStatus
from unit.backup.kept import flush, keep, put

WANTED = Wanted("shop", node=3)
Rows = list[tuple[int, bytes | None, bytes | None]]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return place_of(tmp_path / "place")


@pytest.fixture
def wanted(place: Place) -> tuple[Backup, Rows]:
    """A table that has more than its log, and an index that was made later."""
    with MemoryStore(segment_bytes=64 << 10, wal_bytes_max=64 << 20) as store:
        keep(store)
        put(store, 1, 120)
        flush(store, merge=True)
        with store.ddl() as change:
            change.create_index("stock", "later", "json:/n:int")
        assert store.table("stock").index("later").wait(timeout=30)
        put(store, 120, 150)
        flush(store)
        log = store.log("orders")
        log.trim(before=140)
        found = [(r.position, r.key, r.value) for r in store.table("stock").scan()]
        return store.backup(place.location), found


def make(place: Place, backup: Backup, target: Path, asked: Wanted = WANTED) -> Any:
    return restore_node(place, backup, target, asked, now=1)


def state_of(target: Path) -> State:
    record = scan(read_ring(target), path=str(target)).newest
    assert record is not None
    return decode_state(read_seed(target, record.state).state)


def test_the_node_is_a_host_that_has_all(
    place: Place, wanted: tuple[Backup, Rows], tmp_path: Path
) -> None:
    (backup, rows), target = wanted, tmp_path / "node"
    done = make(place, backup, target)
    assert done.tables == 1
    state = state_of(target)
    ((identity, info),) = state.tables.items()
    (listed,) = backup.tables
    assert (info.name, info.table.hex(), info.table) == ("stock", listed.id, identity)
    assert (info.hosts, info.joined, info.replicas) == ((3,), (3,), 0)
    assert (info.begin, info.created) == (listed.start, listed.created)
    assert [(i.name, i.status) for i in info.indexes] == [
        ("by_city", IndexStatus.ACTIVE),
        ("by_both", IndexStatus.ACTIVE),
        ("later", IndexStatus.ACTIVE),
    ]
    bases = (target / "tables" / listed.id / "BASES").read_bytes()
    assert dict(_native.table_bases(bases, int(listed.id, 16))) == {
        int(index.tree, 16): index.position - 1 for index in listed.indexes
    }
    log = state.logs[info.log]
    pin = log.cursors[f"table:{listed.id}:3"]
    assert (pin.position, pin.pin, pin.lease) == (listed.pin, True, 0)
    assert log.trim <= pin.position <= log.high_watermark + 1

    engine = NativeEngine(target / "tables")
    assert engine.files.has(identity)
    table = engine.open(info, log.trim)
    try:
        # It wants its last record once more, to see whether the log still has it.
        assert table.flushed == table.applied + 1 == log.high_watermark
        seen = table.scan_rows(ScanBounds(b"", b"", None, False, 99, 1 << 20), 0)
        found = _native.rows_records(seen.batch, seen.positions)
        assert [(r.position, r.key, r.value) for r in found] == rows
        for index in info.indexes:
            bounds = ScanBounds(index.tree, b"", None, False, 99, 1 << 20)
            by = table.scan_rows(bounds, 0)
            assert sorted(by.positions) == sorted(seen.positions)
        table.verify(lambda _: True)
    finally:
        table.close()


def test_tables_can_be_left_out(
    place: Place, wanted: tuple[Backup, Rows], tmp_path: Path
) -> None:
    target = tmp_path / "node"
    done = make(place, wanted[0], target, replace(WANTED, without_tables=True))
    state = state_of(target)
    assert (done.tables, state.tables) == (0, {})
    assert [*next(iter(state.logs.values())).cursors] == []
    assert not (target / "tables").exists()


def test_indexes_keep_their_state(
    place: Place, wanted: tuple[Backup, Rows], tmp_path: Path
) -> None:
    backup = wanted[0]
    (table,) = backup.tables
    more = (
        BackupIndex("building", "value", "a" * 32, False, table.pin),
        BackupIndex("aborted", "value", "b" * 32, False, table.pin, "no room"),
    )
    changed = replace(table, indexes=(*table.indexes, *more), replicas=2)
    make(place, replace(backup, tables=(changed,)), tmp_path / "node")
    (info,) = state_of(tmp_path / "node").tables.values()
    assert info.replicas == 2
    assert [(i.status, i.reason) for i in info.indexes[3:]] == [
        (IndexStatus.BUILDING, ""),
        (IndexStatus.ABORTED, "no room"),
    ]


def test_damaged_files_are_named(
    place: Place, wanted: tuple[Backup, Rows], tmp_path: Path
) -> None:
    backup, target = wanted[0], tmp_path / "node"
    path = tmp_path / "place" / backup.tables[0].files[0].path
    good = path.read_bytes()
    for bad in (good[:-1], good[:9] + bytes([good[9] ^ 1]) + good[10:]):
        path.write_bytes(bad)
        with pytest.raises(BackupDamagedError) as caught:
            make(place, backup, target)
        assert caught.value.path == str(path)
        assert not target.exists()
    path.unlink()
    with pytest.raises(BackupDamagedError, match="is missing"):
        make(place, backup, target)
    path.write_bytes(good)
    make(place, backup, target)
    assert len(state_of(target).tables) == 1


def test_a_restore_that_stops_among_tables_leaves_no_directory(
    place: Place, wanted: tuple[Backup, Rows], tmp_path: Path
) -> None:
    backup, target = wanted[0], tmp_path / "node"
    placed = parts.place_table
    count = sum(1 for _ in backup.tables[0].files)
    for stop in range(count):

        def stopping(*arguments: Any, stop: int = stop) -> Any:
            for number, size in enumerate(placed(*arguments)):
                if number == stop:
                    raise KeyboardInterrupt
                yield size

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(restored_tables, "place_table", stopping)
            with pytest.raises(KeyboardInterrupt):
                make(place, backup, target)
        assert not target.exists()
    make(place, backup, target)
    assert len(state_of(target).tables) == 1
    assert not (tmp_path / "node.restoring").exists()


def test_what_no_cluster_can_have_is_refused(
    place: Place,
    wanted: tuple[Backup, Rows],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backup, target = wanted[0], tmp_path / "node"
    for name, most in (
        ("TABLES_MAX", 0),
        ("CURSORS_MAX", 0),
        ("OPTIONS_BYTES_MAX", 3),
        ("INDEXES_MAX", 2),
        ("FIELD_BYTES_MAX", 5),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(restored_tables, name, most)
            with pytest.raises(TooLargeError, match=f"{most} at most") as caught:
                make(place, backup, target)
            assert "--without-tables" in caught.value.hint
            make(place, backup, tmp_path / name, replace(WANTED, without_tables=True))
    for count in (-1, 10):
        changed = replace(backup.tables[0], replicas=count)
        with pytest.raises(InvalidArgumentError, match="wants to be on"):
            make(place, replace(backup, tables=(changed,)), target)
    assert not target.exists()
