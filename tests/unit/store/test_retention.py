"""What is kept and what is let go: trimming, retention, cursors, leases."""

from __future__ import annotations

import pickle
import threading
import time
from typing import Any

import pytest

from braidlog import Log, Producer, Store
from braidlog.errors import (
    BeyondEndError,
    InvalidArgumentError,
    NotFoundError,
    TooLargeError,
    TrimmedError,
)
from braidlog.store.catalog import CatalogEntry
from unit.store.conftest import SEGMENT_BYTES, Opener

MICROS = 1_000_000


def test_trimming(ten: Log, node: Store, opener: Opener) -> None:
    assert ten.trim(4) == 4
    assert (ten.first, ten.end, len(ten)) == (4, 11, 7)
    with pytest.raises(TrimmedError) as caught:
        ten.get(3)
    assert caught.value.first == 4
    assert ten.trim(2) == ten.trim(0) == 4
    with pytest.raises(BeyondEndError) as beyond:
        ten.trim(12)
    assert beyond.value.next == 11
    node.close()
    log = opener().log("orders")
    assert [record.position for record in log] == list(range(4, 11))


def test_everything_can_go_and_positions_go_on(
    ten: Log, node: Store, opener: Opener
) -> None:
    assert ten.trim(11) == 11
    assert list(ten) == []
    assert ten.append(b"x") == 11
    node.close()
    assert opener().log("orders").append(b"y") == 12


def test_trimming_gives_segments_back(log: Log, node: Store) -> None:
    log.append_many([bytes(1000)] * 10_000)
    before = node.stats()
    log.trim(9_500)
    after = node.stats()
    assert after.segments < before.segments - 5
    log.append_many([bytes(1000)] * 5000)
    # The files are used again.
    assert node.stats().free_slots < after.free_slots


def test_a_pin_holds_what_its_reader_has_not_read(ten: Log) -> None:
    cursor = ten.cursor("slow", pin=True)
    cursor.commit(5)
    assert ten.trim(8) == 5
    assert ten.trim(8, ignore_pins=True) == 8
    cursor.commit(9)
    assert ten.trim(11) == 9
    cursor.delete()
    assert ten.trim(11) == 11


def test_the_lowest_pin_counts_and_others_do_not(ten: Log) -> None:
    ten.cursor("free").commit(2)
    ten.cursor("a", pin=True).commit(7)
    ten.cursor("b", pin=True).commit(4)
    assert ten.trim(11) == 4


def test_a_new_pin_holds_everything_there_is(ten: Log) -> None:
    ten.trim(3)
    assert ten.cursor("new", pin=True).position == 3
    assert ten.trim(9) == 3


def test_a_pin_below_the_first_position_holds_nothing_back(ten: Log) -> None:
    ten.cursor("dead", pin=True).commit(2)
    ten.trim(6, ignore_pins=True)
    assert ten.trim(8) == 6


def test_a_pin_without_a_commit_ends_with_its_lease(ten: Log) -> None:
    ten.cursor("dead", pin=True, lease=0.000_001)
    ten.cursor("alive", pin=True, lease=3600).commit(6)
    assert ten.trim(10) == 6


def test_a_commit_renews_the_lease(ten: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    cursor = ten.cursor("c", pin=True, lease=10)
    touched = cursor.touched
    now = touched + 9 * MICROS
    monkeypatch.setattr("braidlog.store.log._now_us", lambda: now)
    assert ten.trim(5) == 1
    now = touched + 10 * MICROS
    assert ten.trim(5) == 5
    cursor.commit(6)
    now = cursor.touched + 9 * MICROS
    assert cursor.touched > touched
    assert ten.trim(10) == 6


@pytest.mark.parametrize("lease", [0, -5, float("nan"), float("inf"), 1e300], ids=str)
def test_leases_that_make_no_sense(ten: Log, lease: float) -> None:
    with pytest.raises(InvalidArgumentError, match="lease"):
        ten.cursor("c", pin=True, lease=lease)
    assert ten.cursors() == []


def test_a_cursor_is_stored(ten: Log, node: Store, opener: Opener) -> None:
    cursor = ten.cursor("billing", pin=True, lease=2.5)
    assert (cursor.position, cursor.pin, cursor.lease) == (1, True, 2.5)
    cursor.commit(7)
    assert repr(cursor) == "<Cursor 'billing' of 'orders' at 7>"
    again = ten.cursor("billing", pin=False)
    assert (again.position, again.pin) == (7, True)
    node.close()
    closed = f"the store at {node.path} is closed"
    assert repr(cursor) == f"<Cursor 'billing' of 'orders': {closed}>"
    found = opener().log("orders").cursor("billing")
    assert (found.position, found.pin, found.lease) == (7, True, 2.5)
    assert found.touched == found.touched > 0


def test_set_cursor_stores_all_of_it(ten: Log, node: Store, opener: Opener) -> None:
    cursor = ten.set_cursor("c", 4, pin=True, lease=60.0)
    assert (cursor.position, cursor.pin, cursor.lease) == (4, True, 60.0)
    ten.set_cursor("c", 6)
    assert (cursor.position, cursor.pin, cursor.lease) == (6, False, None)
    ten.set_cursor("c", 3, pin=True)
    node.close()
    found = opener().log("orders").cursor("c", lease=9.0)
    assert (found.position, found.pin, found.lease) == (3, True, None)


def test_set_cursor_that_is_refused_changes_nothing(ten: Log) -> None:
    for position, lease in [(12, None), (0, None), (2, -1.0)]:
        with pytest.raises(InvalidArgumentError):
            ten.set_cursor("c", position, pin=True, lease=lease)
    assert ten.cursors() == []


@pytest.fixture
def stale(ten: Log, monkeypatch: pytest.MonkeyPatch) -> Log:
    """Have a log that looks at its cursors before another thread writes them."""
    before = ten._cursor_rows()
    monkeypatch.setattr(ten, "_cursor_rows", lambda: before)
    return ten


def test_a_cursor_is_created_once(stale: Log, node: Store) -> None:
    other = node.log("orders")
    other.cursor("c", pin=True, lease=60).commit(5)
    stale.cursor("c")
    [kept] = other.cursors()
    assert (kept.position, kept.pin, kept.lease) == (5, True, 60)


def test_a_pin_that_a_trim_has_not_seen_holds(stale: Log, node: Store) -> None:
    node.log("orders").cursor("c", pin=True).commit(5)
    assert stale.trim(9) == 5
    assert stale.trim(9, ignore_pins=True) == 9


def test_a_commit_keeps_the_pin_that_somebody_set(
    ten: Log, node: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = ten.cursor("c")
    before = ten._cursor_rows()
    monkeypatch.setattr(ten, "_cursor_rows", lambda: before)
    other = node.log("orders")
    other.set_cursor("c", 2, pin=True, lease=60)
    cursor.commit(3)
    [kept] = other.cursors()
    assert (kept.position, kept.pin, kept.lease) == (3, True, 60)
    kept.delete()
    with pytest.raises(NotFoundError, match="cursor"):
        cursor.commit(4)


def test_threads_change_different_options(
    node: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = node.create_log("a")
    log.set_archive(None)  # Imports what it needs.
    look = Log._current

    def look_slowly(self: Log) -> CatalogEntry:
        found = look(self)
        time.sleep(0.05)  # Long enough for the other thread to look as well.
        return found

    monkeypatch.setattr(Log, "_current", look_slowly)
    threads = [
        threading.Thread(target=log.set_archive, args=("/archive",)),
        threading.Thread(target=lambda: log.set_options(retention_ms=7)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    options = node.log("a").options
    assert (options.archive, options.retention_ms) == ("/archive", 7)


def test_what_fits_no_segment_says_what_to_do(opener: Opener) -> None:
    node = opener(segment_bytes=64 << 10)
    log = node.create_log("a")
    found: TooLargeError | None = None
    for i in range(1000):
        try:
            log.cursor(f"{i:0100}")
        except TooLargeError as error:
            found = error
            break
    assert found is not None
    assert found.limit == 16 << 10
    assert "Delete logs, tables or cursors" in str(found)
    assert str(pickle.loads(pickle.dumps(found))) == str(found)
    cursors = log.cursors()
    cursors[0].commit(1)
    cursors[1].delete()
    log.append(b"x", producer=Producer(1), sequence=1)


def test_cursor_positions(ten: Log) -> None:
    cursor = ten.cursor("c")
    for position in (11, 1, 5):
        cursor.commit(position)
        assert cursor.position == position
    for position in (0, 12, -1, 1 << 70):
        with pytest.raises(InvalidArgumentError, match=str(position)):
            cursor.commit(position)
    for wrong in ("1", None, 1.5):
        with pytest.raises(TypeError, match="position must be an int, not"):
            cursor.commit(wrong)  # type: ignore[arg-type]
    assert cursor.position == 5


def test_cursor_names(ten: Log, node: Store, opener: Opener) -> None:
    names = ["a", "ü.日", " ", "x" * 255]
    for name in names:
        ten.cursor(name)
    with pytest.raises(InvalidArgumentError, match="must not be empty"):
        ten.cursor("")
    with pytest.raises(TooLargeError):
        ten.cursor("x" * 256)
    with pytest.raises(TypeError):
        ten.cursor(5)  # type: ignore[arg-type]
    node.close()
    cursors = opener().log("orders").cursors()
    assert [cursor.name for cursor in cursors] == sorted(names)


def test_a_deleted_cursor(ten: Log) -> None:
    cursor = ten.cursor("c")
    cursor.delete()
    calls: list[Any] = [
        cursor.delete,
        lambda: cursor.commit(2),
        lambda: cursor.position,
    ]
    for call in calls:
        with pytest.raises(NotFoundError, match="c"):
            call()
    assert ten.cursors() == []
    assert "cursor 'c' does not exist" in repr(cursor)
    assert ten.cursor("c").position == 1


def test_cursors_belong_to_their_log(node: Store) -> None:
    one, other = node.create_log("a"), node.create_log("b")
    one.append_many([b""] * 5)
    one.cursor("c").commit(4)
    assert other.cursors() == []
    assert other.cursor("c").position == 1


def test_retention_by_time(node: Store) -> None:
    log = node.create_log("a", retention_ms=1000)
    log.append_many([b""] * 10, timestamps=range(0, 10 * MICROS, MICROS))
    assert log.apply_retention(MICROS) == 1
    assert log.apply_retention(5 * MICROS) == 5
    assert log.apply_retention(MICROS) == 5
    assert log.apply_retention(100 * MICROS) == 11
    assert len(log) == 0
    assert log.apply_retention(200 * MICROS) == 11


def test_retention_by_time_keeps_what_a_young_record_follows(node: Store) -> None:
    # Only a head can go: an old record behind a young one stays.
    log = node.create_log("a", retention_ms=1000)
    log.append_many([b""] * 4, timestamps=[0, 5 * MICROS, 0, 5 * MICROS])
    assert log.apply_retention(5 * MICROS) == 2


def test_retention_by_size(node: Store) -> None:
    log = node.create_log("a", retention_bytes=3 * SEGMENT_BYTES)
    log.append_many([bytes(1000)] * 10_000)
    first = log.apply_retention(0)
    assert 1 < first < 10_000
    kept = log.stats().bytes
    assert 3 * SEGMENT_BYTES <= kept <= 5 * SEGMENT_BYTES
    assert log.apply_retention(0) == first


def test_retention_of_nothing(node: Store) -> None:
    log = node.create_log("a", retention_ms=0, retention_bytes=0)
    assert log.apply_retention(time.time_ns() // 1000) == 1
    log.append(b"", timestamp=0)
    node.maintain()
    assert log.first == log.end == 2


def test_retention_minds_pins(node: Store) -> None:
    log = node.create_log("a", retention_ms=0)
    log.append_many([b""] * 10, timestamps=0)
    log.cursor("c", pin=True).commit(4)
    node.maintain(10 * MICROS)
    assert log.first == 4


def test_a_log_without_retention_keeps_everything(ten: Log, node: Store) -> None:
    node.maintain(1 << 62)
    assert ten.first == 1


def test_a_thread_applies_retention(node: Store) -> None:
    gone = threading.Event()
    log = node.create_log("a", retention_ms=1)
    log.append_many([b""] * 10, timestamps=0)
    for _ in range(200):
        if log.first == 11:
            gone.set()
            break
        time.sleep(0.05)
    assert gone.is_set()


def test_logs_share_segments_but_not_retention(node: Store, opener: Opener) -> None:
    short, long = node.create_log("short"), node.create_log("long")
    for i in range(40):
        short.append_many([bytes(1000)] * 100)
        long.append(b"%d" % i)
    short.trim(short.end)
    assert [record.value for record in long] == [b"%d" % i for i in range(40)]
    node.close()
    node = opener()
    assert [record.value for record in node.log("long")] == [
        b"%d" % i for i in range(40)
    ]


def test_a_quiet_log_does_not_fill_the_disk(opener: Opener) -> None:
    node = opener(wal_bytes_max=8 * SEGMENT_BYTES)
    quiet, busy = node.create_log("quiet"), node.create_log("busy")
    quiet.append_many([b"keep %d" % i for i in range(100)])
    for _ in range(60):
        busy.append_many([bytes(10_000)] * 50)
        busy.trim(busy.end)
        node.maintain()
    assert [r.value for r in quiet] == [b"keep %d" % i for i in range(100)]
    assert [r.value for r in quiet.read(50, 60)] == [
        b"keep %d" % i for i in range(49, 59)
    ]
    assert quiet.to_arrow()["value"].to_pylist() == [b"keep %d" % i for i in range(100)]
    assert quiet[37].value == b"keep 36"
    node.close()
    assert opener().log("quiet")[100].value == b"keep 99"
