"""What a user should not do, and does: every answer is a line, never a trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import braidlog
from unit.cli.conftest import Cli

HUGE = "9" * 30


@pytest.mark.parametrize(
    "arguments",
    [
        ["read", "orders", HUGE],
        ["read", "orders", "--begin", HUGE],
        ["read", "orders", "--end", HUGE],
        ["read", "orders", "--limit", HUGE],
        ["read", "orders", "--since", HUGE],
        ["tail", "orders", "-n", HUGE],
        ["tail", "orders", "-f", "--timeout", "nan"],
        ["tail", "orders", "--timeout", "1"],
        ["trim", "orders", "--keep", HUGE],
        ["trim", "orders", "--before", HUGE],
        ["cursor", "set", "orders", "c", HUGE],
        ["export", "orders", "x.csv", "--begin", HUGE],
        ["export", "orders", "x.csv", "--begin", "5", "--end", "4"],
        ["inspect", "frames", HUGE],
        ["inspect", "frames", "1", "--offset", HUGE],
        ["log", "create", "x", "--retention", f"{HUGE}w"],
        ["log", "create", "x", "--retention-bytes", f"{HUGE}T"],
        ["bench", "--seconds", "nan"],
        ["read", "orders", "1", "--key", ""],
        ["log", "create", "\udcff"],
        ["read", "\udcff"],
        ["append", "\udcff", "x"],
        ["cursor", "set", "orders", "\udcff", "1"],
    ],
)
def test_arguments_out_of_range_are_wrong_usage(
    orders: Cli, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(orders.data)
    result = orders.run(*arguments, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert "_ms" not in result.stderr
    assert "_bytes" not in result.stderr


def test_values_that_are_no_text_are_stored_as_they_are(cli: Cli) -> None:
    cli.run("append", "log", "\udcff\udcfe", "--key", "\udcfd", "--create")
    with braidlog.open(cli.data, read_only=True) as node:
        record = node.log("log")[1]
    assert (record.key, record.value) == (b"\xfd", b"\xff\xfe")
    found = cli.run("read", "log", "--key", "\udcfd", "--format", "raw")
    assert found.stdout_bytes == b"\xff\xfe\n"


def test_names_cannot_steer_the_terminal(cli: Cli) -> None:
    name = "a\n\x1b[31mb"
    refused = cli.run("log", "create", name, code=1)
    assert "a\\n\\x1b[31mb" in refused.stderr
    with braidlog.open(cli.data) as node:  # A former version took it.
        node._backend.store.create_log(name, 7, b"{}")
    assert len(cli.run("log", "list").stdout.splitlines()) == 2
    assert [row["log"] for row in cli.json("log", "list")] == [name]
    result = cli.run("read", "\x1b[31mred", code=3)
    assert "\x1b" not in result.stderr


def test_a_directory_that_is_none_of_ours(cli: Cli, tmp_path: Path) -> None:
    cli.data.mkdir()
    for arguments in (["log", "list"], ["append", "x", "y"], ["verify"]):
        result = cli.run(*arguments, code=3)
        assert f"no Braidlog data in {cli.data}" in result.stderr
        assert "--data" in result.stderr
    assert list(cli.data.iterdir()) == []
    (cli.data / "mine").touch()
    cli.run("inspect", "segments", code=3)
    cli.run("log", "create", "x", code=1)


@pytest.mark.parametrize(
    "arguments",
    [["frames", "99"], ["index", "99"], ["frames", "1", "--log", "other"]],
)
def test_what_is_not_in_the_files(orders: Cli, arguments: list[str]) -> None:
    result = orders.run("inspect", *arguments, code=3)
    assert "`braidlog inspect segments`" in result.stderr


def test_an_export_into_no_directory_names_it(orders: Cli, tmp_path: Path) -> None:
    result = orders.run("export", "orders", str(tmp_path / "no" / "x.csv"), code=3)
    assert f"the directory {tmp_path / 'no'} does not exist" in result.stderr
    assert "partial" not in result.stderr


def test_inputs_before_one_without_separator_are_appended(cli: Cli) -> None:
    arguments = ["append", "log", "--create", "--key-separator", "="]
    result = cli.run(*arguments, stdin="a=1\nb=2\nc\nd=4\n", code=2)
    assert result.stdout == "appended 2: 1 to 2\n"
    assert "input 3 does not contain the key separator '='" in result.stderr
    assert cli.values("log") == ["1", "2"]


def test_shared_options_before_the_command(orders: Cli) -> None:
    result = orders.run("--json", "log", "list", code=2)
    assert "put --json after the command" in result.stderr


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"a":1e999}', "is not a time"),
        ('{"a":NaN}', "NaN is not JSON"),
        ('{"a":99999999999999999999999}', "is not a time"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_numbers_and_nesting_of_imported_rows(
    cli: Cli, tmp_path: Path, content: str, complaint: str
) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text(content)
    arguments = ["import", "log", str(file), "--timestamp", "a", "--create"]
    result = cli.run(*arguments, code=1)
    assert f"{file}, row 1: " in result.stderr
    assert complaint in result.stderr


def test_csv_fields_as_large_as_a_record(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("a\n" + "x" * 1_000_000 + "\n")
    cli.run("import", "log", str(file), "--value", "a", "--create")
    assert [len(value) for value in cli.values("log")] == [1_000_000]


def run(data: Path, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "braidlog", *arguments, "--data", str(data)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
    )


@pytest.mark.process
def test_a_terminal_without_unicode(cli: Cli) -> None:
    cli.run("log", "create", "日")
    latin = {"PYTHONIOENCODING": "latin-1"}
    with run(cli.data, "log", "list", **latin) as process:
        out, error = process.communicate()
    assert (process.returncode, error) == (0, b"")
    assert b"\\u65e5" in out
    with run(cli.data, "log", "list", "--json", **latin) as process:
        out, _ = process.communicate()
    assert json.loads(out)["log"] == "日"


@pytest.mark.process
@pytest.mark.parametrize(
    "arguments", [["log", "list"], ["read", "orders"], ["log", "list", "--json"]]
)
def test_a_full_device_behind_stdout(orders: Cli, arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "braidlog", *arguments, "--data", str(orders.data)],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert result.returncode == 1
    if "--json" in arguments:
        assert json.loads(result.stderr)["error"]["code"] == "failure"
    else:
        assert result.stderr == b"error: No space left on device\n"


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "closed"),
    [
        (["read", "orders"], "stdout"),
        (["append", "orders", "x"], "stdout"),
        (["append", "orders"], "stdin"),
        (["log", "delete", "orders"], "stdin"),
        (["import", "orders", "-", "--format", "csv"], "stdin"),
    ],
)
def test_streams_that_are_closed(
    orders: Cli, arguments: list[str], closed: str
) -> None:
    closing = {"stdout": ">&-", "stdin": "<&-"}[closed]
    command = f'exec {sys.executable} -m braidlog "$@" {closing}'
    result = subprocess.run(
        ["sh", "-c", command, "sh", *arguments, "--data", str(orders.data)],
        check=False,
        capture_output=True,
    )
    assert result.returncode in (1, 2)
    assert result.stderr.startswith(b"error: ")
    [log] = orders.json("log", "list")
    assert log["records"] == 10
