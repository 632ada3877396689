"""Changes of tables: names, blocks, drops under readers, indexes made later."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from braidlog.errors import (
    AlreadyExistsError,
    BeyondEndError,
    InvalidArgumentError,
    LogInUseError,
    NotFoundError,
    NotReadyError,
    TableCursorError,
    TablePinError,
    TrimmedError,
)
from conformance.api import AnyLog, AnyNode, Opener, Reopen, opener_of, params


@pytest.fixture(params=params(tables=True))
def opener(request: pytest.FixtureRequest, tmp_path: Any) -> Opener:
    return opener_of(request, tmp_path)


async def names(table: Any) -> list[bytes | None]:
    return [record.key for record in await table.scan()]


# -- names and options ---------------------------------------------------------------


async def test_a_name_exists_once(node: AnyNode, log: AnyLog) -> None:
    table = await node.create_table("t", log="log", history=3)
    with pytest.raises(AlreadyExistsError, match="'t'"):
        await node.create_table("t", log="log")
    again = await node.create_table("t", log="log", exist_ok=True, history=9)
    assert (await again.describe()).id == (await table.describe()).id
    assert (await again.describe()).history == 3
    with pytest.raises(NotFoundError, match="there are: 't'"):
        await node.table("tt")
    with pytest.raises(NotFoundError, match="'log'"):
        await node.create_table("u", log="lo")
    with pytest.raises(NotFoundError):
        await node.drop_table("u")
    for wrong in ("", "a/b", "-x", "a\n", "x" * 256):
        with pytest.raises(InvalidArgumentError):
            await node.create_table(wrong, log="log")
    assert await node.tables() == ["t"]


async def test_options_that_make_no_sense(node: AnyNode, log: AnyLog) -> None:
    await log.append_many([b"1", b"2"])
    await log.trim(2)
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"memory_bytes": 1}, InvalidArgumentError, "memory_bytes must be from 65536"),
        ({"memory_bytes": "1 MiB"}, InvalidArgumentError, "must be an int"),
        ({"history": -1}, InvalidArgumentError, "history must be from 0"),
        ({"history": True}, InvalidArgumentError, "must be an int"),
        (
            {"deletes": "tombstones"},
            InvalidArgumentError,
            "deletes must be null, empty",
        ),
        ({"deletes": "header"}, InvalidArgumentError, "header:NAME"),
        ({"deletes": "pattern:("}, InvalidArgumentError, "regular expression"),
        ({"begin": 0}, InvalidArgumentError, "begin"),
        ({"begin": 1}, TrimmedError, "begins at 2"),
        ({"begin": 4}, BeyondEndError, "3|4"),
        ({"indexes": {"i": "json:/a:number"}}, InvalidArgumentError, "the types are"),
        ({"indexes": {"i": "json:a"}}, InvalidArgumentError, "pointer"),
        ({"indexes": {"i": "colour"}}, InvalidArgumentError, "begins with json:"),
        ({"indexes": {"i": "json:/a:bytes"}}, InvalidArgumentError, "use text"),
        ({"indexes": {"i": "header"}}, InvalidArgumentError, "needs a name"),
        ({"indexes": {"i": "+".join(["value"] * 17)}}, InvalidArgumentError, "16"),
        ({"indexes": {"a/b": "value"}}, InvalidArgumentError, "index"),
        (
            {"indexes": {f"i{n}": "value" for n in range(65)}},
            InvalidArgumentError,
            "64",
        ),
    ]
    for options, kind, words in wrong:
        with pytest.raises(kind, match=words):
            await node.create_table("t", log="log", **options)
        assert await node.tables() == []


# -- blocks of changes ---------------------------------------------------------------


async def test_changes_are_made_together_or_not(node: AnyNode, log: AnyLog) -> None:
    await log.append_many([b"1", b"2"], keys=[b"a", b"b"])
    await node.ddl(
        ("create", "a", {"log": "log"}),
        ("create", "b", {"log": "log", "indexes": {"i": "value", "j": "value"}}),
        ("rename", "a", "c"),
        ("create", "a", {"log": "log", "begin": 2}),
        ("create_index", "a", "k", "value"),
        ("drop_index", "b", "i"),
        ("create", "gone", {"log": "log"}),
        ("drop", "gone"),
    )
    await node.ddl()
    tables = {name: await node.table(name) for name in await node.tables()}
    assert {name: await names(table) for name, table in tables.items()} == {
        "a": [b"b"],
        "b": [b"a", b"b"],
        "c": [b"a", b"b"],
    }
    listed = [[i.name for i in (await t.describe()).indexes] for t in tables.values()]
    assert listed == [["k"], ["j"], []]
    refused: list[tuple[type[Exception], tuple[Any, ...]]] = [
        (NotFoundError, ("drop", "x")),
        (AlreadyExistsError, ("rename", "b", "c")),
        (AlreadyExistsError, ("create", "a", {"log": "log"})),
        (NotFoundError, ("truncate", "d")),
        (AlreadyExistsError, ("create_index", "b", "j", "value")),
        (InvalidArgumentError, ("create_index", "b", "new", "values")),
        (NotFoundError, ("drop_index", "b", "i")),
        (InvalidArgumentError, ("rename", "b", "b/c")),
    ]
    for kind, change in refused:
        with pytest.raises(kind):
            await node.ddl(("create", "d0", {"log": "log"}), ("truncate", "c"), change)
        assert await node.tables() == ["a", "b", "c"]


async def test_a_table_goes_on_under_another_name_and_empty(
    node: AnyNode, log: AnyLog
) -> None:
    table = await node.create_table("t", log="log", indexes={"by": "value"})
    await log.append_many([b"1", b"2"], keys=[b"a", b"b"])
    await node.ddl(("rename", "t", "u"))
    assert (await names(table), table.name) == ([b"a", b"b"], "u")
    await table.flush()
    await node.ddl(("truncate", "u"))
    assert await names(table) == []
    assert await (await table.index("by")).scan() == []
    await log.append(b"3", key=b"c")
    assert [each.key for each in await (await table.index("by")).get(b"3")] == [b"c"]
    with pytest.raises(TrimmedError):
        async with table.at(1):
            pass
    await table.rebuild()
    assert await names(table) == [b"c"]
    assert (await table.describe()).start == 3


async def test_a_rebuild_needs_the_log(node: AnyNode, log: AnyLog) -> None:
    table = await node.create_table("t", log="log")
    await log.append_many([b"1"] * 9, keys=[b"%d" % n for n in range(9)])
    await table.rebuild()
    assert len(await names(table)) == 9
    await table.flush()
    assert await log.trim(5) == 5
    with pytest.raises(TrimmedError, match="begins at 5") as caught:
        await table.rebuild()
    assert "drop the table" in caught.value.hint
    assert len(await names(table)) == 9


# -- the log of a table --------------------------------------------------------------


async def test_a_table_holds_its_log(node: AnyNode, log: AnyLog) -> None:
    table = await node.create_table("t", log="log")
    await log.append_many([b"1"] * 9, keys=[b"%d" % n for n in range(9)])
    assert await log.trim(5) == 1
    with pytest.raises(TablePinError) as pinned:
        await log.trim(5, ignore_pins=True)
    assert "flush" in pinned.value.hint.lower()
    cursors = [each.name for each in await log.cursors()]
    mine = f"table:{(await table.describe()).id}"
    # In a cluster each host has one.
    assert {name[: len(mine)] for name in cursors} == {mine}
    with pytest.raises(TableCursorError):
        await log.set_cursor(cursors[0], 9)
    with pytest.raises(LogInUseError, match="Drop the tables first") as caught:
        await node.delete_log("log")
    assert caught.value.tables == ("t",)
    await table.flush()
    assert await log.trim(5) == 5
    await node.drop_table("t")
    assert await log.trim(8) == 8
    assert await log.cursors() == []
    await node.delete_log("log")


async def test_a_log_of_the_same_name_is_another_one(
    node: AnyNode, log: AnyLog
) -> None:
    await node.create_table("t", log="log")
    await log.append(b"1", key=b"a")
    await node.drop_table("t")
    await node.delete_log("log")
    await node.create_log("log")
    table = await node.create_table("t", log="log")
    assert await names(table) == []


# -- drops under readers -------------------------------------------------------------


async def test_what_was_dropped_is_gone_and_snapshots_go_on(
    node: AnyNode, log: AnyLog, opener: Opener
) -> None:
    table = await node.create_table("t", log="log", indexes={"by": "value"})
    await log.append_many([b"x", b"y"], keys=[b"a", b"b"])
    await table.flush()
    by = await table.index("by")
    async with table.at(2) as snapshot:
        early = await snapshot.index("by")
        await node.drop_table("t")
        for call in (table.get(b"a"), table.scan(), table.describe(), by.scan()):
            with pytest.raises(NotFoundError, match="'t' was dropped"):
                await call
        other = await node.create_table("t", log="log", begin=3)
        assert await names(other) == []
        if opener.CLUSTER:
            # Its hosts take it away, whoever reads it.
            for reads in (snapshot, early):
                with pytest.raises(NotFoundError, match="'t' was dropped"):
                    await reads.scan()
            return
        assert [each.key for each in await snapshot.scan()] == [b"a", b"b"]
        assert [each.key for each in await early.scan(reverse=True)] == [b"b", b"a"]


async def test_a_snapshot_has_its_indexes_whatever_becomes_of_them(
    node: AnyNode, log: AnyLog, opener: Opener
) -> None:
    table = await node.create_table("t", log="log", indexes={"by": "value"})
    await log.append_many([b'{"n": 2}', b'{"n": 10}'], keys=[b"a", b"b"])
    async with table.at(2) as snapshot:
        early = await snapshot.index("by")
        await node.ddl(
            ("drop_index", "t", "by"), ("create_index", "t", "by", "json:/n")
        )
        by = await table.index("by")
        assert await by.wait(timeout=60)
        assert [each.key for each in await by.get(10)] == [b"b"]
        if opener.CLUSTER:
            # Never the other one of that name.
            with pytest.raises(NotFoundError, match=r"index 'by' .* was dropped"):
                await early.scan()
            return
        assert [each.key for each in await early.scan()] == [b"b", b"a"]
        assert [each.key for each in await early.get(b'{"n": 2}')] == [b"a"]


# -- indexes made later --------------------------------------------------------------


async def test_an_index_is_made_later(node: AnyNode, log: AnyLog) -> None:
    table = await node.create_table("t", log="log", memory_bytes=1 << 16)
    values = [b"%d" % (n % 13) for n in range(500)]
    await log.append_many(values, keys=[b"%03d" % (n % 400) for n in range(500)])
    await node.ddl(("create_index", "t", "by", "value:int"))
    by = await table.index("by")
    await log.append_many([b"99"] * 20, keys=[b"%03d" % n for n in range(20)])
    assert await by.wait(timeout=60)
    rows = [(int(each.value or b""), each.key) for each in await table.scan()]
    assert [(int(each.value or b""), each.key) for each in await by.scan()] == sorted(
        rows
    )
    assert await table.verify() == (400, 400)
    (seen,) = (await table.describe()).indexes
    assert (seen.state, seen.missing) == ("active", 0)


async def test_an_index_is_dropped_while_it_is_read(node: AnyNode, log: AnyLog) -> None:
    table = await node.create_table("t", log="log", indexes={"by": "value"})
    await log.append(b"x", key=b"a")
    by = await table.index("by")
    assert len(await by.scan()) == 1
    await node.ddl(("drop_index", "t", "by"))
    for call in (by.scan(), by.get(b"x"), by.wait(timeout=1)):
        with pytest.raises(NotFoundError, match="index 'by'"):
            await call
    assert await names(table) == [b"a"]


async def test_a_strict_index_of_what_it_cannot_hold_is_given_up(
    node: AnyNode, log: AnyLog
) -> None:
    table = await node.create_table("t", log="log")
    await log.append_many([b"1", b"x"], keys=[b"a", b"b"])
    await node.ddl(("create_index", "t", "by", "strict value:int"))
    # It may be given up already.
    with contextlib.suppress(NotFoundError):
        by = await table.index("by")
        with pytest.raises(InvalidArgumentError, match="position 2"):
            await by.wait(timeout=60)
        with pytest.raises(NotFoundError, match=r"given up: .*position 2"):
            await by.scan()
    with pytest.raises(NotFoundError, match=r"given up: .*position 2") as caught:
        await table.index("by")
    assert "create the index again" in caught.value.hint
    assert (await table.describe()).indexes == ()
    await log.append(b"2", key=b"b")
    assert await names(table) == [b"a", b"b"]
    await node.ddl(("create_index", "t", "by", "strict value:int"))
    by = await table.index("by")
    assert await by.wait(timeout=60)
    assert [each.key for each in await by.scan()] == [b"a", b"b"]
    await node.ddl(("drop_index", "t", "by"))
    with pytest.raises(NotFoundError, match="does not exist"):
        await table.index("by")


async def test_an_index_is_read_as_soon_as_it_is_built(reopen: Reopen) -> None:
    node = await reopen()
    log = await node.create_log("log")
    table = await node.create_table("t", log="log")
    await log.append_many([b"x"] * 50_000, keys=[b"%d" % n for n in range(50_000)])
    await node.ddl(("create_index", "t", "by", "value"))
    by = await table.index("by")
    # Building it may be over already.
    with contextlib.suppress(NotReadyError):
        await by.scan(limit=1)
    assert await by.wait(timeout=60)
    assert len(await by.scan()) == 50_000
