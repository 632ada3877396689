"""Crashes, full disks, and other runs beside a backup."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog import Store, durable
from braidlog.backup import backups, damaged, delete, restore, verify
from braidlog.backup import directory as directories
from braidlog.backup import run as runs
from braidlog.backup.layout import Backup
from braidlog.backup.place import place_of
from braidlog.errors import (
    BackupDamagedError,
    NotReadyError,
    UnavailableError,
)
from braidlog.testing import MemoryStore
from unit.backup.made import back_up, contents, fill, left_in
from unit.backup.places import Crash, Troubled, crashing_at, full_at


def crashes(store: Store, place: Path, work: Any) -> Iterator[tuple[int, Path]]:
    """Do work on a copy of the place, and crash before each of its changes."""
    count = 1
    while True:
        copy = place.with_name(f"crash{count}")
        shutil.rmtree(copy, ignore_errors=True)
        if place.exists():
            shutil.copytree(place, copy)
        troubled = Troubled(copy, crashing_at(count))
        try:
            work(troubled)
        except Crash:
            yield count, copy
        else:
            return
        count += 1


def check_recovered(store: Store, place: Path, known: list[str]) -> None:
    """Whatever the crash left: whole backups, and no rest for longer than a lease."""
    whole = [each.id for each in backups(place)]
    assert whole[: len(known)] == known
    assert len(whole) <= len(known) + 1
    assert damaged(place) == {}
    for each in whole:
        assert verify(place, each).findings == []
    made = store.backup(place)
    assert verify(place, made.id).findings == []
    # The lease of the dead run is not over yet; when it is, nothing of it stays.
    for note in (place / "running").glob("*.json"):
        note.write_text('{"until": 1, "base": null}')
    runs.collect(place_of(place))
    named = {part.path for each in backups(place) for part in each.parts}
    assert set(left_in(place)) == named
    target = place.with_name("target")
    restore(place, target, made.id)
    with braidlog.open(target, read_only=True) as other:
        for name in store.logs():
            assert contents(other.log(name)) == contents(store.log(name))
    shutil.rmtree(target)


@pytest.mark.parametrize("before", [0, 1])
def test_a_crash_of_a_backup_leaves_all_of_it_or_none(
    store: MemoryStore, place: Path, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "SMALL_BYTES", 1)
    fill(store)
    fill(store, "other")
    known = [store.backup(place).id] if before else []
    fill(store)
    seen = 0
    for _, copy in crashes(store, place, lambda troubled: back_up(store, troubled)):
        check_recovered(store, copy, known)
        seen += 1
    assert seen >= 7


def test_a_crash_of_a_deletion_leaves_whole_backups(
    store: MemoryStore, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "SMALL_BYTES", 1)
    fill(store)
    first = store.backup(place).id
    fill(store, "other")
    second = store.backup(place).id
    seen = 0
    for work, stays in (((first), second), ((second), first)):
        for _, copy in crashes(store, place, lambda t, w=work: runs.delete(t, w)):
            left = [each.id for each in backups(copy)]
            assert stays in left
            check_recovered(store, copy, left)
            seen += 1
    assert seen >= 2


def test_a_full_disk_is_named_and_leaves_nothing(
    store: MemoryStore, place: Path
) -> None:
    fill(store)
    first = store.backup(place)
    fill(store, "other")
    for count in range(1, 6):
        troubled = Troubled(place, full_at(count, place))
        with pytest.raises(UnavailableError) as caught:
            back_up(store, troubled)
        assert caught.value.path == str(place)
        assert [each.id for each in backups(place)] == [first.id]
        troubled.before = lambda _: None
    for note in (place / "running").glob("*.json"):
        note.write_text("{}")
    runs.collect(place_of(place))
    assert set(left_in(place)) == {part.path for part in first.parts}


def test_a_failing_disk_gives_back_what_was_written(
    store: MemoryStore, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)

    def failing(self: Any, backup: Backup) -> Backup:
        raise UnavailableError("no")

    monkeypatch.setattr(runs.BackupRun, "publish", failing)
    with pytest.raises(UnavailableError):
        store.backup(place)
    assert left_in(place) == []


def test_a_list_of_unknown_outcome_keeps_its_parts(
    store: MemoryStore, place: Path
) -> None:
    """The name is made, but its directory could not be synced: it may be there."""
    fill(store)

    failed: list[int] = []

    def failing(change: int) -> None:
        lists = place / "lists"
        if not failed and lists.exists() and list(lists.glob("*.json")):
            failed.append(change)
            raise UnavailableError("no")

    with pytest.raises(UnavailableError):
        back_up(store, Troubled(place, failing))
    (made,) = backups(place)
    assert verify(place, made.id).findings == []


def test_what_is_copied_is_spared_while_the_lease_lasts(
    store: MemoryStore, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second backup, and a deletion, beside a run that is in the middle."""
    fill(store)
    first = store.backup(place)
    fill(store, "other")
    publish = runs.BackupRun.publish
    nested: list[Backup] = []

    def beside(self: Any, backup: Backup) -> Backup:
        if not nested:
            nested.append(backup)
            with pytest.raises(NotReadyError, match="on top of"):
                delete(place, first.id)
            nested.append(store.backup(place, base="none"))
            assert runs.collect(self.place) == 0
        return publish(self, backup)

    monkeypatch.setattr(runs.BackupRun, "publish", beside)
    made = store.backup(place)
    for each in (first, made, nested[1]):
        assert verify(place, each.id).findings == []


def test_a_base_that_goes_meanwhile_is_missed(
    store: MemoryStore, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease of a run ended while it slept: it fails, it does not lie."""
    fill(store)
    first = store.backup(place)
    publish = runs.BackupRun.publish

    def sleepy(self: Any, backup: Backup) -> Backup:
        for note in (place / "running").glob("*.json"):
            note.write_text('{"until": 1, "base": null}')
        delete(place, first.id)
        return publish(self, backup)

    monkeypatch.setattr(runs.BackupRun, "publish", sleepy)
    with pytest.raises(BackupDamagedError, match="is missing"):
        store.backup(place)
    assert backups(place) == []


def test_a_run_that_ends_takes_no_directory_from_one_that_begins(
    store: MemoryStore, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs remove directories that are empty, and others are about to write there."""
    fill(store)
    make, others = durable.make_directory, place_of(place)
    removed: list[Path] = []

    def making(path: Path) -> None:
        make(path)
        if path not in removed:
            removed.append(path)
            others.remove(f"{path.relative_to(place).as_posix()}/nothing")

    monkeypatch.setattr(durable, "make_directory", making)
    made = store.backup(place)
    assert {path.name for path in removed} >= {"running", made.logs[0].id}
    assert verify(place).findings == []


def test_a_directory_that_is_always_removed_is_named(
    store: MemoryStore, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    make, others = durable.make_directory, place_of(place)

    def making(path: Path) -> None:
        make(path)
        others.remove(f"{path.relative_to(place).as_posix()}/nothing")

    monkeypatch.setattr(durable, "make_directory", making)
    with pytest.raises(UnavailableError, match="removed again and again"):
        store.backup(place)
