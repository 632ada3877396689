import dataclasses
import re
from types import SimpleNamespace

import pytest

import braidlog
from unit.cli.conftest import Cli


def test_create_list_describe_delete(cli: Cli) -> None:
    assert cli.json("log", "create", "b", "--retention", "7d") == [
        {"log": "b", "retention_ms": 604_800_000}
    ]
    cli.run("log", "create", "a", "--compression", "zstd")
    assert [log["log"] for log in cli.json("log", "list")] == ["a", "b"]
    [described] = cli.json("log", "describe", "a")
    assert (described["first"], described["end"], described["records"]) == (1, 1, 0)
    assert described["compression"] == "zstd"
    cli.run("log", "delete", "a", "--yes")
    assert [log["log"] for log in cli.json("log", "list")] == ["b"]


def test_a_log_that_keeps_nothing_is_not_created(cli: Cli) -> None:
    for option, none in (("--retention", "0s"), ("--retention-bytes", "0")):
        refused = cli.run("log", "create", "a", option, none, code=2)
        assert "to keep everything, write none" in refused.stderr
        cli.run("log", "create", option[2:], option, "none")
    [first, second] = cli.json("log", "list")
    assert (first["log"], second["log"]) == ("retention", "retention-bytes")


def test_describe_for_programs_is_exact_and_says_nothing_twice(cli: Cli) -> None:
    cli.run("log", "create", "a", "--retention", "36h", "--retention-bytes", "1536k")
    cli.run("append", "a", "x", "y")
    with braidlog.open(cli.data, read_only=True) as node:
        described = dataclasses.asdict(node.log("a").describe())
        described["first_timestamp"] = node.log("a").first_timestamp()
    described = {"log": described.pop("name")} | described
    assert cli.json("log", "describe", "a") == [described]


def test_describe_for_people(cli: Cli) -> None:
    cli.run("log", "create", "a", "--retention", "36h", "--retention-bytes", "1536k")
    cli.run("append", "a", "x", "y")
    lines = cli.run("log", "describe", "a").stdout.splitlines()
    shown = dict(re.split("  +", line, maxsplit=1) for line in lines)
    assert len(shown) == len(lines)
    assert shown["log"] == "a"
    assert "name" not in shown
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT[\d:.]+Z", shown["created"])
    assert shown["records"] == "2"
    assert shown["positions"] == "1 to 2, the next is 3"
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT[\d:.]+Z", shown["first timestamp"])
    assert shown["stored"].endswith(" B in 1 segment")
    assert shown["retention"] == "36h, 1.5 MiB"


def test_describe_an_empty_log_for_people(cli: Cli) -> None:
    cli.run("log", "create", "a")
    text = cli.run("log", "describe", "a").stdout
    assert "none, the next is 1" in text
    assert re.search(r"first timestamp +-\n", text)
    assert re.search(r"retention +until trimmed", text)


def test_stats_for_people(orders: Cli) -> None:
    assert re.search(r"timestamp_min  20\d\d-", orders.run("stats", "orders").stdout)
    assert re.search(r" B +1 +20\d\d-.*Z", orders.run("stats").stdout)


def test_create_twice_needs_exist_ok(cli: Cli) -> None:
    cli.run("log", "create", "a")
    result = cli.run("log", "create", "a", code=1)
    assert "--exist-ok" in result.stderr
    assert "exist_ok" not in result.stderr
    assert result.stderr.splitlines()[0].startswith("error: ")
    assert "already exists" in result.stderr
    cli.run("log", "create", "a", "--exist-ok")


def test_exist_ok_tells_what_the_log_is_and_not_what_was_said(cli: Cli) -> None:
    create = ("log", "create", "a", "--exist-ok", "--retention")
    assert cli.run(*create, "30d").stdout == "created a\n"
    result = cli.run(*create, "30d")
    assert (result.stdout, result.stderr) == ("log 'a' exists already\n", "")
    result = cli.run(*create, "1d", "--compression", "lz4")
    assert "--retention changed nothing" in result.stderr
    assert "--compression changed nothing" in result.stderr
    kept = {"log": "a", "retention_ms": 30 * 86_400_000, "compression": "none"}
    assert cli.json(*create, "1d", "--compression", "lz4") == [kept]
    assert cli.json("log", "describe", "a")[0]["retention_ms"] == kept["retention_ms"]


def test_settings_are_changed_one_by_one(cli: Cli) -> None:
    cli.run("log", "create", "a", "--retention", "36h")
    assert cli.json("log", "set", "a", "--retention-bytes", "1MiB") == [
        {"log": "a", "retention_bytes": 1 << 20}
    ]
    [described] = cli.json("log", "describe", "a")
    bounds = ("retention_ms", "retention_bytes")
    assert [described[name] for name in bounds] == [129_600_000, 1 << 20]
    cli.run("log", "set", "a", "--retention", "none")
    [described] = cli.json("log", "describe", "a")
    assert [described[name] for name in bounds] == [None, 1 << 20]
    assert "pass a setting to change" in cli.run("log", "set", "a", code=2).stderr
    refused = cli.run("log", "set", "a", "--min-replicas", "1", code=2)
    assert "--min-replicas needs --cluster" in refused.stderr
    refused = cli.run("log", "set", "a", "--retention", "0s", code=2)
    assert "to keep everything, write none" in refused.stderr
    cli.run("log", "set", "other", "--retention", "1d", code=3)


def test_missing_directory_and_missing_log_are_not_found(cli: Cli) -> None:
    result = cli.run("log", "list", code=3)
    assert "no data directory" in result.stderr
    assert "hint: " in result.stderr
    assert result.stdout == ""
    cli.run("log", "create", "a")
    result = cli.run("log", "describe", "b", code=3)
    assert len(result.stderr.splitlines()) == 2


def test_delete_without_a_terminal_needs_yes(orders: Cli) -> None:
    result = orders.run("log", "delete", "orders", code=2)
    assert "delete orders with 10 records" in result.stderr
    assert "--yes" in result.stderr
    assert orders.json("log", "list")


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1), ("", 1)])
def test_a_person_is_asked_before_a_delete(
    orders: Cli, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    terminal = SimpleNamespace(stdin=Terminal())
    monkeypatch.setattr("braidlog.cli.command.session.sys", terminal)
    result = orders.run("log", "delete", "orders", stdin=f"{answer}\n", code=code)
    assert "Delete orders with 10 records? [y/N]" in result.stderr
    assert ("nothing was changed" in result.stderr) == bool(code)
    assert len(orders.json("log", "list")) == bool(code)


def test_list_is_a_table_for_people(orders: Cli) -> None:
    head, row = orders.run("log", "list").stdout.splitlines()
    assert head.split() == ["log", "first", "end", "records"]
    assert row.split() == ["orders", "1", "11", "10"]


def test_stats(orders: Cli) -> None:
    [one] = orders.json("stats", "orders")
    assert (one["records"], one["segments"]) == (10, 1)
    assert one["log"] == "orders"
    assert orders.json("stats") == [one]
    head, row = orders.run("stats").stdout.splitlines()
    assert head.split()[0] == "log"
    assert row.split()[0] == "orders"


def test_a_table_has_its_head_in_a_terminal_of_no_columns(
    orders: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    assert orders.run("log", "list").stdout.split()[:2] == ["log", "first"]
