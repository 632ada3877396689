"""Damaged and missing files of a backup, and of its source."""

from __future__ import annotations

from pathlib import Path

import pytest

import braidlog
from braidlog import _native
from braidlog.backup import backups, damaged, delete, restore, verify
from braidlog.backup import run as runs
from braidlog.backup.layout import Backup
from braidlog.backup.place import place_of
from braidlog.errors import (
    BackupDamagedError,
    MissingFileError,
    NewerFormatError,
)
from braidlog.testing import MemoryStore
from unit.backup.made import contents, fill, left_in


@pytest.mark.parametrize(
    "harm", ["missing", "short", "long", "flipped", "position", "other"]
)
def test_damaged_parts_are_named_and_not_restored(
    one: Backup, store: MemoryStore, place: Path, harm: str
) -> None:
    path = place / one.parts[0].path
    good = path.read_bytes()
    match harm:
        case "missing":
            path.unlink()
        case "short":
            path.write_bytes(good[:-1])
        case "long":
            path.write_bytes(good + b"\0")
        case "flipped":
            path.write_bytes(good[:500] + bytes([good[500] ^ 1]) + good[501:])
        case "position":
            # Of the last batch; no checksum of a batch covers it.
            at = 16 + 32
            for *_, batch in _native.part_entries(good)[:-1]:
                at += 24 + len(batch)
            path.write_bytes(good[:at] + bytes([good[at] + 1]) + good[at + 1 :])
            assert _native.check_part(path.read_bytes())[:2] == (
                int(one.logs[0].id, 16),
                1,
            )
        case "other":
            path.write_bytes(bytes(len(good)))
    (finding,) = verify(place).findings
    assert (finding.path, finding.log) == (str(path), "orders")
    target = place.parent / "restored"
    with pytest.raises(BackupDamagedError) as caught:
        restore(place, target)
    assert caught.value.path == str(path)
    with pytest.raises(MissingFileError, match="did not finish"):
        braidlog.open(target)
    with pytest.raises(MissingFileError, match="did not finish"):
        braidlog.open(target, read_only=True)
    # The same call goes through when the file is back.
    path.write_bytes(good)
    restore(place, target)
    with braidlog.open(target) as other:
        assert contents(other.log("orders")) == contents(store.log("orders"))


def test_a_damaged_list_is_refused_at_every_byte(one: Backup, place: Path) -> None:
    path = place / "lists" / f"{one.id}.json"
    good = path.read_bytes()
    for at in range(0, len(good) - 1, 7):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert backups(place) == []
        assert list(damaged(place)) == [one.id]
        with pytest.raises((BackupDamagedError, NewerFormatError)):
            restore(place, place.parent / "restored")
        assert not (place.parent / "restored").exists()
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises(BackupDamagedError):
        verify(place, one.id)


def test_a_damaged_newest_list_does_not_make_an_older_one_the_newest(
    one: Backup, store: MemoryStore, place: Path
) -> None:
    bad = "29990101T000000Z-00000000"
    store.log("orders").append_many([bytes(10_000)] * 120)
    two = store.backup(place)
    (place / "lists" / f"{bad}.json").write_text("{}")
    with pytest.raises(BackupDamagedError):
        restore(place, place.parent / "restored")
    # What can be read stays what it is, and nothing is removed that it may need.
    assert restore(place, place.parent / "restored", one.id).records == 30
    assert store.backup(place).base == two.id
    assert runs.collect(place_of(place)) == 0
    assert delete(place, bad) == 0


def test_a_newer_list_is_refused(one: Backup, place: Path) -> None:
    path = place / "lists" / f"{one.id}.json"
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":3'))
    with pytest.raises(NewerFormatError, match="upgrade"):
        verify(place, one.id)


def test_damage_at_the_source_is_found_when_it_is_copied(
    store: MemoryStore, place: Path
) -> None:
    fill(store)
    disk = store._options["disk"]
    path = next(p for p, size in disk.files() if p.endswith("slot-000001.wal"))
    at = disk.read(path).index(b"v20v20v20")
    disk.flip_bit(path, at, 1)
    with pytest.raises(braidlog.errors.CorruptionError) as caught:
        store.backup(place)
    assert "slot-000001.wal" in str(caught.value)
    assert left_in(place) == []
