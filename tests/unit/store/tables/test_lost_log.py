"""A log that lost its end beneath a table: the table is refused, never wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.errors import CorruptionError, TrimmedError
from unit.store.tables.damage import open_, refused

KEYS = 20


def rows(store: braidlog.Store) -> dict[bytes, bytes | None]:
    return {each.key: each.value for each in store.table("t")}  # type: ignore[misc]


def put(store: braidlog.Store, count: int, text: bytes) -> None:
    log = store.log("log")
    values = [text + b"%d" % n for n in range(count)]
    log.append_many(values, keys=[b"k%d" % (n % KEYS) for n in range(count)])


def put_back(directory: Path, older: Path) -> None:
    """Put everything but the tables back as it was."""
    for path in directory.iterdir():
        if path.name == "tables":
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.copytree(older, directory, ignore=lambda *_: ["tables"], dirs_exist_ok=True)


@pytest.fixture
def lost(tmp_path: Path) -> Path:
    """A log with 50 records beneath a table that has 80 in files."""
    directory, older = tmp_path / "d", tmp_path / "older"
    with open_(directory) as store:
        store.create_log("log")
        store.create_table("t", log="log", indexes={"by": "value"})
        put(store, 50, b"a")
        store.table("t").flush()
    shutil.copytree(directory, older)
    with open_(directory) as store:
        put(store, 30, b"b")
        store.table("t").flush()
    shutil.copytree(directory, tmp_path / "newer")
    put_back(directory, older)
    return directory


@pytest.fixture(params=[False, True], ids=["writer", "reader"])
def reopened(request: pytest.FixtureRequest) -> Callable[[Path], braidlog.Store]:
    def open_again(path: Path) -> braidlog.Store:
        return braidlog.open(path, read_only=True) if request.param else open_(path)

    return open_again


def calls(store: braidlog.Store) -> Iterator[Callable[[], Any]]:
    table = store.table("t")
    yield lambda: table.get(b"k1")
    yield lambda: list(table)
    yield lambda: list(table.index("by").scan())
    yield lambda: table.at(40)
    yield table.at
    yield lambda: table.applied
    yield table.verify
    yield table.describe


def check_refused(store: braidlog.Store, words: str) -> None:
    for call in calls(store):
        with refused(CorruptionError, words):
            call()
    with pytest.raises(CorruptionError) as error:
        store.table("t").verify()
    assert "braidlog table repair t" in error.value.hint
    assert "backup" in error.value.hint
    assert Path(error.value.path).parent == store.path / "tables"
    # The log itself is as good as it ever was.
    assert len(list(store.log("log").read(limit=50))) == 50


def test_it_is_refused_and_says_both_positions(
    lost: Path, reopened: Callable[[Path], braidlog.Store]
) -> None:
    with reopened(lost) as store:
        check_refused(store, "has position 80, and its log ends at 51")


@pytest.mark.parametrize("more", [29, 30, 31, 100])
def test_it_is_refused_when_the_log_has_grown_again(
    lost: Path, reopened: Callable[[Path], braidlog.Store], more: int
) -> None:
    with open_(lost) as store:
        put(store, more, b"c")
        assert store.log("log").end == 51 + more
    words = "ends at 80" if more == 29 else "another record at position 80"
    with reopened(lost) as store:
        check_refused(store, words)


def test_a_rebuild_mends_it(lost: Path) -> None:
    with open_(lost) as store:
        put(store, 40, b"c")
        store.table("t").rebuild()
        expected = {each.key: each.value for each in store.log("log").read()}
        assert rows(store) == expected
        assert store.table("t").verify() == (KEYS, KEYS)
        store.table("t").flush()
        put(store, 10, b"d")
        store.table("t").flush()
        after = rows(store)
    with open_(lost) as store:
        assert rows(store) == after
        store._table_host().maintain()  # It also removes what nobody needs any more.
        assert len(list((lost / "tables").iterdir())) == 1


def test_it_can_be_dropped_if_its_log_was_trimmed(lost: Path) -> None:
    with open_(lost) as store:
        # As far as the table had let go of the log when the older copy was made.
        assert store.log("log").trim(51) == 51
        with pytest.raises(TrimmedError) as caught:
            store.table("t").rebuild()
        assert "drop the table" in caught.value.hint
        store.drop_table("t")
        store.create_table("t", log="log")
        put(store, 3, b"e")
        assert rows(store) == {b"k0": b"e0", b"k1": b"e1", b"k2": b"e2"}


def test_the_upkeep_says_so_once_and_goes_on_with_others(
    lost: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_(lost) as store:
        host = store._table_host()
        store.create_table("other", log="log")
        for _ in range(3):
            with pytest.raises(CorruptionError, match="ends at 51"):
                host.maintain()
        failures = [
            r for r in caplog.records if "upkeep of table 't'" in r.getMessage()
        ]
        assert len(failures) == 1
        assert len(list(store.table("other"))) == KEYS


def test_the_log_that_comes_back_is_taken_again(lost: Path, tmp_path: Path) -> None:
    """A table that is refused stays as it is."""
    with open_(lost) as store, pytest.raises(CorruptionError):
        store.table("t").get(b"k1")
    put_back(lost, tmp_path / "newer")
    with open_(lost) as store:
        expected = {each.key: each.value for each in store.log("log").read()}
        assert rows(store) == expected


def test_a_crash_behind_a_flush_is_no_loss(tmp_path: Path) -> None:
    directory, killed = tmp_path / "d", tmp_path / "killed"
    with open_(directory) as store:
        store.create_log("log")
        store.create_table("t", log="log", indexes={"by": "value"})
        for size in (1, 30, 7):
            put(store, size, b"a")
            store.table("t").flush()
            shutil.rmtree(killed, ignore_errors=True)
            shutil.copytree(directory, killed)
            with open_(killed) as copy:
                assert rows(copy) == rows(store)
            with braidlog.open(killed, read_only=True) as copy:
                assert rows(copy) == rows(store)


def test_a_backup_refuses_it_and_says_what_to_do(lost: Path, tmp_path: Path) -> None:
    with open_(lost) as store:
        with pytest.raises(CorruptionError, match="ends at 51") as caught:
            store.backup(tmp_path / "backups")
        assert "braidlog table repair t" in caught.value.hint
        put(store, 60, b"c")
        with pytest.raises(CorruptionError, match="another record at position 80"):
            store.backup(tmp_path / "backups")
        store.table("t").rebuild()
        store.backup(tmp_path / "backups")
