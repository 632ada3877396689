"""Rows spread over other databases: what moves, what is refused, and every crash."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from braidlog import durable
from braidlog.app import keyed_table
from braidlog.app.errors import ResizeRefusedError
from braidlog.app.execution.state import Progress, Resizing, Saved
from braidlog.app.execution.total import total_hash
from braidlog.app.procedure import partition_of
from braidlog.app.state import resizing
from braidlog.app.state.sqlite import SqliteState
from braidlog.errors import CorruptionError

NOTED = (
    "CREATE TRIGGER noted AFTER INSERT ON account"
    " BEGIN INSERT INTO entry VALUES (new.id, 'opened'); END"
)
SCHEMA = [
    "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)",
    "CREATE TABLE entry(account INTEGER REFERENCES account(id), text TEXT)",
    "CREATE TABLE price(name TEXT PRIMARY KEY, cents INTEGER)",
    "INSERT INTO price VALUES ('tea', 250)",
    NOTED,
    keyed_table("box"),
]
KEYS: dict[str, str | None] = {
    "account": "id",
    "entry": "account",
    "price": None,
    "box": "key",
}


class CrashError(Exception):
    """The process ended here."""


def filled(path: Path, partitions: int, accounts: int = 40) -> SqliteState:
    state = SqliteState(path, partitions)
    for each in state.partitions:
        each.begin()
        for step in SCHEMA:
            each.migrate(step)
    for account in range(accounts):
        each = state.partitions[partition_of(account, partitions)]
        each.mark()
        sql = "INSERT INTO account VALUES (?, ?)"
        each.handle.execute(sql, (account, account * 10))
        each.release()
        name = f"box {account}"
        each = state.partitions[partition_of(name, partitions)]
        each.mark()
        each.handle.table("box").put(name, account)
        each.release()
    for number, each in enumerate(state.partitions):
        shared = {"partitions": partitions, "routing": 0} if number == 0 else {}
        each.commit(Saved(Progress(1, 1, 1, 0, len(SCHEMA), None, shared), [], [], 0))
    return state


def plan(partitions: int, keys: dict[str, str | None] | None = None) -> Resizing:
    each = [Progress(2, 2, 2, 0, len(SCHEMA)) for _ in range(partitions)]
    each[0].shared = {"partitions": partitions, "routing": 2}
    return Resizing(KEYS if keys is None else keys, SCHEMA, each, [])


def rows_of(state: SqliteState, sql: str) -> list[Any]:
    return sorted(row for each in state.partitions for row in each.handle.execute(sql))


def total(state: SqliteState) -> bytes:
    views = [each.view() for each in state.partitions]
    found = total_hash([view.tally() for view in views], ["price"])
    for view in views:
        view.close()
    return found


@pytest.mark.parametrize(("old", "new"), [(1, 4), (4, 1), (3, 5), (5, 3), (4, 8)])
def test_every_row_is_where_its_key_belongs(tmp_path: Path, old: int, new: int) -> None:
    state = filled(tmp_path, old)
    before = total(state)
    accounts = rows_of(state, "SELECT * FROM account")
    entries = rows_of(state, "SELECT * FROM entry")
    assert state.build(plan(new)) == before
    state.adopt()
    assert total(state) == before
    assert len(state.partitions) == new
    assert rows_of(state, "SELECT * FROM account") == accounts
    # The trigger did not run once more.
    assert rows_of(state, "SELECT * FROM entry") == entries
    for number, each in enumerate(state.partitions):
        keys = each.handle.execute("SELECT id FROM account")
        assert all(partition_of(key, new) == number for (key,) in keys)
        assert each.handle.execute("SELECT * FROM price") == [("tea", 250)]
    state.close()
    again = SqliteState(tmp_path, old)
    assert (len(again.partitions), total(again)) == (new, before)
    assert {each.name for each in tmp_path.glob("*.db")} == {
        f"partition-{number:04}.db" for number in range(new)
    }
    again.close()


def test_any_number_of_changes_ends_with_the_same_rows(tmp_path: Path) -> None:
    state = filled(tmp_path, 3)
    before = total(state)
    numbers = random.Random(7)
    for _ in range(12):
        state.build(plan(numbers.randint(1, 6)))
        state.adopt()
        assert total(state) == before
    state.close()


def test_what_the_rows_do_not_allow_is_refused(tmp_path: Path) -> None:
    state = filled(tmp_path, 3)
    before = total(state)

    def refused(keys: dict[str, str | None], match: str) -> None:
        with pytest.raises(ResizeRefusedError, match=match):
            state.build(plan(5, keys))
        assert (total(state), len(state.partitions)) == (before, 3)

    refused({"account": "id"}, "where the rows of box, entry, price belong")
    refused({**KEYS, "account": "owner"}, "account.owner, which there is not")
    refused({**KEYS, "account": "balance"}, "balance = .* is not what calls")
    refused({**KEYS, "box": "value"}, "is not what calls")
    refused({**KEYS, "account": None}, "has others than partition 0")
    state.partitions[1].begin()
    state.partitions[1].mark()
    state.partitions[1].handle.execute("UPDATE price SET cents = 1")
    state.partitions[1].release()
    state.partitions[1].commit(Saved(Progress(1, 1, 1, 0, len(SCHEMA)), [], [], 0))
    before = total(state)
    refused(KEYS, "partition 1 has others than partition 0")
    state.close()


def test_rows_that_exclude_each_other_are_refused(tmp_path: Path) -> None:
    schema = ["CREATE TABLE note(id INTEGER PRIMARY KEY, owner INTEGER)"]
    state = SqliteState(tmp_path, 2)
    owners = [next(k for k in range(9) if partition_of(k, 2) == n) for n in (0, 1)]
    for owner, each in zip(owners, state.partitions, strict=True):
        each.begin()
        each.migrate(schema[0])
        each.mark()
        each.handle.execute("INSERT INTO note(owner) VALUES (?)", (owner,))
        each.release()
        each.commit(Saved(Progress(1, 1, 1, 0, 1), [], [], 0))
    both = Resizing({"note": "owner"}, schema, [Progress(2, 2, 2, 0, 1)], [])
    with pytest.raises(ResizeRefusedError, match="exclude each other"):
        state.build(both)
    state.close()


def test_a_row_that_is_lost_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: what is copied is not what was read."""
    state = filled(tmp_path, 3)
    insert = resizing._insert

    def lossy(target: Any, table: str, shape: Any, rows: Any) -> None:
        insert(target, table, shape, rows[1:] if table == "account" else rows)

    monkeypatch.setattr(resizing, "_insert", lossy)
    monkeypatch.setattr(resizing, "_check_references", lambda each: None)
    with pytest.raises(CorruptionError, match="have other rows than the old ones"):
        state.build(plan(5))
    state.close()


@pytest.mark.parametrize(("old", "new"), [(2, 5), (5, 2)])
def test_a_crash_at_each_step_leaves_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: int, new: int
) -> None:
    """Each step on the disk is the last one once; opening it ends what was begun."""
    left = -1
    steps: list[str] = []

    def dying(name: str, real: Any) -> Any:
        def step(*given: Any, **options: Any) -> Any:
            nonlocal left
            if left == 0:
                raise CrashError
            left -= 1
            steps.append(name)
            return real(*given, **options)

        return step

    seen = set()
    for last in range(60):
        where = tmp_path / str(last)
        state = filled(where, old, accounts=12)
        before = total(state)
        with monkeypatch.context() as patch:
            left = last
            steps.clear()
            for name in ("move", "sync"):
                patch.setattr(durable, name, dying(name, getattr(durable, name)))
            for name in ("unlink", "rmdir"):
                patch.setattr(Path, name, dying(name, getattr(Path, name)))
            try:
                state.build(plan(new))
                state.adopt()
                ended = True
            except CrashError:
                ended = False
        # As a kill leaves it: with the logs of databases that nobody closed.
        killed = tmp_path / f"killed-{last}"
        shutil.copytree(where, killed)
        state.close()
        where = killed
        # The first start after it may be killed as well.
        with monkeypatch.context() as patch:
            left = 2
            patch.setattr(durable, "move", dying("move", durable.move))
            with contextlib.suppress(CrashError):
                SqliteState(where, old).close()
        again = SqliteState(where, old)
        count = len(again.partitions)
        assert count in (old, new)
        assert total(again) == before
        progress = [each.load() for each in again.partitions]
        assert {each.applied for each in progress} == {1 if count == old else 2}
        assert len(list(where.iterdir())) >= count
        assert not (where / "building").exists()
        again.close()
        seen.add(count)
        if ended:
            assert count == new
            break
    else:
        pytest.fail("there are more steps than were tried")
    assert seen == {old, new}
