"""Damaged files of tables in a backup, lists that lie, and damage of the source."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import braidlog
from braidlog import _native
from braidlog.backup import restore, verify
from braidlog.backup.layout import Backup, decode, encode
from braidlog.errors import (
    BackupDamagedError,
    CorruptionError,
    InvalidArgumentError,
    MissingFileError,
)
from braidlog.testing import MemoryStore
from unit.backup.kept import flush, keep, put, seen
from unit.backup.made import left_in


@pytest.mark.parametrize("harm", ["missing", "short", "long", "flipped", "other"])
def test_damaged_files_are_named_and_not_restored(
    store: MemoryStore, place: Path, harm: str
) -> None:
    keep(store)
    put(store, 1, 60)
    flush(store)
    made = store.backup(place)
    one, other = made.tables[0].files[:2]
    path = place / one.path
    good = path.read_bytes()
    match harm:
        case "missing":
            path.unlink()
        case "short":
            path.write_bytes(good[:-1])
        case "long":
            path.write_bytes(good + b"\0")
        case "flipped":
            path.write_bytes(good[:50] + bytes([good[50] ^ 1]) + good[51:])
        case "other":
            path.write_bytes((place / other.path).read_bytes())
    (finding,) = verify(place).findings
    assert (finding.path, finding.table, finding.log) == (str(path), "stock", "orders")
    target = place.parent / "restored"
    with pytest.raises(BackupDamagedError) as caught:
        restore(place, target)
    assert caught.value.path == str(path)
    with pytest.raises(MissingFileError, match="did not finish"):
        braidlog.open(target)
    path.write_bytes(good)
    restore(place, target)
    with braidlog.open(target) as again:
        assert seen(again) == seen(store)


def listed_as(place: Path, made: Backup, changed: Backup) -> Path:
    """Write a list anew, with a checksum that is right."""
    path = place / "lists" / f"{made.id}.json"
    path.write_bytes(encode(changed))
    return path


def test_a_list_that_lies_about_files_is_refused(
    store: MemoryStore, place: Path
) -> None:
    keep(store)
    put(store, 1, 60)
    flush(store)
    made = store.backup(place)
    (table,) = made.tables
    first, *others = table.trees
    swapped = replace(first, runs=others[0].runs)
    mixed = replace(first, image=others[0].image)
    no_image = replace(first, image=first.image[:-1])
    for tree in (swapped, mixed, no_image, replace(first, flushed=58)):
        lying = replace(table, pin=50, trees=(tree, *others))
        wrong = replace(made, tables=(lying,))
        path = listed_as(place, made, wrong)
        (finding,) = verify(place).findings
        assert (finding.path, finding.table) == (str(path), "stock")
        with pytest.raises(BackupDamagedError):
            restore(place, place.parent / "restored")
        shutil.rmtree(place.parent / "restored")


def test_lists_that_make_no_sense_are_no_lists(store: MemoryStore, place: Path) -> None:
    keep(store)
    put(store, 1, 60)
    flush(store)
    put(store, 60, 70)
    made = store.backup(place)
    (table,) = made.tables
    assert decode(encode(made), "x") == made
    first, *others = table.trees
    for tables in (
        (table, table),
        (replace(table, log="ab" * 16),),
        (replace(table, pin=0),),
        (replace(table, pin=65),),
        (replace(table, trees=(replace(first, flushed=500), *others)),),
    ):
        with pytest.raises(InvalidArgumentError):
            replace(made, tables=tables)
    with pytest.raises(InvalidArgumentError):
        replace(table, trees=(first,))
    with pytest.raises(InvalidArgumentError):
        replace(table, trees=(first, first, *others[1:]))


def test_damage_of_the_source_is_no_backup(store: MemoryStore, place: Path) -> None:
    keep(store)
    put(store, 1, 60)
    flush(store)
    disk: _native.MemoryDisk = store._options["disk"]
    run = next(path for path, _ in disk.files() if path.endswith(".run"))
    disk.flip_bit(run, 40)
    with pytest.raises(CorruptionError) as caught:
        store.backup(place)
    assert str(caught.value.path).endswith(Path(run).name)
    assert left_in(place) == []
