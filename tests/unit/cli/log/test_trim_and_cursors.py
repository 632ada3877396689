from typing import Any

import pytest

import braidlog
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
    assert "a pinning cursor keeps records" in result.stderr


def test_cursor_set_get_list_delete(orders: Cli) -> None:
    orders.run("cursor", "set", "orders", "billing", "4", "--pin")
    [shown] = orders.json("cursor", "get", "orders", "billing")
    assert shown.pop("touched") > 1_700_000_000_000_000
    assert shown == {
        "cursor": "billing",
        "position": 4,
        "lag": 7,
        "pin": True,
        "lease": None,
    }
    [listed] = orders.json("cursor", "list", "orders")
    assert {**listed, "touched": 0} == {**shown, "touched": 0}
    orders.run("cursor", "delete", "orders", "billing")
    assert orders.json("cursor", "list", "orders") == []


def stored(orders: Cli) -> Any:
    [shown] = orders.json("cursor", "get", "orders", "billing")
    return shown["position"], shown["pin"], shown["lease"]


def test_set_changes_what_is_given_and_keeps_the_rest(orders: Cli) -> None:
    for arguments, expected in [
        (["4"], (4, False, None)),
        (["4", "--pin"], (4, True, None)),
        (["5", "--lease", "7d"], (5, True, 604_800)),
        (["6"], (6, True, 604_800)),
        (["6", "--lease", "none"], (6, True, None)),
        (["6", "--lease", "1500ms"], (6, True, 1.5)),
        (["7", "--no-pin"], (7, False, None)),
        (["7", "--pin"], (7, True, None)),
    ]:
        [result] = orders.json("cursor", "set", "orders", "billing", *arguments)
        assert (result["position"], result["pin"], result["lease"]) == expected
        assert stored(orders) == expected


def test_a_lease_needs_a_pin(orders: Cli) -> None:
    arguments = ["cursor", "set", "orders", "billing", "4", "--lease", "1h"]
    assert "--pin" in orders.run(*arguments, code=2).stderr
    assert orders.json("cursor", "list", "orders") == []


@pytest.mark.parametrize("lease", ["0s", "soon", "99999999999w"])
def test_leases_that_make_no_sense(orders: Cli, lease: str) -> None:
    arguments = ["cursor", "set", "orders", "billing", "4", "--pin", "--lease", lease]
    assert "lease" in orders.run(*arguments, code=2).stderr
    assert orders.json("cursor", "list", "orders") == []


def test_a_set_that_fails_leaves_no_cursor(orders: Cli) -> None:
    result = orders.run("cursor", "set", "orders", "billing", "99", code=6)
    assert "beyond the end" in result.stderr
    assert "11" in result.stderr
    assert orders.json("cursor", "list", "orders") == []


def test_pins_and_leases_as_a_person_sees_them(orders: Cli) -> None:
    result = orders.run("cursor", "set", "orders", "a", "4", "--pin", "--lease", "7d")
    assert result.stdout == "a is at 4, pins for 7d after each commit\n"
    assert orders.run("cursor", "set", "orders", "b", "4").stdout == "b is at 4\n"
    head, row, _ = orders.run("cursor", "list", "orders").stdout.splitlines()
    assert head.split() == ["cursor", "position", "lag", "pin", "lease", "touched"]
    assert row.split()[:5] == ["a", "4", "7", "yes", "7d"]
    assert row.split()[5].endswith("Z")


def test_a_trim_beyond_the_end_names_the_end(orders: Cli) -> None:
    result = orders.run("trim", "orders", "--before", "12", "--yes", code=6)
    assert "--before 11" in result.stderr
    with braidlog.open(orders.data, read_only=True) as node:
        assert node.log("orders").first == 1


def test_a_cursor_that_is_not_there(orders: Cli) -> None:
    assert "no cursor 'x'" in orders.run("cursor", "get", "orders", "x", code=3).stderr
    orders.run("cursor", "delete", "orders", "x", code=3)
    assert orders.json("cursor", "list", "orders") == []
