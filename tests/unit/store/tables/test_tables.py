"""Tables of an embedded store: reads, snapshots, indexes, changes of the catalog."""

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import braidlog
from braidlog.errors import (
    AlreadyExistsError,
    BeyondEndError,
    ClosedError,
    InvalidArgumentError,
    LogInUseError,
    NotFoundError,
    ReadOnlyError,
    TrimmedError,
)
from unit.store.tables.stock import INDEXES, put


def where(reads: Any, key: bytes, **options: Any) -> int | None:
    """Return the position of the record that has the value of a key."""
    record = reads.get(key, **options)
    return None if record is None else int(record.position)


def test_a_thread_reads_what_it_appended(store: braidlog.Store) -> None:
    stock = store.create_table("stock", log="orders", indexes=INDEXES)
    assert (stock.get(b"tea"), stock.applied) == (None, 0)
    position = put(store, b"tea", "Oslo", 3.5)
    record = stock.get(b"tea", after=position)
    assert record == store.log("orders").get(position)
    assert stock.applied == position
    replaced = put(store, b"tea", "Rome", 4)
    assert where(stock, b"tea") == replaced
    assert [each.position for each in stock] == [replaced]
    with pytest.raises(BeyondEndError):
        stock.get(b"tea", after=replaced + 1)


def test_scans_are_in_the_order_of_keys(store: braidlog.Store) -> None:
    stock = store.create_table("stock", log="orders")
    log = store.log("orders")
    keys = [b"%d" % (n * 7919 % 100) for n in range(100)]
    log.append_many([b"v" + key for key in keys], keys=keys)
    ordered = sorted(keys)
    bounds: list[tuple[bytes | None, bytes | None]]
    bounds = [(None, None), (b"2", None), (None, b"55"), (b"3", b"4")]
    for begin, end in bounds:
        for reverse in (False, True):
            for limit in (None, 0, 7):
                found = stock.scan(begin, end, reverse=reverse, limit=limit)
                wanted = [key for key in ordered if (begin or b"") <= key]
                wanted = [key for key in wanted if end is None or key < end]
                wanted = wanted[::-1] if reverse else wanted
                assert [each.key for each in found] == wanted[:limit]
    prefixed = [each.key for each in stock.scan(prefix=b"7")]
    assert prefixed == [key for key in ordered if key.startswith(b"7")]
    both = [each.key for each in stock.scan(b"75", prefix=b"7")]
    assert both == [key for key in prefixed if key is not None and key >= b"75"]
    with pytest.raises(InvalidArgumentError, match="limit"):
        stock.scan(limit=-1)
    many = stock.get_many([b"5", b"none", b"17"])
    assert [each and each.value for each in many] == [b"v5", None, b"v17"]


def test_indexes_follow_updates(store: braidlog.Store) -> None:
    stock = store.create_table("stock", log="orders", indexes=INDEXES)
    for key, city, price in [
        (b"tea", "Oslo", 3.5),
        (b"milk", "Rome", 1),
        (b"salt", "Oslo", -2.5),
        (b"tea", "Rome", 9),
    ]:
        put(store, key, city, price)
    by_city, by_price = stock.index("by_city"), stock.index("by_price")
    assert [each.key for each in by_city.get("Oslo")] == [b"salt"]
    assert [each.key for each in by_city.get("Rome")] == [b"milk", b"tea"]
    assert [each.key for each in by_price] == [b"salt", b"milk", b"tea"]
    assert [each.key for each in by_price.scan(begin=1.0, end=9.0)] == [b"milk"]
    reverse = by_price.scan(reverse=True, limit=2)
    assert [each.key for each in reverse] == [b"tea", b"milk"]
    assert by_price.to_arrow(columns=["key"])["key"].to_pylist() == [
        b"salt",
        b"milk",
        b"tea",
    ]
    with pytest.raises(InvalidArgumentError):
        by_price.scan(begin="no number")
    with pytest.raises(NotFoundError, match="did you mean 'by_city'"):
        stock.index("by_citi")


def test_arrow_has_the_records_of_the_scan(store: braidlog.Store) -> None:
    stock = store.create_table("stock", log="orders")
    for number in range(50):
        put(store, b"%03d" % (number % 30), "Oslo", number)
    table = stock.to_arrow()
    assert table.schema == store.log("orders").to_arrow().schema
    rows = [
        (each.position, each.timestamp, each.key, each.value, list(each.headers))
        for each in stock
    ]
    found = table.set_column(
        1, "timestamp", table["timestamp"].cast(pa.timestamp("us")).cast(pa.int64())
    )
    assert [tuple(row.values()) for row in found.to_pylist()] == rows
    assert pa.table(stock) == table
    assert stock.to_arrow(columns=["value", "position"]).column_names == [
        "value",
        "position",
    ]
    batches = list(stock.batches(prefix=b"01"))
    assert [key for batch in batches for key in batch["key"].to_pylist()] == [
        b"%03d" % number for number in range(10, 20)
    ]
    wanted = pa.array([b"007", b"gone", b"003"])
    found = stock.get_many(wanted)
    assert found["key"].to_pylist() == [b"007", b"gone", b"003"]
    assert found["position"].to_pylist() == [38, None, 34]


def test_a_snapshot_shows_what_was(store: braidlog.Store) -> None:
    stock = store.create_table(
        "stock", log="orders", indexes=INDEXES, history=100, memory_bytes=1 << 16
    )
    positions = [put(store, b"tea", "Oslo", n) for n in range(20)]
    with stock.at(positions[4]) as snapshot, stock.at() as newest:
        for n in range(20, 400):
            put(store, b"k%d" % n, "Rome", n)
        stock.flush()
        assert snapshot.position == positions[4]
        assert where(snapshot, b"tea") == positions[4]
        assert [each.key for each in snapshot] == [b"tea"]
        prices = [each.position for each in snapshot.index("by_price").scan()]
        assert prices == [positions[4]]
        assert where(newest, b"tea") == positions[-1]
        assert snapshot.to_arrow().num_rows == 1
    snapshot.close()
    with pytest.raises(ClosedError):
        snapshot.get(b"tea")
    with pytest.raises(BeyondEndError):
        stock.at(10_000)
    end = store.log("orders").end
    while stock.describe().oldest <= positions[4]:
        put(store, b"more", "Rome", 1)
        stock.flush()
        assert store.log("orders").end < end + 1000
    with pytest.raises(TrimmedError):
        stock.at(positions[4])


def test_what_has_no_place_in_a_table_is_counted(store: braidlog.Store) -> None:
    log = store.log("orders")
    log.append(b"no key")
    log.append(b"no json", key=b"a")
    long = log.append(b"{}", key=b"k" * (16 << 10) + b"x")
    stock = store.create_table(
        "stock",
        log="orders",
        indexes={"loose": "json:/city", "strict": "strict json:/city"},
    )
    assert [each.key for each in stock] == [b"a"]
    seen = stock.describe()
    assert (seen.left_out, seen.left_out_first) == (2, 1)
    assert seen.applied == long
    loose = stock.index("loose").describe()
    assert (loose.missing, loose.missing_first and loose.missing_first[0]) == (1, 2)
    assert list(stock.index("loose")) == []
    with pytest.raises(InvalidArgumentError, match="position 2"):
        list(stock.index("strict"))


def test_deletes(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "d") as store:
        log = store.create_log("log")
        tables = {
            rule: store.create_table(rule[:6], log="log", deletes=rule)
            for rule in ("empty", "none", "header:gone", "pattern:^x+$")
        }
        keys = [b"a", b"b", b"c", b"d"]
        log.append_many([b"1"] * 4, keys=keys)
        log.append(b"", key=b"a")
        log.append(b"2", key=b"b", headers=[("gone", b"")])
        log.append(b"xx", key=b"c")
        left = {rule: [each.key for each in table] for rule, table in tables.items()}
        assert left == {
            "empty": [b"b", b"c", b"d"],
            "none": keys,
            "header:gone": [b"a", b"c", b"d"],
            "pattern:^x+$": [b"a", b"b", b"d"],
        }
        for wrong in ("tombstone", "header", "null:x", "pattern:(", ""):
            with pytest.raises(InvalidArgumentError):
                store.create_table("wrong", log="log", deletes=wrong)
        assert "wrong" not in store.tables()


def test_everything_is_there_after_a_reopen(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "d") as store:
        store.create_log("orders")
        stock = store.create_table("stock", log="orders", indexes=INDEXES)
        for number in range(300):
            put(store, b"%d" % (number % 70), f"c{number % 5}", number)
            if number == 100:
                stock.flush()
        before, cities = list(stock), list(stock.index("by_city"))
    with braidlog.open(tmp_path / "d") as store:
        stock = store.table("stock")
        assert (list(stock), list(stock.index("by_city"))) == (before, cities)
        assert stock.verify() == (70, 140)
        assert stock.describe().pin > 100


def test_a_table_holds_its_log_until_it_has_flushed(store: braidlog.Store) -> None:
    log = store.log("orders")
    stock = store.create_table("stock", log="orders")
    for number in range(10):
        put(store, b"%d" % number, "Oslo", 1)
    assert log.trim(8) == 1
    stock.flush()
    assert stock.describe().pin == 11
    assert log.trim(8) == 8
    assert [each.key for each in stock] == [b"%d" % n for n in range(10)]
    with pytest.raises(LogInUseError) as caught:
        store.delete_log("orders")
    assert caught.value.tables == ("stock",)
    with pytest.raises(TrimmedError, match="begins at 8"):
        stock.rebuild()


def test_the_memory_level_is_flushed_by_itself(store: braidlog.Store) -> None:
    stock = store.create_table("stock", log="orders", memory_bytes=1 << 16)
    for number in range(600):
        store.log("orders").append(bytes(500), key=b"%d" % number)
    store._table_host().maintain()
    seen = stock.stats()
    assert (seen.flushes > 0, seen.memory_bytes < 1 << 17) == (True, True)
    assert len(list(stock)) == 600


def test_a_full_log_is_freed_by_a_flush(tmp_path: Path) -> None:
    size = 64 << 10
    with braidlog.open(
        tmp_path / "d", segment_bytes=size, wal_bytes_max=10 * size
    ) as store:
        log = store.create_log("log", retention_bytes=2 * size)
        stock = store.create_table("stock", log="log")
        for number in range(300):
            log.append(bytes(5000), key=b"%d" % (number % 10))
            if number % 20 == 0:
                store._table_host().maintain()
                store.maintain()
        assert len(list(stock)) == 10
        assert log.first > 200


# -- changes of the catalog ----------------------------------------------------------


def test_changes_are_made_together(store: braidlog.Store) -> None:
    put(store, b"tea", "Oslo", 1)
    with store.ddl() as change:
        change.create("a", log="orders")
        change.create("b", log="orders", indexes=INDEXES)
        change.rename("a", "c")
        change.create("a", log="orders", begin=2)
        change.drop_index("b", "by_city")
    assert store.tables() == ["a", "b", "c"]
    assert [index.name for index in store.table("b").describe().indexes] == ["by_price"]
    assert [len(list(store.table(name))) for name in "abc"] == [0, 1, 1]

    def drop(names: str) -> None:
        with store.ddl() as change:
            for name in names:
                change.drop(name)

    for names in ("ax", "aa"):
        with pytest.raises(NotFoundError):
            drop(names)
    assert store.tables() == ["a", "b", "c"]
    with store.ddl():
        pass


def test_a_name_exists_once(store: braidlog.Store) -> None:
    stock = store.create_table("stock", log="orders")
    with pytest.raises(AlreadyExistsError):
        store.create_table("stock", log="orders")
    again = store.create_table("stock", log="orders", exist_ok=True, history=9)
    assert again.describe() == stock.describe()
    with pytest.raises(NotFoundError, match="'order' does not exist"):
        store.create_table("other", log="order")
    for name in ("", "a/b", "-x", "x" * 256):
        with pytest.raises(InvalidArgumentError):
            store.create_table(name, log="orders")
    for field in ("", "json:city", "json:/a:nothing", "header"):
        with pytest.raises(InvalidArgumentError):
            store.create_table("new", log="orders", indexes={"i": field})
    assert store.tables() == ["stock"]


def test_a_dropped_table_is_gone_for_those_who_hold_it(store: braidlog.Store) -> None:
    stock = store.create_table("stock", log="orders")
    put(store, b"tea", "Oslo", 1)
    stock.flush()
    table = store.path / "tables" / stock.describe().id
    assert any(table.rglob("*.run"))
    store.drop_table("stock")
    with pytest.raises(NotFoundError, match="was dropped"):
        stock.get(b"tea")
    store._table_host().maintain()
    assert not any(path.is_file() for path in table.rglob("*"))
    assert where(store.create_table("stock", log="orders"), b"tea") == 1
    store.drop_table("stock")
    store.delete_log("orders")


def test_a_table_that_is_renamed_or_truncated_goes_on(store: braidlog.Store) -> None:
    stock = store.create_table("stock", log="orders", indexes=INDEXES)
    put(store, b"tea", "Oslo", 1)
    with store.ddl() as change:
        change.rename("stock", "goods")
    assert (where(stock, b"tea"), stock.name) == (1, "goods")
    with store.ddl() as change:
        change.truncate("goods")
    assert list(stock) == []
    put(store, b"milk", "Oslo", 1)
    assert [each.key for each in stock.index("by_city").get("Oslo")] == [b"milk"]
    with store.ddl() as change:
        change.rebuild("goods")
    assert [each.key for each in stock] == [b"milk"]
    with store.ddl() as change:
        change.create("all", log="orders")
        change.rebuild("all")
    assert [each.key for each in store.table("all")] == [b"milk", b"tea"]


def test_an_index_is_built_beside_readers_and_writers(store: braidlog.Store) -> None:
    stock = store.create_table("stock", log="orders", memory_bytes=1 << 16)
    for number in range(2000):
        put(store, b"%04d" % number, f"c{number % 3}", number)
    with store.ddl() as change:
        change.create_index("stock", "late", "json:/city")
    for number in range(2000, 2300):
        put(store, b"%04d" % (number % 2100), f"c{number % 3}", number)
        stock.get(b"0001")
    late = stock.index("late")
    assert late.wait(timeout=60)
    by_scan = sorted(
        (json.loads(each.value)["city"], each.key, each.position) for each in stock
    )
    by_index = [
        (json.loads(each.value)["city"], each.key, each.position) for each in late
    ]
    assert by_index == by_scan
    assert stock.verify() == (2100, 2100)
    with store.ddl() as change:
        change.drop_index("stock", "late")
    with pytest.raises(NotFoundError):
        late.ready  # noqa: B018


def test_a_building_goes_on_after_a_reopen(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "d") as store:
        store.create_log("orders")
        store.create_table("stock", log="orders")
        for number in range(500):
            put(store, b"%04d" % number, f"c{number % 3}", number)
        host = store._table_host()
        with host._upkeeping, store.ddl() as change:  # So that nothing is built yet.
            change.create_index("stock", "late", "json:/city")
            host._stopping.set()
    with braidlog.open(tmp_path / "d") as store:
        late = store.table("stock").index("late")
        assert late.wait(timeout=60)
        assert len(list(late)) == 500
        assert [index.state for index in store.table("stock").describe().indexes] == [
            "active"
        ]


# -- who may what --------------------------------------------------------------------


def test_a_reader_of_the_directory_sees_which_tables_there_are(
    store: braidlog.Store,
) -> None:
    store.create_table("stock", log="orders")
    with braidlog.open(store.path, read_only=True) as reader:
        assert reader.tables() == ["stock"]
        assert list(reader.table("stock")) == []
        with pytest.raises(ReadOnlyError):
            reader.drop_table("stock")


def test_a_closed_store_refuses(tmp_path: Path) -> None:
    store = braidlog.open(tmp_path / "d")
    store.create_log("orders")
    stock = store.create_table("stock", log="orders")
    put(store, b"tea", "Oslo", 1)
    rows = stock.scan()
    store.close()
    for call in (lambda: stock.get(b"tea"), lambda: next(rows), lambda: store.tables()):
        with pytest.raises(ClosedError):
            call()


def test_threads_read_what_others_append(store: braidlog.Store) -> None:
    stock = store.create_table("stock", log="orders", memory_bytes=1 << 16)
    errors: list[Any] = []

    def work(number: int) -> None:
        try:
            for turn in range(60):
                key = b"%d-%d" % (number, turn % 7)
                position = put(store, key, "Oslo", turn)
                assert where(stock, key, after=position) == position
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(list(stock)) == 42


def test_wait(store: braidlog.Store) -> None:
    stock = store.create_table("stock", log="orders")
    assert not stock.wait(1, timeout=0.01)
    position = put(store, b"tea", "Oslo", 1)
    assert stock.wait(position, timeout=5)
    assert stock.describe().lag == 0


def test_keys_come_as_any_arrow_column(store: braidlog.Store) -> None:
    stock = store.create_table("stock", log="orders")
    put(store, b"tea", "Oslo", 1)
    for keys in (
        pa.array([b"tea", b"none"]),
        pa.array(["tea", "none"]),
        pa.chunked_array([[b"tea"], [b"none"]]),
        pa.chunked_array([[]], pa.binary()),
    ):
        found = stock.get_many(keys)
        assert found.num_rows == len(keys)
        assert found["position"].to_pylist() == [1, None][: len(keys)]
    with pytest.raises(InvalidArgumentError, match="binary or text without nulls"):
        stock.get_many(pa.array([1, 2]))
    with pytest.raises(InvalidArgumentError, match="binary or text without nulls"):
        stock.get_many(pa.array([b"tea", None]))
