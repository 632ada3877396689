"""Buildings of indexes, and files of tables that are lost or of nobody."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import braidlog
from braidlog.errors import (
    InvalidArgumentError,
    LogError,
    MissingFileError,
    NotFoundError,
    TrimmedError,
    UnavailableError,
)
from braidlog.store.tables.host import UPKEEP_S
from braidlog.store.tables.opened import OpenTable
from unit.store.tables.stock import INDEXES, put


def files_of(store: braidlog.Store) -> set[str]:
    """Return the directories of tables and of their trees."""
    tables = store.path / "tables"
    found = (path for path in tables.rglob("*") if path.is_dir())
    return {path.relative_to(tables).as_posix() for path in found}


def test_what_a_building_reads_is_kept_while_others_write(
    store: braidlog.Store,
) -> None:
    stock = store.create_table("stock", log="orders")
    for number in range(300):
        put(store, b"%04d" % number, "old", number)
    host = store._table_host()
    with host._upkeeping:  # So that nothing is built yet.
        with store.ddl() as change:
            change.create_index("stock", "late", "json:/city")
        for number in range(300):
            put(store, b"%04d" % number, "new", number)
        stock.flush()
        while host.native(host.entry("stock")).merge():
            pass
        assert store.log("orders").trim(301) <= 301
        assert stock.describe().oldest <= 300
    assert stock.index("late").wait(timeout=60)
    assert len(list(stock.index("late").get("new"))) == 300
    stock.flush()
    assert stock.describe().oldest == 600


def test_an_index_is_dropped_and_created_by_one_change(store: braidlog.Store) -> None:
    stock = store.create_table("stock", log="orders", indexes=INDEXES)
    put(store, b"tea", "Oslo", 1)
    with store.ddl() as change:
        change.drop_index("stock", "by_city")
        change.create_index("stock", "by_city", "json:/price:float")
    assert stock.index("by_city").wait(timeout=60)
    assert [record.key for record in stock.index("by_city").get(1.0)] == [b"tea"]
    assert stock.verify() == (1, 2)


def test_a_change_that_is_refused_begins_nothing(store: braidlog.Store) -> None:
    store.create_table("stock", log="orders")
    before = files_of(store)
    host = store._table_host()
    entry = host.entry("stock")
    build = ("build", entry.id, 7, "late", b"json:/city", None)
    with pytest.raises(NotFoundError):
        host.commit([build, ("drop", 99)])
    assert host.native(entry).trees == [entry.primary]
    host.maintain()
    assert files_of(store) == before


def test_an_index_that_must_be_whole_is_given_up(store: braidlog.Store) -> None:
    stock = store.create_table("stock", log="orders")
    position = store.log("orders").append(b"no json", key=b"tea")
    with store._table_host()._upkeeping:  # So that it is not given up yet.
        with store.ddl() as change:
            change.create_index("stock", "late", "strict json:/city")
        late = stock.index("late")
    with pytest.raises(InvalidArgumentError, match=f"position {position}"):
        late.wait(timeout=60)
    assert stock.describe().indexes == ()


def test_an_index_whose_files_are_gone_is_built_anew(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "d") as store:
        store.create_log("orders")
        stock = store.create_table("stock", log="orders", indexes=INDEXES)
        for number in range(50):
            put(store, b"%04d" % number, f"c{number % 3}", number)
        stock.flush()
        store.log("orders").trim(40)
        [index] = [each for each in stock._current().indexes if each.name == "by_city"]
        path = store.path / "tables" / f"{stock._entry.id:032x}" / f"{index.tree:032x}"
    shutil.rmtree(path)
    with braidlog.open(tmp_path / "d") as store:
        stock = store.table("stock")
        assert stock.index("by_city").wait(timeout=60)
        assert len(list(stock.index("by_city").get("c1"))) == 17
        assert stock.verify() == (50, 100)
        assert stock.describe().failure is None


def test_a_table_whose_files_are_gone_is_missing(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "d") as store:
        store.create_log("orders")
        stock = store.create_table("stock", log="orders")
        store.create_table("other", log="orders")
        put(store, b"tea", "Oslo", 1)
        put(store, b"milk", "Oslo", 1)
        stock.flush()
        store.table("other").flush()
        store.log("orders").trim(2)
        path = store.path / "tables" / f"{stock._entry.id:032x}"
    shutil.rmtree(path)
    with braidlog.open(tmp_path / "d") as store:
        with pytest.raises(MissingFileError):
            store.table("stock").get(b"tea")
        # Others are kept up to date all the same.
        put(store, b"tea", "Rome", 2)
        with pytest.raises(MissingFileError):
            store._table_host().maintain()
        other = store.table("other")
        assert other.stats().applied == 3
        with pytest.raises(TrimmedError):
            store.table("stock").rebuild()
        store.drop_table("stock")
        store._table_host().maintain()


def test_files_of_a_dropped_table_stay_while_they_are_read(
    store: braidlog.Store,
) -> None:
    stock = store.create_table("stock", log="orders", indexes=INDEXES)
    for number in range(200):
        put(store, b"%04d" % number, "Oslo", number)
    stock.flush()
    host = store._table_host()
    snapshot = stock.at()
    rows = iter(snapshot.index("by_city").get("Oslo"))
    assert next(rows).key == b"0000"
    store.drop_table("stock")
    host.maintain()
    assert len(list(snapshot)) == 200
    assert len(list(rows)) == 199
    assert files_of(store)
    snapshot.close()
    del rows
    host.maintain()
    assert files_of(store) == set()


def test_a_table_that_begins_anew_has_files_before_the_catalog_names_them(
    store: braidlog.Store,
) -> None:
    """Others read the catalog too, a backup for instance, and then look for files."""
    store.create_table("stock", log="orders", indexes={"by_city": "json:/city"})
    host = store._table_host()
    for call in ("truncate", "rebuild"):
        with host._upkeeping:  # So that nobody opens it yet.
            with store.ddl() as change:
                getattr(change, call)("stock")
            (new,) = store._backend.tables()
            home = store.path / "tables" / f"{new.id:032x}"
            trees = [new.primary, *(index.tree for index in new.indexes)]
            assert new.id not in host._open
            assert all((home / f"{tree:032x}" / "CURRENT").exists() for tree in trees)
            store.backup(store.path.with_name("place"))


def test_files_are_opened_once_whoever_asks_for_what_a_table_was(
    store: braidlog.Store,
) -> None:
    store.create_table("stock", log="orders", indexes=INDEXES)
    host = store._table_host()
    for call in ("truncate", "rebuild"):
        before = host.entry("stock")  # As the upkeep listed it a moment ago.
        with store.ddl() as change:
            getattr(change, call)("stock")
        opened = host.native(host.entry("stock"))
        assert host.native(before) is opened


@pytest.mark.parametrize("call", ["truncate", "rebuild"])
@pytest.mark.parametrize(
    "error",
    [
        UnavailableError("cannot rename 1.run.tmp: No such file or directory"),
        NotFoundError("table 7 not found"),  # When it lets the log go.
        MissingFileError("000002.run is missing"),
    ],
)
def test_a_flush_goes_on_with_the_table_that_began_anew(
    store: braidlog.Store,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    error: LogError,
) -> None:
    """The files of the old one are removed beneath a flush that is under way."""
    stock = store.create_table("stock", log="orders")
    position = put(store, b"tea", "Oslo", 3)
    flush, begun = OpenTable.flush, []

    def overtaken(
        native: OpenTable, progress: Callable[[int], object] | None = None
    ) -> None:
        begun.append(native)
        if len(begun) > 1:
            return flush(native, progress)
        with store.ddl() as change:
            getattr(change, call)("stock")
        raise error

    monkeypatch.setattr(OpenTable, "flush", overtaken)
    stock.flush()
    old, new = begun
    assert old is not new
    assert stock.describe().applied == position


def test_a_flush_that_fails_says_so(
    store: braidlog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = store.create_table("stock", log="orders")

    def full(*_: object) -> None:
        raise UnavailableError("no space left")

    monkeypatch.setattr(OpenTable, "flush", full)
    with pytest.raises(UnavailableError, match="no space left"):
        stock.flush()


def test_an_index_that_is_dropped_while_it_is_built_was_not_given_up(
    store: braidlog.Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store.create_table("stock", log="orders")
    host = store._table_host()
    build = OpenTable.build

    def dropped_first(
        native: OpenTable, tree: int, progress: Callable[[int], bool]
    ) -> bool:
        with store.ddl() as change:
            change.drop_index("stock", "by_city")
        return build(native, tree, progress)

    monkeypatch.setattr(OpenTable, "build", dropped_first)
    with host._upkeeping:  # So that the thread does not build it first.
        with store.ddl() as change:
            change.create_index("stock", "by_city", "json:/city")
        host._tend(host._maintain)
    assert host.refused(host.entry("stock"), "by_city") is None
    assert caplog.text == ""


def test_reads_go_on_while_a_table_begins_anew(store: braidlog.Store) -> None:
    stock = store.create_table("stock", log="orders", indexes=INDEXES)
    stopped, failed = threading.Event(), []

    def read(number: int) -> None:
        try:
            while not stopped.is_set():
                key = b"%d" % number
                position = put(store, key, "Oslo", 1)
                assert stock.get(key, after=position) is not None
                with stock.at(position) as snapshot:
                    assert snapshot.get(key) is not None
                list(stock.index("by_city"))
                stock.describe()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        stock.rebuild()
    stopped.set()
    for thread in threads:
        thread.join()
    assert failed == []


def test_a_long_building_keeps_others_up_to_date(
    store: braidlog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = store.create_table("stock", log="orders")
    other = store.create_table("other", log="orders")
    host, opened = store._table_host(), other._opened()[1]
    build, seen = OpenTable.build, []

    def long(self: OpenTable, tree: int, progress: Callable[[int], bool]) -> bool:
        end = put(store, b"tea", "Oslo", 1)
        host._tended = -UPKEEP_S  # As if it had gone on for as long.
        assert progress(1)
        seen.append((end, opened.stats()["applied"]))
        return build(self, tree, progress)

    monkeypatch.setattr(OpenTable, "build", long)
    with store.ddl() as change:
        change.create_index("stock", "late", "json:/city")
    assert stock.index("late").wait(timeout=60)
    assert seen == [(1, 1)]


def test_orphans_that_cannot_be_removed_keep_no_table_from_its_upkeep(
    store: braidlog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = store.create_table("stock", log="orders")
    host = store._table_host()

    def fail(*_: object) -> int:
        raise PermissionError("not permitted")

    monkeypatch.setattr(host._tables, "collect_orphans", fail)
    host._orphans = True
    end = put(store, b"tea", "Oslo", 1)
    with pytest.raises(PermissionError):
        host.maintain()
    assert stock._opened()[1].stats()["applied"] == end


def test_why_an_index_was_given_up_is_forgotten_with_the_next_one(
    store: braidlog.Store,
) -> None:
    stock = store.create_table("stock", log="orders")
    store.log("orders").append(b"no json", key=b"tea")
    with store._table_host()._upkeeping:  # So that it is not given up yet.
        with store.ddl() as change:
            change.create_index("stock", "late", "strict json:/city")
        late = stock.index("late")
    with pytest.raises(InvalidArgumentError):
        late.wait(timeout=60)
    with store.ddl() as change:
        change.create_index("stock", "late", "json:/city")
    assert late.wait(timeout=60)
    with store.ddl() as change:
        change.drop_index("stock", "late")
    with pytest.raises(NotFoundError):
        late.wait(timeout=60)
