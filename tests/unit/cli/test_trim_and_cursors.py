import pytest

from unit.cli.conftest import Cli


@pytest.mark.parametrize(
    ("options", "first"),
    [
        (["--before", "4"], 4),
        (["--keep", "3"], 8),
        (["--keep", "99"], 1),
        (["--before-time", "2001-01-01"], 1),
        (["--before-time", "2999-01-01"], 11),
    ],
)
def test_trim(orders: Cli, options: list[str], first: int) -> None:
    [result] = orders.json("trim", "orders", "--yes", *options)
    assert result == {"log": "orders", "first": first}


def test_trim_needs_one_bound_and_an_answer(orders: Cli) -> None:
    orders.run("trim", "orders", "--yes", code=2)
    orders.run("trim", "orders", "--yes", "--keep", "1", "--before", "2", code=2)
    assert "--yes" in orders.run("trim", "orders", "--before", "2", code=2).stderr


def test_a_pinning_cursor_holds_and_it_is_said(orders: Cli) -> None:
    orders.run("cursor", "set", "orders", "billing", "4", "--pin")
    result = orders.run("trim", "orders", "--before", "9", "--yes")
    assert result.stdout == "orders begins at 4\n"
    assert "pinned by a cursor" in result.stderr


def test_cursor_set_get_list_delete(orders: Cli) -> None:
    orders.run("cursor", "set", "orders", "billing", "4", "--pin")
    shown = {"cursor": "billing", "position": 4, "lag": 7, "pin": True}
    assert orders.json("cursor", "get", "orders", "billing") == [shown]
    assert orders.json("cursor", "list", "orders") == [shown]
    orders.run("cursor", "delete", "orders", "billing")
    assert orders.json("cursor", "list", "orders") == []


def test_a_cursor_that_is_not_there(orders: Cli) -> None:
    assert "no cursor x" in orders.run("cursor", "get", "orders", "x", code=3).stderr
    orders.run("cursor", "delete", "orders", "x", code=3)
    assert orders.json("cursor", "list", "orders") == []
