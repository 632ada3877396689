import json
from typing import Any

import pytest

from unit.cli.conftest import Cli, ClusterCli


def positions(records: list[dict[str, Any]]) -> list[int]:
    return [record["position"] for record in records]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], list(range(1, 11))),
        (["7"], [7]),
        (["--begin", "8"], [8, 9, 10]),
        (["--begin", "2", "--end", "4"], [2, 3]),
        (["--key", "a"], [2, 4, 6, 8, 10]),
        (["--key", "a", "--limit", "2"], [2, 4]),
        (["--until", "2001-01-01"], []),
        (["--since", "2001-01-01", "--limit", "1"], [1]),
    ],
)
def test_read_ranges(orders: Cli, options: list[str], expected: list[int]) -> None:
    assert positions(orders.json("read", "orders", *options)) == expected


def test_read_begins_at_the_first_position(orders: Cli) -> None:
    orders.run("trim", "orders", "--before", "9", "--yes")
    assert positions(orders.json("read", "orders")) == [9, 10]


def test_out_of_range_has_its_own_code(orders: Cli) -> None:
    assert "error: " in orders.run("read", "orders", "11", code=6).stderr
    orders.run("trim", "orders", "--before", "3", "--yes")
    assert "hint: " in orders.run("read", "orders", "2", code=6).stderr
    assert "hint: " in orders.run("read", "orders", "--begin", "1", code=6).stderr


def test_position_excludes_ranges(orders: Cli) -> None:
    orders.run("read", "orders", "1", "--begin", "1", code=2)


def test_tail(orders: Cli) -> None:
    assert positions(orders.json("tail", "orders", "-n", "3")) == [8, 9, 10]
    assert positions(orders.json("tail", "orders", "-n", "0")) == []
    assert positions(orders.json("tail", "orders", "-n", "99")) == list(range(1, 11))


def test_follow_stops_after_the_timeout(orders: Cli) -> None:
    found = orders.json("tail", "orders", "-n", "2", "-f", "--timeout", "0.05")
    assert positions(found) == [9, 10]


def test_text_is_one_safe_line_a_record(orders: Cli) -> None:
    orders.run("append", "orders", "--delimiter", r"\0", stdin=b"\x1b[31m\n\xff\tend")
    line = orders.run("read", "orders", "11").stdout
    position, time, key, value = line.rstrip("\n").split("\t")
    assert (position, key) == ("11", "")
    assert time.endswith("Z")
    assert value == r"\x1b[31m\n\xff\tend"


def test_raw_is_the_value_byte_for_byte(orders: Cli) -> None:
    value = bytes(range(256)).replace(b"!", b"")
    orders.run("append", "orders", "--delimiter", "!", stdin=value)
    result = orders.run("read", "orders", "11", "--format", "raw")
    assert result.stdout_bytes == value + b"\n"


@pytest.mark.parametrize(
    ("binary", "shown"), [("base64", {"base64": "/wA="}), ("hex", {"hex": "ff00"})]
)
def test_json_marks_what_is_not_text(orders: Cli, binary: str, shown: Any) -> None:
    orders.run("append", "orders", "--delimiter", "!", stdin=b"\xff\x00")
    result = orders.run("read", "orders", "11", "--format", "json", "--binary", binary)
    assert json.loads(result.stdout)["value"] == shown


def test_newest_first(orders: Cli, many: ClusterCli) -> None:
    many.run("log", "create", "orders")
    many.run("append", "orders", *(f"v{i}" for i in range(1, 11)))
    for on in (orders, many):
        shown = on.json("read", "orders", "--reverse", "--limit", "3")
        assert [record["position"] for record in shown] == [10, 9, 8]
        shown = on.json("read", "orders", "-r", "--begin", "3", "--end", "6")
        assert [record["position"] for record in shown] == [5, 4, 3]
    keyed = orders.json("read", "orders", "-r", "--key", "a", "--limit", "2")
    assert [record["position"] for record in keyed] == [10, 8]


def test_a_negative_position_is_told_what_shows_the_last(orders: Cli) -> None:
    result = orders.run("read", "orders", "-1", code=2)
    assert "`braidlog tail LOG --lines 1`" in result.stderr
