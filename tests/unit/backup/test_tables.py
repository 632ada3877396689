"""Tables in backups: what comes back is what was there, whatever happens meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.backup import backups, delete, restore, verify
from braidlog.backup import run as runs
from braidlog.backup import tables as copies
from braidlog.backup.layout import encode, owner_of
from braidlog.backup.place import place_of
from braidlog.errors import DeadlineError
from braidlog.testing import MemoryStore
from unit.backup.kept import INDEXES, check, flush, history, keep, put, rows, seen
from unit.backup.made import back_up, contents, left_in
from unit.backup.places import Crash, Troubled, crashing_at


def test_a_table_comes_back_with_its_indexes(store: MemoryStore, place: Path) -> None:
    keep(store)
    put(store, 1, 120)
    flush(store)
    put(store, 120, 240)
    flush(store, merge=True)
    put(store, 240, 300)
    made = store.backup(place)
    assert [table.name for table in made.tables] == ["stock"]
    assert len(made.tables[0].files) >= 3
    check(place, {"stock": seen(store)})


def test_a_table_comes_back_although_its_log_was_trimmed(
    store: MemoryStore, place: Path
) -> None:
    keep(store)
    put(store, 1, 200)
    flush(store)
    log = store.log("orders")
    log.trim(before=log.end)
    assert log.first == log.end
    store.backup(place)
    check(place, {"stock": seen(store)})
    put(store, log.end, log.end + 10)
    store.backup(place)
    check(place, {"stock": seen(store)})


@pytest.mark.parametrize("count", [0, 5])
def test_a_table_without_files_comes_back(
    store: MemoryStore, place: Path, count: int
) -> None:
    keep(store)
    put(store, 1, 1 + count)
    made = store.backup(place)
    assert made.tables[0].files == ()
    check(place, {"stock": seen(store)})


def test_old_positions_come_back(store: MemoryStore, place: Path) -> None:
    keep(store, history=1000)
    put(store, 1, 90)
    flush(store, merge=True)
    put(store, 90, 130)
    wanted = history(store)
    assert len(wanted) == 129
    store.backup(place)
    restore(place, place.parent / "restored")
    with braidlog.open(place.parent / "restored") as other:
        assert history(other) == wanted


def test_an_increment_copies_new_files_only(store: MemoryStore, place: Path) -> None:
    keep(store)
    put(store, 1, 200)
    flush(store)
    first = store.backup(place)
    again = store.backup(place)
    assert (again.base, again.new_bytes) == (first.id, 0)
    assert again.tables[0].files == first.tables[0].files
    put(store, 200, 210)
    flush(store)
    more = store.backup(place)
    assert more.base == again.id
    files, known = set(more.tables[0].files), set(first.tables[0].files)
    assert known < files
    assert len(files - known) == 3  # One of each tree.
    wanted = {"stock": seen(store)}
    delete(place, first.id)
    check(place, wanted, more.id)
    delete(place, again.id)
    delete(place, more.id)
    assert left_in(place) == []


def test_a_directory_that_was_put_back_gives_its_numbers_again(
    tmp_path: Path,
) -> None:
    """Files of one number and length are of two pasts."""
    data, place = tmp_path / "data", tmp_path / "place"

    def filled(begin: int) -> Any:
        with braidlog.open(data) as store:
            put(store, begin, begin + 39)
            flush(store)
            found = seen(store)
            store.backup(place)
            return found

    with braidlog.open(data) as store:
        keep(store)
    shutil.copytree(data, tmp_path / "before")
    filled(1)
    shutil.rmtree(data)
    (tmp_path / "before").rename(data)
    wanted = filled(2)
    first, second = backups(place)
    assert {file.number for file in first.tables[0].files} == {
        file.number for file in second.tables[0].files
    }
    check(place, {"stock": wanted}, second.id)


def test_many_tables_of_one_log(store: MemoryStore, place: Path) -> None:
    keep(store)
    put(store, 1, 50)
    flush(store)
    keep(store, "later", begin=30, deletes="none")
    keep(store, "empty", begin=store.log("orders").end)
    put(store, 50, 90)
    flush(store)
    store.backup(place)
    check(place, {name: seen(store, name) for name in store.tables()})


def test_an_index_that_is_built_begins_again(store: MemoryStore, place: Path) -> None:
    keep(store)
    put(store, 1, 80)
    flush(store)
    # The upkeep of this store does not come to it.
    with store._table_host()._upkeeping:
        with store.ddl() as change:
            change.create_index("stock", "by_n", "json:/n:int")
        made = store.backup(place)
    (index,) = [i for i in made.tables[0].indexes if not i.active]
    assert index.name == "by_n"
    restore(place, place.parent / "restored")
    with braidlog.open(place.parent / "restored") as other:
        assert other.table("stock").index("by_n").wait(timeout=30)
        found = rows(other.table("stock").index("by_n"))
        assert sorted(found) == sorted(rows(store.table("stock")))
        assert len(found) > 5


def test_a_reader_backs_up_tables_beside_the_writer(
    store: MemoryStore, place: Path
) -> None:
    """Another process, which holds nothing: only what is in files and in the log."""
    keep(store, history=50)
    put(store, 1, 60)
    flush(store)
    put(store, 60, 70)
    with store.reopen(read_only=True) as reader:
        first = reader.backup(place)
        wanted = {"stock": seen(store)}
        put(store, 70, 90)
        flush(store, merge=True)
        second = reader.backup(place)
    check(place, wanted, first.id)
    check(place, {"stock": seen(store)}, second.id)


# -- beside a writer -----------------------------------------------------------------


def beside(
    monkeypatch: pytest.MonkeyPatch, work: Callable[[], object], times: int = 1
) -> list[int]:
    """Do something each time that a file was opened for its copy."""
    opened = copies.TableCopies._opened
    done: list[int] = []

    def opening(self: Any, *arguments: Any) -> Any:
        file = opened(self, *arguments)
        if len(done) < times:
            done.append(1)
            work()
        return file

    monkeypatch.setattr(copies.TableCopies, "_opened", opening)
    return done


def test_files_that_are_merged_meanwhile_are_replaced(
    store: MemoryStore, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(store)
    for n in range(4):
        put(store, 1 + n * 50, 51 + n * 50)
        flush(store)

    def work() -> None:
        put(store, 201, 230)
        flush(store, merge=True)
        store.log("orders").trim(before=store.log("orders").end)

    done = beside(monkeypatch, work)
    made = store.backup(place)
    assert done
    assert made.records == 0  # Of the state after the trim.
    check(place, {"stock": seen(store)})
    # The one whose file was gone already was still read to its end.
    named = {part.path for part in made.parts}
    assert set(left_in(place)) == named


def test_a_table_that_always_changes_is_given_up(
    store: MemoryStore, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(store)
    put(store, 1, 50)
    flush(store)

    take = copies.TableCopies.take

    def overtaken(self: Any) -> Any:
        taken = take(self)
        end = store.log("orders").end
        put(store, end, end + 20)
        flush(store, merge=True)
        store.log("orders").trim(before=store.log("orders").end)
        return taken

    monkeypatch.setattr(copies.TableCopies, "take", overtaken)
    with pytest.raises(DeadlineError, match="table 'stock' was changed"):
        store.backup(place)
    assert left_in(place) == []


@pytest.mark.parametrize("change", ["drop", "create", "index", "truncate", "rename"])
def test_changes_of_the_catalog_meanwhile(
    store: MemoryStore, place: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    keep(store)
    put(store, 1, 50)
    flush(store)

    def work() -> None:
        match change:
            case "drop":
                store.drop_table("stock")
                store._table_host().maintain()  # Its files are gone.
            case "create":
                keep(store, "more")
            case "index":
                with store.ddl() as changes:
                    changes.drop_index("stock", "by_both")
                    changes.create_index("stock", "by_both", INDEXES["by_both"])
                assert store.table("stock").index("by_both").wait(timeout=30)
            case "truncate":
                with store.ddl() as changes:
                    changes.truncate("stock")
                put(store, 51, 70)
            case "rename":
                with store.ddl() as changes:
                    changes.rename("stock", "goods")

    beside(monkeypatch, work)
    store.backup(place)
    check(place, {name: seen(store, name) for name in store.tables()})


# -- crashes -------------------------------------------------------------------------


def test_a_crash_of_a_backup_leaves_all_of_it_or_none(
    store: MemoryStore, place: Path
) -> None:
    keep(store)
    put(store, 1, 60)
    flush(store)
    known = [store.backup(place).id]
    put(store, 60, 90)
    flush(store)
    wanted = {"stock": seen(store)}
    count = 1
    while True:
        copy = place.with_name(f"crash{count}")
        shutil.copytree(place, copy)
        try:
            back_up(store, Troubled(copy, crashing_at(count)))
        except Crash:
            found = [each.id for each in backups(copy)]
            assert found[:1] == known
            for each in found:
                assert verify(copy, each).findings == []
            made = store.backup(copy)
            check(copy, wanted, made.id)
            for note in (copy / "running").glob("*.json"):
                note.write_text('{"until": 1, "base": null}')
            runs.collect(place_of(copy))
            named = {part.path for each in backups(copy) for part in each.parts}
            assert set(left_in(copy)) == named
        else:
            break
        count += 1
    assert count > 9  # A note, three files, records, the list.


# -- others --------------------------------------------------------------------------


def test_builds_without_tables_refuse_the_list_and_leave_the_files(
    store: MemoryStore, place: Path
) -> None:
    keep(store)
    put(store, 1, 60)
    flush(store)
    made = store.backup(place)
    assert b'"format":2' in encode(made)
    assert b'"format":1' in encode(replace(made, tables=()))
    for file in made.tables[0].files:
        assert owner_of(file.path) == made.id
        assert owner_of(f"{file.path}.tmp") == made.id
        # What an earlier build takes for a part ends like this.
        assert not file.path.endswith(".part")


def test_a_restored_directory_is_backed_up_in_full(
    store: MemoryStore, place: Path
) -> None:
    keep(store)
    put(store, 1, 60)
    flush(store)
    store.backup(place)
    target = place.parent / "first"
    restore(place, target)
    with braidlog.open(target) as other:
        wanted = {"stock": seen(other)}
        log = contents(other.log("orders"))
        made = other.backup(place)
    assert made.base is None
    check(place, wanted, made.id)
    assert log == contents(store.log("orders"))
