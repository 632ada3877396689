"""Row changes made again elsewhere give the same database, whatever the tables."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.app.determinism.codec import decode, encode
from braidlog.app.state.sqlite_partition import SqlitePartition
from braidlog.errors import CorruptionError

SCHEMA = """
CREATE TABLE plain(a, b TEXT UNIQUE);
CREATE TABLE whole(id INTEGER PRIMARY KEY AUTOINCREMENT, a REAL, c AS (a * 2) STORED);
CREATE TABLE pair(x TEXT, y INT, z, PRIMARY KEY(y, x)) WITHOUT ROWID;
CREATE TABLE "odd ""name"(rowid TEXT, "a column");
CREATE TABLE child(id INTEGER PRIMARY KEY,
    parent INTEGER REFERENCES whole(id) ON DELETE CASCADE);
CREATE TABLE audit(what);
CREATE TRIGGER noted AFTER INSERT ON plain BEGIN INSERT INTO audit VALUES (NEW.a); END;
CREATE INDEX of_plain ON plain(a);
"""
STATEMENTS = [
    "INSERT INTO plain VALUES (?1, ?2)",
    "INSERT OR REPLACE INTO plain VALUES (?1, ?2)",
    "INSERT OR IGNORE INTO plain VALUES (?1, ?2), (?1 + 1, ?2 || 'x')",
    "UPDATE plain SET a = a + ?1",
    "UPDATE plain SET rowid = rowid + 100 WHERE a = ?1",
    "DELETE FROM plain WHERE a < ?1",
    "DELETE FROM plain",
    "INSERT INTO whole(a) VALUES (?1 + 0.5)",
    "UPDATE whole SET a = -0.0 WHERE id = ?1",
    "UPDATE OR REPLACE whole SET id = id + 1 WHERE id = ?1",
    "DELETE FROM whole WHERE id = ?1",
    "INSERT INTO pair VALUES (?2, ?1, NULL)",
    "REPLACE INTO pair VALUES (?2, ?1, x'00ff')",
    "UPDATE pair SET z = z || ?2, y = y + 1",
    "DELETE FROM pair WHERE y = ?1",
    'INSERT INTO "odd ""name" VALUES (?2, ?1)',
    'UPDATE "odd ""name" SET rowid = ?2',
    "INSERT INTO child SELECT NULL, id FROM whole LIMIT 1",
    "INSERT INTO plain VALUES (1, 'k'), (2, ?2), (3, ?2)",
]


def run(partition: SqlitePartition, sql: str, values: tuple[Any, ...]) -> None:
    wanted = values if "?1" in sql else (None, values[1])
    count = 2 if "?2" in sql else 1 if "?1" in sql else 0
    with contextlib.suppress(apsw.ConstraintError, UnicodeDecodeError):
        partition.handle.execute(sql, wanted[:count])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(STATEMENTS), st.integers(0, 5), st.sampled_from("abcd")
        ),
        max_size=25,
    )
)
def test_changes_made_again(history: list[tuple[str, int, str]]) -> None:
    memory = Path("/dev/shm")  # noqa: S108, RUF100
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as home:
        one = SqlitePartition(Path(home) / "one.db")
        other = SqlitePartition(Path(home) / "other.db")
        for partition in (one, other):
            partition.begin()
            partition.migrate(SCHEMA)
        for start in range(0, len(history), 3):
            one.mark()
            for sql, number, text in history[start : start + 3]:
                run(one, sql, (number, text))
            changes = decode(encode(one.changes()))
            if start % 2 or one.spoiled():
                one.undo()
                continue
            one.release()
            other.mark()
            other.apply(changes)
            other.release()
        for partition in (one, other):
            partition._run("COMMIT")
        views = [one.view(), other.view()]
        hashes = [view.hash() for view in views]
        for view in views:
            view.close()
        one.close()
        other.close()
    assert hashes[0] == hashes[1]


def test_text_that_cannot_be_read_spoils_the_command(tmp_path: Path) -> None:
    partition = SqlitePartition(tmp_path / "x.db")
    partition.begin()
    partition.migrate(SCHEMA)
    broken = "CAST(x'41ff' AS TEXT)"
    for sql in (
        f"INSERT INTO plain VALUES (1, {broken})",
        f"INSERT INTO plain VALUES (2, 'x') RETURNING {broken}",
    ):
        partition.mark()
        assert partition.spoiled() is None
        with pytest.raises(UnicodeDecodeError):
            partition.handle.execute(sql)
        assert isinstance(partition.spoiled(), UnicodeDecodeError)
        partition.undo()
    partition.mark()
    with pytest.raises(UnicodeDecodeError):
        partition.handle.execute(f"SELECT {broken}")
    assert partition.spoiled() is None
    partition.close()


def test_the_hash_sees_every_row_and_nothing_else(tmp_path: Path) -> None:
    partition = SqlitePartition(tmp_path / "x.db")
    partition.begin()
    partition.migrate(SCHEMA)
    seen = set()
    for sql in (
        "INSERT INTO plain VALUES (1, 'a')",
        "UPDATE plain SET a = 1.5",
        "UPDATE plain SET rowid = 9",
        "INSERT INTO pair VALUES ('x', 1, 2)",
        "UPDATE pair SET z = '2'",
        "DELETE FROM audit",
        "INSERT INTO whole(a) VALUES (1)",
        "DELETE FROM whole",  # The next number remains.
    ):
        partition.mark()
        partition.handle.execute(sql)
        partition.release()
        partition._run("COMMIT")
        view = partition.view()
        seen.add(view.hash())
        assert view.hash() in seen
        copy = tmp_path / "copy.db"
        view.copy(copy)
        view.close()
        again = SqlitePartition(copy)
        second = again.view()
        assert second.hash() in seen
        second.close()
        again.close()
        copy.unlink()
        partition.begin()
    assert len(seen) == 8
    partition.close()


def test_a_copy_is_restored(tmp_path: Path) -> None:
    partition = SqlitePartition(tmp_path / "x.db")
    partition.begin()
    partition.migrate(SCHEMA)
    partition._run("INSERT INTO plain VALUES (1, 'a')")
    partition._run("COMMIT")
    view = partition.view()
    before = view.hash()
    view.copy(tmp_path / "copy.db")
    partition._run("DELETE FROM plain")
    assert view.hash() == before, "a view stays what it was"
    view.close()
    partition.restore(tmp_path / "copy.db")
    view = partition.view()
    assert view.hash() == before
    view.close()
    partition.close()


def test_changes_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    partition = SqlitePartition(tmp_path / "x.db")
    partition.begin()
    partition.migrate(SCHEMA)
    change = [apsw.SQLITE_INSERT, "plain", 1, 1, [1, "a"]]
    partition.mark()
    partition.apply([change])
    for wrong in ([change], [[apsw.SQLITE_DELETE, "nothing", 1, 1, None]]):
        with pytest.raises(CorruptionError, match="do not fit"):
            partition.apply(wrong)
    partition.close()
