"""Registering procedures: what is declared, and what makes no sense."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from braidlog.app import Application, Context, EncodingError, UnknownProcedureError
from braidlog.app.procedure import bind, partition_of
from braidlog.errors import AlreadyExistsError, InvalidArgumentError

PLACES = [584, 2477, 2882, 1378, 3344, 2418, 514, 2178, 420]


def test_keys_are_in_their_partition_for_ever() -> None:
    keys = [0, 1, -1, 1 << 70, "", "a", "é", b"", b"a"]
    assert [partition_of(key, 4096) for key in keys] == PLACES
    spread = Counter(partition_of(number, 8) for number in range(8000))
    assert all(850 < count < 1150 for count in spread.values())


@pytest.mark.parametrize("key", [True, 1.0, None, (1,)])
def test_keys_that_are_none(key: Any) -> None:
    with pytest.raises(EncodingError, match="a partition key must be"):
        partition_of(key, 8)


def test_where_a_call_belongs() -> None:
    app = Application("app", partitions=16)

    @app.procedure(key="b")
    def one(ctx: Context, a: int, b: int = 7) -> None: ...

    @app.procedure(partitions=lambda keys: keys)
    def some(ctx: Context, keys: list[int]) -> None: ...

    @app.procedure(multi=True)
    def everywhere(ctx: Context) -> None: ...

    found = app.find("one")
    assert bind(found, (1,), {}) == [1, 7]
    assert bind(found, (), {"b": 2, "a": 1}) == [1, 2]
    assert found.partitions([1, 7], 16) == [partition_of(7, 16)]
    wanted = sorted({partition_of(key, 16) for key in (3, 1, 2, 3)})
    assert app.find("some").partitions([[3, 1, 2, 3]], 16) == wanted
    assert app.find("everywhere").partitions([], 16) is None
    with pytest.raises(InvalidArgumentError, match="does not touch any partition"):
        app.find("some").partitions([[]], 16)


def test_declarations_that_make_no_sense() -> None:
    app = Application("app", partitions=2)

    def plain(ctx: Context, a: int) -> None: ...

    def bare() -> None: ...

    def star(ctx: Context, *a: int) -> None: ...

    def named(ctx: Context, *, a: int) -> None: ...

    for options, function, message in (
        ({}, plain, "needs exactly one of key="),
        ({"key": "a", "multi": True}, plain, "needs exactly one of key="),
        ({"key": "b"}, plain, "no parameter 'b'"),
        ({"multi": True}, bare, "the context"),
        ({"multi": True}, star, "an ordinary parameter"),
        ({"multi": True}, named, "an ordinary parameter"),
        ({"multi": True, "read_only": True, "effects": True}, plain, "choose one"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            app.procedure(**options)(function)
    app.procedure(key="a")(plain)
    with pytest.raises(AlreadyExistsError):
        app.procedure(key="a")(plain)
    with pytest.raises(UnknownProcedureError, match="there are: 'plain'"):
        app.find("bare")
    for partitions, kept in ((0, 1), (1 << 20, 1), (1, 0)):
        with pytest.raises(InvalidArgumentError):
            Application("x", partitions=partitions, results_kept=kept)


def test_the_catalog_has_the_code() -> None:
    app = Application("app", partitions=1, schema=["a", "b"])

    @app.procedure
    def p(ctx: Context) -> int:
        return 1

    assert p(None) == 1  # type: ignore[arg-type]
    catalog = app.catalog(3)
    ((name, content, source, flags),) = catalog.procedures
    assert (name, len(content), flags) == ("p", 16, ["command"])
    assert "return 1" in source
    assert (catalog.version, catalog.schema) == (3, ["a", "b"])
    assert app.logged("p", content) is app.find("p")
    assert app.logged("p", b"") is None
