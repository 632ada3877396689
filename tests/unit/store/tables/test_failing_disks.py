"""Full and failing disks under tables: typed errors, and nothing is lost."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import pytest

from braidlog import _native
from braidlog.errors import LogError, StoreFailedError, UnavailableError
from braidlog.testing import MemoryStore
from unit.store.tables.damage import in_memory, refused


def filled(disk: _native.MemoryDisk, count: int = 300) -> tuple[MemoryStore, Any]:
    store = in_memory(disk)
    log = store.create_log("log")
    table = store.create_table("t", log="log", indexes={"by": "value"})
    values = [b"%d" % n * 20 for n in range(count)]
    log.append_many(values, keys=[b"%d" % (n % 100) for n in range(count)])
    table.stats()  # An open writes a little.
    return store, table


def check(table: Any, count: int = 300) -> None:
    rows = {b"%d" % (n % 100): n + 1 for n in range(count)}
    assert {each.key: each.position for each in table} == rows
    assert table.verify() == (100, 100)


def test_a_full_disk_in_a_flush() -> None:
    disk = _native.MemoryDisk()
    store, table = filled(disk)
    with store:
        before = table.describe().pin
        disk.set_free(100)
        with refused(UnavailableError, "No space left"):
            table.flush()
        check(table)
        assert table.describe().pin == before, "the log keeps what is in no file"
        with in_memory(disk.crash("keep")) as after:
            check(after.table("t"))
        disk.set_free(None)
        table.flush()
        assert table.describe().pin == 301
        check(table)


def test_a_full_disk_in_a_merge() -> None:
    disk = _native.MemoryDisk()
    store, table = filled(disk)
    with store:
        table.flush()
        store.log("log").append_many([b"x"] * 100, keys=[b"%d" % n for n in range(100)])
        table.flush()
        native = table._opened()[1]._native
        disk.set_free(100)
        with refused(UnavailableError, "No space left"):
            native.compact()
        assert len(list(table)) == 100
        files = table.stats().files
        disk.set_free(None)
        while native.compact():
            pass
        assert table.stats().files < files
        assert table.verify() == (100, 100)


def test_a_full_disk_when_a_table_or_an_index_is_made() -> None:
    disk = _native.MemoryDisk()
    store, _ = filled(disk)
    with store:
        disk.set_free(0)
        with refused(UnavailableError, "No space left"):
            store.create_table("u", log="log")
        with refused(UnavailableError, "No space left"), store.ddl() as change:
            change.create_index("t", "late", "value")
        assert store.tables() == ["t"]
        disk.set_free(None)
        with store.ddl() as change:
            change.create_index("t", "late", "value")
        assert store.table("t").index("late").wait(timeout=30)
        assert len(list(store.create_table("u", log="log"))) == 100


def test_upkeep_that_fails_is_said_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = _native.MemoryDisk()
    store, _ = filled(disk)
    with store:
        small = store.create_table("small", log="log", memory_bytes=1 << 16)
        assert len(list(small)) == 100
        names = [b"x%d" % n for n in range(200)]
        store.log("log").append_many([bytes(900)] * 200, keys=names)
        disk.set_free(100)
        for _ in range(2):
            with pytest.raises(UnavailableError):
                store._table_host().maintain()
        failure = small.describe().failure
        assert failure is not None
        assert "No space left" in failure
        assert len(list(small)) == 300, "reads go on"
        said = [each for each in caplog.records if "upkeep" in each.getMessage()]
        assert len(said) == 1, "once, however often it is tried"
        disk.set_free(None)
        store._table_host().maintain()
        assert small.describe().failure is None
        assert small.stats().files > 0


@pytest.mark.parametrize("landed", [False, True])
def test_a_failed_sync_in_a_flush_loses_nothing(landed: bool) -> None:
    disk = _native.MemoryDisk(seed=3)
    store, table = filled(disk)
    disk.fail_syncs(on=True)
    with refused(LogError, "."):
        table.flush()
    disk.fail_syncs(on=False)
    if landed:  # The process dies with what it does not know.
        after = in_memory(disk.crash("torn"))
        check(after.table("t"))
        after.close()
    table.flush()
    check(table)
    store.log("log").trim(301)
    store.close()
    again = in_memory(disk.crash("drop"))
    check(again.table("t"))
    again.close()


def test_reads_do_not_wait_for_a_flush_that_fails_again_and_again() -> None:
    disk = _native.MemoryDisk()
    store, table = filled(disk)
    with store:
        disk.set_free(100)
        begun = time.monotonic()
        for _ in range(20):
            with contextlib.suppress(UnavailableError):
                store._table_host().maintain()
            check(table)
        assert time.monotonic() - begun < 30
        disk.set_free(None)


def test_a_close_on_a_full_disk_lets_go_of_the_directory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = _native.MemoryDisk()
    store, table = filled(disk)
    table.flush()
    store.create_table("u", log="log").flush()
    disk.set_free(0)
    with contextlib.suppress(UnavailableError):  # The log cannot end in order either.
        store.close()
    assert "was not closed in order" in caplog.text
    disk.set_free(None)
    with in_memory(disk) as again:
        check(again.table("t"))
        assert len(list(again.table("u"))) == 100


# -- changes of the catalog on failing disks -----------------------------------------


def test_a_creation_whose_entry_is_not_written_can_be_repeated() -> None:
    disk = _native.MemoryDisk()
    store, _ = filled(disk)
    disk.fail_next_sync()
    with pytest.raises(LogError):
        store.create_table("u", log="log", indexes={"by": "value"})
    with contextlib.suppress(StoreFailedError):
        store.close()
    store = in_memory(disk.crash("torn"))
    # The entry is there as a whole or not at all; if its write failed, not.
    for name in ("u", "v"):
        table = store.create_table(
            name, log="log", indexes={"by": "value"}, exist_ok=True
        )
        check(table)
    store._table_host().maintain()
    store.close()


def test_a_drop_needs_no_room_and_a_new_table_of_that_name_is_another() -> None:
    disk = _native.MemoryDisk()
    store, table = filled(disk)
    table.flush()
    disk.set_free(0)
    store.drop_table("t")
    images = [disk.crash("keep"), disk.crash("drop")]
    disk.set_free(None)
    position = store.log("log").append(b"new", key=b"k")
    store.create_table("t", log="log", begin=position)
    images.append(disk.crash("drop"))
    store.close()
    for image, wanted in zip(images, [[], [], [b"k"]], strict=True):
        with in_memory(image) as again:
            assert again.tables() == ["t"] * bool(wanted)
            for name in again.tables():
                assert [each.key for each in again.table(name)] == wanted
            again._table_host().maintain()
        left = {
            path.split("/tables/")[1][:32]
            for path, _ in image.files()
            if "/tables/" in path
        }
        assert len(left) == len(wanted)


def test_threads_change_tables_at_the_same_time() -> None:
    disk = _native.MemoryDisk()
    store, _ = filled(disk)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(6):
                name = f"t{number}"
                table = store.create_table(name, log="log", indexes={"a": "value"})
                with store.ddl() as change:
                    change.create_index(name, "b", "value:text")
                store.log("log").append(b"%d" % turn, key=b"k%d" % number)
                assert table.index("b").wait(timeout=30)
                with table.at() as now:
                    assert len(list(now.index("b"))) == len(list(now.index("a")))
                if turn < 5:
                    store.drop_table(name)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    store.close()
    with in_memory(disk.crash("drop")) as again:
        assert again.tables() == ["t", "t0", "t1", "t2", "t3"]
        for name in ("t0", "t1", "t2", "t3"):
            assert again.table(name).verify() == (104, 208)
