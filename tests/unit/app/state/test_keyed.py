"""Keyed tables against a dict and against SQL; their hash, over everything."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.app import (
    Abort,
    Application,
    Context,
    EncodingError,
    ProcedureError,
    keyed_table,
)
from braidlog.app.determinism.codec import decode, encode
from braidlog.app.execution.state import Progress, Saved
from braidlog.app.replay.inputs import commands_of
from braidlog.app.replay.run import replay
from braidlog.app.state.keyed import KeyedTable
from braidlog.app.state.sqlite_partition import SqlitePartition
from braidlog.errors import InvalidArgumentError, NotFoundError, TooLargeError

TEXT = st.text(st.sampled_from("ab\x7f\xffé\ud7ff\ue000\U0010ffff\0"), max_size=3)
BYTES = st.binary(max_size=3) | st.sampled_from([b"\xff", b"\xff\xff", b"a\xff"])
INTS = st.integers(-3, 3) | st.sampled_from([-(1 << 63), (1 << 63) - 1])
KEYS = INTS | TEXT | BYTES
VALUES = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(INTS)
)
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, VALUES),
    st.tuples(st.just("put"), KEYS, VALUES),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("scan"), st.none() | KEYS, st.none() | KEYS),
    st.tuples(st.just("prefix"), TEXT | BYTES),
    st.tuples(st.just("commit")),
    st.tuples(st.just("undo")),
)
SCHEMA = [keyed_table("stock"), keyed_table('odd "name"')]
MEMORY = Path("/dev/shm")  # noqa: S108, RUF100


def order(key: Any) -> Any:
    """Integers, then texts, then bytes, as their bytes in UTF-8 are."""
    if isinstance(key, int):
        return 0, key, b""
    if isinstance(key, str):
        return 1, 0, key.encode()
    return 2, 0, key


def opened(path: Path) -> SqlitePartition:
    partition = SqlitePartition(path)
    partition.begin()
    if not partition.handle.keyed:
        for step in SCHEMA:
            partition.migrate(step)
    return partition


@contextlib.contextmanager
def directory() -> Iterator[Path]:
    memory = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as home:
        yield Path(home)


def stored(partition: SqlitePartition) -> bytes:
    partition.commit(Saved(Progress(), [], [], 0))
    view = partition.view()
    found = view.hash()
    view.close()
    partition.begin()
    return found


def scanned(model: dict[Any, Any], begin: Any, end: Any) -> list[Any]:
    return [
        (key, model[key])
        for key in sorted(model, key=order)
        if (begin is None or order(key) >= order(begin))
        and (end is None or order(key) < order(end))
    ]


def check_scan(table: KeyedTable, expected: list[Any], **bounds: Any) -> None:
    assert table.scan(**bounds) == expected
    assert table.scan(**bounds, reverse=True) == expected[::-1]
    assert table.scan(**bounds, limit=2) == expected[:2]
    assert table.scan(**bounds, limit=2, reverse=True) == expected[::-1][:2]


def take(table: KeyedTable, model: dict[Any, Any], step: tuple[Any, ...]) -> None:
    match step:
        case "put", key, value:
            table.put(key, value)
            model[key] = value
        case "delete", key:
            assert table.delete(key) == (key in model)
            model.pop(key, None)
        case "get", key:
            assert table.get(key, "none") == model.get(key, "none")
            assert (key in table) == (key in model)
        case "scan", begin, end:
            check_scan(table, scanned(model, begin, end), begin=begin, end=end)
        case "prefix", prefix:
            found = [
                (key, value)
                for key, value in scanned(model, None, None)
                if type(key) is type(prefix) and key.startswith(prefix)
            ]
            check_scan(table, found, prefix=prefix)


@settings(max_examples=120, deadline=None)
@given(st.lists(STEPS, max_size=25), st.sampled_from(["stock", 'odd "name"']))
def test_a_keyed_table_is_a_dict(steps: list[Any], name: str) -> None:
    """Undone commands leave nothing; changes made again give the same hash."""
    with directory() as home:
        one, other = opened(home / "one.db"), opened(home / "other.db")
        table = one.handle.table(name)
        model: dict[Any, Any] = {}
        kept: dict[Any, Any] = {}
        one.mark()
        for step in steps:
            if step[0] == "undo":
                one.undo()
                one.mark()
                model = dict(kept)
            elif step[0] == "commit":
                other.apply(decode(encode(one.release())))
                kept = dict(model)
                one.mark()
            else:
                take(table, model, step)
        other.apply(decode(encode(one.release())))
        assert table.scan() == scanned(model, None, None)
        assert stored(one) == stored(other)
        before = stored(one)
        # Over a restart, by a copy, and by the same rows put in another order.
        one.rollback()
        one.close()
        one = opened(home / "one.db")
        assert stored(one) == before
        view = one.view()
        view.copy(home / "copy.db")
        assert view.handle.table(name).scan() == scanned(model, None, None)
        view.close()
        third = opened(home / "third.db")
        for key in sorted(model, key=order, reverse=True):
            third.handle.table(name).put(key, "another one first")
        for key, value in model.items():
            third.handle.table(name).put(key, value)
        assert stored(third) == before
        third.handle.table(name).put("more", 1)
        assert stored(third) != before
        third.rollback()
        third.restore(home / "copy.db")
        third.begin()
        assert stored(third) == before
        for partition in (one, other, third):
            partition.close()


CONTENT = "SELECT key, value FROM item ORDER BY key"


def made(*, keyed: bool) -> Application:
    """Return one application, written with a keyed table or with SQL."""
    schema = keyed_table("item") if keyed else "CREATE TABLE item(key, value)"
    app = Application("store", partitions=2, schema=schema)

    @app.procedure(key="key")
    def put(ctx: Context, key: str, value: Any) -> Any:
        if keyed:
            table = ctx.table("item")
            before = table.get(key)
            table.put(key, value)
            return before
        before = ctx.value("SELECT value FROM item WHERE key = ?", (key,))
        ctx.execute("DELETE FROM item WHERE key = ?", (key,))
        ctx.execute("INSERT INTO item VALUES (?, ?)", (key, value))
        return before

    @app.procedure(key="key")
    def delete(ctx: Context, key: str) -> bool:
        if keyed:
            return bool(ctx.table("item").delete(key))
        return bool(ctx.execute("DELETE FROM item WHERE key = ? RETURNING 1", (key,)))

    @app.procedure(partitions=lambda one, other: [one, other])
    def exchange(ctx: Context, one: str, other: str) -> list[Any]:
        values = []
        for key in (one, other):
            db = ctx.on(key)
            sql = "SELECT value FROM item WHERE key = ?"
            found = db.table("item").get(key) if keyed else db.value(sql, (key,))
            values.append(found)
        for key, value in ((one, values[1]), (other, values[0])):
            db = ctx.on(key)
            if keyed:
                db.table("item").delete(key)
            else:
                db.execute("DELETE FROM item WHERE key = ?", (key,))
            if value is None:
                raise Abort("both must be there")
            if keyed:
                db.table("item").put(key, value)
            else:
                db.execute("INSERT INTO item VALUES (?, ?)", (key, value))
        return values

    @app.procedure(key="key", effects=True)
    def draw(ctx: Context, key: str) -> int:
        drawn = 7
        if keyed:
            ctx.table("item").put(key, drawn)
        else:
            ctx.execute("DELETE FROM item WHERE key = ?", (key,))
            ctx.execute("INSERT INTO item VALUES (?, ?)", (key, drawn))
        return drawn

    @app.procedure(read_only=True, multi=True)
    def content(ctx: Context) -> list[Any]:
        found: list[Any] = []
        for db in ctx.partitions.values():
            rows = db.table("item").scan() if keyed else db.execute(CONTENT)
            found.append([list(row) for row in rows])
        return found

    return app


ITEMS = st.sampled_from("abcd")
CALLS = st.one_of(
    st.tuples(st.just("put"), ITEMS, st.integers(0, 9) | st.text(max_size=2)),
    st.tuples(st.just("delete"), ITEMS),
    st.tuples(st.just("exchange"), ITEMS, ITEMS),
    st.tuples(st.just("draw"), ITEMS),
    st.tuples(st.just("reopen")),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(CALLS, max_size=15))
def test_the_same_calls_give_the_same_answers_as_sql(calls: list[Any]) -> None:
    """And each its own hash, which a replay and a restart give again."""
    with directory() as home, contextlib.ExitStack() as stack:
        apps = [made(keyed=True), made(keyed=False)]
        paths = [home / "keyed", home / "sql"]
        hosts = [app.open(path) for app, path in zip(apps, paths, strict=True)]
        for name, *arguments in calls:
            if name == "reopen":
                before = [host.hashes()[1] for host in hosts]
                for host in hosts:
                    host.close()
                hosts = [a.open(p) for a, p in zip(apps, paths, strict=True)]
                assert [host.hashes()[1] for host in hosts] == before
                continue
            heard: list[Any] = []
            for host in hosts:
                try:
                    heard.append(host.call(name, *arguments))
                except (Abort, ProcedureError) as error:
                    heard.append(str(error))
            assert heard[0] == heard[1]
        for host in hosts:
            stack.callback(host.close)
        assert hosts[0].call("content") == hosts[1].call("content")
        for host, app, path in zip(hosts, apps, paths, strict=True):
            again = replay(app, commands_of(path), path / "again")
            assert list(again.hashes.values()) == host.hashes()[1]


@pytest.fixture
def table(tmp_path: Path) -> Iterator[KeyedTable]:
    partition = opened(tmp_path / "one.db")
    partition.mark()
    yield partition.handle.table("stock")
    partition.close()


@pytest.mark.parametrize("key", [True, None, 1.0, 1 << 63, "\ud800", bytearray(b"a")])
def test_what_is_no_key_is_refused(table: KeyedTable, key: Any) -> None:
    for call in (table.get, table.delete, table.__contains__):
        with pytest.raises(InvalidArgumentError):
            call(key)
    with pytest.raises(InvalidArgumentError):
        table.put(key, 1)
    if key is not None:
        with pytest.raises(InvalidArgumentError):
            table.scan(key)
    assert table.scan() == []


def test_what_cannot_be_stored_is_refused(table: KeyedTable) -> None:
    table.put("a", 1)
    with pytest.raises(EncodingError):
        table.put("a", object())
    assert table.get("a") == 1
    for bounds in ({"prefix": 5}, {"prefix": "a", "begin": "b"}, {"limit": -1}):
        with pytest.raises(InvalidArgumentError):
            table.scan(**bounds)


def test_names(tmp_path: Path) -> None:
    for name in ("braidlog_x", "sqlite_x", "", "a/b"):
        with pytest.raises(InvalidArgumentError):
            keyed_table(name)
    with pytest.raises(TooLargeError):
        keyed_table("x" * 300)
    partition = opened(tmp_path / "one.db")
    partition.migrate("CREATE TABLE plain(key, value)")
    for name in ("stok", "plain"):
        with pytest.raises(NotFoundError, match="keyed table"):
            partition.handle.table(name)
    partition.close()


def test_steps_count_on_every_host(table: KeyedTable) -> None:
    """What a call costs follows from the rows: nothing of SQLite's own counts."""
    database: Any = table._database
    costs = []
    for call in (
        lambda: table.put("a", 1),
        lambda: table.put("a", 2),
        lambda: table.get("a"),
        lambda: table.get("b"),
        lambda: table.delete("a"),
        lambda: table.delete("a"),
        lambda: table.scan(),
    ):
        before = database.steps
        call()
        costs.append(before - database.steps)
    assert costs == [2, 2, 2, 1, 3, 1, 1]
