"""Backups of a directory: what they hold, and increments."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog import Log, Producer
from braidlog.backup import backups, delete, restore, verify
from braidlog.backup import directory as directories
from braidlog.backup.layout import Backup
from braidlog.errors import (
    AlreadyExistsError,
    BackupDamagedError,
    DeadlineError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from braidlog.testing import MemoryStore
from unit.backup.made import contents, fill, left_in

PRODUCER = Producer(7, 2)


def test_a_restored_directory_has_everything(store: MemoryStore, place: Path) -> None:
    log = store.create_log("orders", compression="zstd", retention_ms=10**12)
    log.append_many([b"%d" % i for i in range(50)], producer=PRODUCER, sequence=1)
    log.append(b"", key=b"", headers=[("h", b"1"), ("h", b"2")], timestamp=-5)
    cursor = log.cursor("billing", pin=True, lease=100.0)
    cursor.commit(21)
    log.trim(before=11)
    empty = store.create_log("empty")
    empty.append(b"gone")
    empty.trim(before=2)
    made = store.backup(place)
    assert (made.records, made.base) == (41, None)
    assert made.new_bytes == made.bytes == verify(place).bytes

    target = place.parent / "restored"
    done = restore(place, target)
    assert (done.records, done.logs, done.backup) == (41, 2, made.id)
    with braidlog.open(target) as other:
        found = other.log("orders")
        assert contents(found) == contents(log)
        assert (found.id, found.first, found.end) == (log.id, 11, 52)
        assert found.options == log.options
        assert vars_of(found) == vars_of(log)
        assert (other.log("empty").first, other.log("empty").end) == (2, 2)
        assert found.next_sequence(PRODUCER) == 51
        again = found.append_many([b"0", b"1"], producer=PRODUCER, sequence=30)
        assert again == range(30, 32)
        assert found.append(b"more") == 52


def vars_of(log: Log) -> list[tuple[Any, ...]]:
    return [(c.name, c.position, c.pin, c.lease, c.touched) for c in log.cursors()]


def test_null_values_come_back(store: MemoryStore, place: Path) -> None:
    log = store.create_log("orders")
    log.append_many([b"a", None, b"", None], keys=[b"1", b"2", b"3", None])
    log.append(None, key=b"4", headers={"h": None})
    store.backup(place)
    restore(place, place.parent / "restored")
    with braidlog.open(place.parent / "restored") as other:
        found = other.log("orders")
        assert contents(found) == contents(log)
        assert [r.value for r in found.read()] == [b"a", None, b"", None, None]
    # The digest of the last record tells null and empty values apart.
    assert store.backup(place).new_bytes == 0


def test_what_comes_later_is_not_in_it(store: MemoryStore, place: Path) -> None:
    log = fill(store)
    before = contents(log)
    made = store.backup(place)
    fill(store)
    log.trim(before=20)
    store.delete_log("orders")
    assert made.records == 30
    restore(place, place.parent / "restored")
    with braidlog.open(place.parent / "restored", read_only=True) as other:
        assert contents(other.log("orders")) == before


def test_a_follower_and_an_empty_store_can_be_backed_up(
    store: MemoryStore, place: Path
) -> None:
    nothing = store.backup(place)
    assert (nothing.logs, nothing.records) == ((), 0)
    restore(place, place.parent / "empty")
    with braidlog.open(place.parent / "empty") as other:
        assert other.logs() == []
        fill(other)
    fill(store)
    with store.reopen(read_only=True) as follower:
        made = follower.backup(place)
    assert (made.records, made.base) == (30, None)


def test_the_new_directory_has_an_identity_of_its_own(
    store: MemoryStore, place: Path
) -> None:
    fill(store)
    made = store.backup(place)
    restore(place, place.parent / "restored")
    with braidlog.open(place.parent / "restored") as other:
        mine = other.backup(place)
    assert mine.source.id != made.source.id
    # So its records are not taken for those of the source.
    assert mine.base is None
    assert {part.path for part in mine.parts}.isdisjoint(p.path for p in made.parts)


# -- increments ----------------------------------------------------------------------


def test_an_increment_copies_what_is_new(store: MemoryStore, place: Path) -> None:
    log = fill(store, count=1)
    log.append_many([bytes(10_000)] * 160)
    first = store.backup(place)
    nothing = store.backup(place)
    assert (nothing.base, nothing.new_bytes) == (first.id, 0)
    assert nothing.parts == first.parts
    log.append(b"new")
    more = store.backup(place, base=first.id)
    assert more.base == first.id
    assert 0 < more.new_bytes < 200
    assert more.parts[:-1] == first.parts
    whole = store.backup(place, base="none")
    assert whole.base is None
    assert whole.new_bytes == whole.bytes
    for number, each in enumerate(backups(place)):
        assert verify(place, each.id).findings == []
        restore(place, place.parent / str(number), each.id)
    with braidlog.open(place.parent / "2", read_only=True) as other:
        assert contents(other.log("orders")) == contents(log)


def test_small_parts_are_joined(store: MemoryStore, place: Path) -> None:
    fill(store)
    store.backup(place)
    for _ in range(5):
        fill(store, count=3)
        made = store.backup(place)
        assert len(made.parts) == 1
    assert made.records == 45


def test_trimmed_parts_are_let_go(
    store: MemoryStore, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "PART_BYTES", 2000)
    monkeypatch.setattr(directories, "_CHUNK_BYTES", 500)
    monkeypatch.setattr(directories, "SMALL_BYTES", 1)
    log = fill(store)
    first = store.backup(place)
    assert len(first.parts) > 5
    log.trim(before=17)
    made = store.backup(place)
    assert made.new_bytes == 0
    assert made.parts == first.parts[-len(made.parts) :]
    assert made.log_parts[0].begin <= 17 < made.log_parts[0].end
    removed = delete(place, first.id)
    assert removed == len(first.parts) - len(made.parts)
    restore(place, place.parent / "restored")
    with braidlog.open(place.parent / "restored", read_only=True) as other:
        assert contents(other.log("orders")) == contents(log)


def test_an_unknown_base_is_refused(store: MemoryStore, place: Path) -> None:
    fill(store)
    with pytest.raises(NotFoundError, match="there is no backup"):
        store.backup(place, base="20260101T000000Z-00000000")
    for wrong in ("../x", "", "latest"):
        with pytest.raises(InvalidArgumentError, match="not the name of a backup"):
            store.backup(place, base=wrong)
    made = store.backup(place)
    with MemoryStore() as other:
        fill(other)
        with pytest.raises(InvalidArgumentError, match="is of directory"):
            other.backup(place, base=made.id)
    assert [each.id for each in backups(place)] == [made.id]


def test_a_directory_that_was_put_back_is_copied_anew(
    tmp_path: Path, place: Path
) -> None:
    data = tmp_path / "data"
    with braidlog.open(data) as store:
        fill(store, count=5)
    shutil.copytree(data, tmp_path / "snapshot")
    with braidlog.open(data) as store:
        fill(store, count=5)
        first = store.backup(place)
    shutil.rmtree(data)
    shutil.move(tmp_path / "snapshot", data)
    with braidlog.open(data) as store:
        log = store.log("orders")
        with pytest.raises(InvalidArgumentError, match="put back to an earlier state"):
            store.backup(place, base=first.id)
        log.append_many([b"other"] * 10)
        with pytest.raises(InvalidArgumentError, match="put back to an earlier state"):
            store.backup(place, base=first.id)
        made = store.backup(place)
        assert (made.base, made.new_bytes) == (None, made.bytes)
        restore(place, tmp_path / "restored", made.id)
        with braidlog.open(tmp_path / "restored") as other:
            assert contents(other.log("orders")) == contents(log)
    assert verify(place, first.id).findings == []


def test_a_backup_on_top_of_missing_parts_is_refused(
    store: MemoryStore, place: Path
) -> None:
    fill(store)
    first = store.backup(place)
    (place / first.parts[0].path).unlink()
    with pytest.raises(BackupDamagedError, match="an earlier backup needs") as caught:
        store.backup(place)
    assert caught.value.path == str(place / first.parts[0].path)
    made = store.backup(place, base="none")
    assert verify(place, made.id).findings == []


# -- beside a writer that trims ------------------------------------------------------


def test_trims_meanwhile_lead_to_a_later_state(
    store: MemoryStore, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cursor and first position are of one state, however often it is taken."""
    log = fill(store)
    cursor = log.cursor("c")
    read = directories._Copy._read
    trims = iter([5, 11, 29])

    def trimming(self: Any, *arguments: Any) -> Any:
        if (first := next(trims, None)) is not None:
            cursor.commit(first)
            log.trim(before=first)
            self._follower.refresh()
        return read(self, *arguments)

    monkeypatch.setattr(directories._Copy, "_read", trimming)
    made = store.backup(place)
    (only,) = made.logs
    assert (only.first, only.end, only.cursors[0].position) == (29, 31, 29)
    assert verify(place).findings == []
    restore(place, place.parent / "restored")
    with braidlog.open(place.parent / "restored", read_only=True) as other:
        assert contents(other.log("orders")) == contents(log)


def test_a_log_that_is_deleted_meanwhile_is_not_there(
    store: MemoryStore, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    fill(store, "kept")
    read = directories._Copy._read

    def deleting(self: Any, *arguments: Any) -> Any:
        if "orders" in store.logs():
            store.delete_log("orders")
            self._follower.refresh()
        return read(self, *arguments)

    monkeypatch.setattr(directories._Copy, "_read", deleting)
    made = store.backup(place)
    assert [log.name for log in made.logs] == ["kept"]


def test_a_log_that_is_trimmed_too_fast_is_given_up(
    store: MemoryStore, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = fill(store)
    read = directories._Copy._read

    def trimming(self: Any, *arguments: Any) -> Any:
        log.append_many([b"x"] * 10)
        log.trim(before=log.end - 5)
        self._follower.refresh()
        return read(self, *arguments)

    monkeypatch.setattr(directories._Copy, "_read", trimming)
    with pytest.raises(DeadlineError, match="'orders' was trimmed") as caught:
        store.backup(place)
    assert "pinning cursor" in str(caught.value)
    assert left_in(place) == []


def test_recycled_segments_are_not_taken_for_damage(
    store: MemoryStore, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = fill(store)
    read = directories._Copy._read
    done: list[int] = []

    def recycling(self: Any, *arguments: Any) -> Any:
        if not done:
            done.append(1)
            first = log.end
            for _ in range(4):
                log.append_many([bytes(10_000)] * 40)
                log.trim(before=log.end - 3)
                store.maintain()
            assert log.first > first
        return read(self, *arguments)

    monkeypatch.setattr(directories._Copy, "_read", recycling)
    made = store.backup(place)
    assert made.logs[0].first == log.first
    assert verify(place).findings == []


def test_appends_go_on_while_it_is_made(tmp_path: Path, place: Path) -> None:
    with braidlog.open(tmp_path / "data", segment_bytes=1 << 20) as store:
        log = store.create_log("orders")
        stop = threading.Event()
        appended: list[int] = []

        def append() -> None:
            while not stop.is_set():
                appended.append(log.append(b"%d" % len(appended) * 50))

        thread = threading.Thread(target=append)
        thread.start()
        try:
            for _ in range(6):
                known = len(appended)
                made = store.backup(place)
                assert made.records >= known
        finally:
            stop.set()
            thread.join()
        assert appended == list(range(1, len(appended) + 1))
        for number, each in enumerate(backups(place)):
            target = tmp_path / f"restored{number}"
            restore(place, target, each.id)
            with braidlog.open(target, read_only=True) as other:
                found = contents(other.log("orders"))
            assert found == contents(log)[: each.records]


async def test_with_asyncio(tmp_path: Path, place: Path) -> None:
    async with braidlog.open_async(tmp_path / "data") as store:
        log = await store.create_log("orders")
        await log.append(b"tea")
        made = await store.backup(place)
    assert made.records == 1


# -- targets and places --------------------------------------------------------------


def test_nothing_is_overwritten(one: Backup, place: Path) -> None:
    target = place.parent / "target"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    with pytest.raises(AlreadyExistsError):
        restore(place, target)
    assert [p.name for p in target.iterdir()] == ["notes.txt"]
    (target / "notes.txt").unlink()
    restore(place, target)
    with pytest.raises(AlreadyExistsError):
        restore(place, target)
    with pytest.raises(NotFoundError, match="does not exist"):
        restore(place, target / "a" / "b")


def test_the_bound_can_be_another(one: Backup, place: Path) -> None:
    restore(place, place.parent / "as_it_was")
    with braidlog.open(place.parent / "as_it_was") as other:
        assert other.stats().wal_bytes_max == 64 << 20
    restore(place, place.parent / "larger", wal_bytes_max=128 << 20)
    with braidlog.open(place.parent / "larger") as other:
        assert other.stats().wal_bytes_max == 128 << 20
    with pytest.raises(InvalidArgumentError, match="four segments"):
        restore(place, place.parent / "small", wal_bytes_max=1)
    assert not (place.parent / "small").exists()


def test_places_that_are_none(store: MemoryStore, tmp_path: Path) -> None:
    fill(store)
    for wrong, error in (
        ("", InvalidArgumentError),
        ("nowhere://x/y", InvalidArgumentError),
        (tmp_path / "a" / "b", NotFoundError),
    ):
        with pytest.raises(error):
            store.backup(wrong)
    assert backups(tmp_path / "nothing") == []
    with pytest.raises(NotFoundError, match="there is no backup in") as missing:
        restore(tmp_path / "nothing", tmp_path / "target")
    assert "braidlog backup create" in missing.value.hint
    (tmp_path / "file").write_text("x")
    with pytest.raises(UnavailableError) as caught:
        store.backup(tmp_path / "file")
    assert str(tmp_path / "file") in caught.value.path


def test_what_others_put_there_stays(one: Backup, place: Path) -> None:
    (place / "parts" / "notes.txt").write_text("mine")
    (place / "lists" / "notes.json").write_text("mine")
    assert [each.id for each in backups(place)] == [one.id]
    delete(place, one.id)
    assert (place / "parts" / "notes.txt").exists()
    assert (place / "lists" / "notes.json").exists()


def test_the_directory_of_a_node_is_refused(tmp_path: Path, place: Path) -> None:
    from braidlog.store.node_store import NodeStore

    node = NodeStore(tmp_path / "node", entropy=1)
    node.create("stream.1")
    node.close()
    with (
        braidlog.open(tmp_path / "node", read_only=True) as store,
        pytest.raises(InvalidArgumentError, match="back up the cluster"),
    ):
        store.backup(place)


def test_progress_is_told(store: MemoryStore, place: Path) -> None:
    fill(store)
    told: list[tuple[int, int]] = []
    store.backup(place, progress=lambda *at: told.append(at))
    assert told[-1] == (30, 30)
    told.clear()
    verify(place, progress=lambda *at: told.append(at))
    restore(place, place.parent / "r", progress=lambda *at: told.append(at))
    assert all(done == total for done, total in (told[0], told[-1]))
