"""An import that fails says exactly how far it came, and goes on from there."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.errors import StoreFailedError
from unit.cli.conftest import Cli

SEGMENT = 64 << 10


def lines(count: int, size: int = 1) -> list[str]:
    return [json.dumps({"v": f"{i} ".ljust(size, "x")}) for i in range(1, count + 1)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join(lines(20)))
    return path


def numbers(cli: Cli) -> list[int]:
    return [int(value.split()[0]) for value in cli.values("log")]


def failing(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, after: int
) -> pytest.MonkeyPatch:
    """Let `Log.submit_many` fail after so many calls."""
    submit_many, calls = braidlog.Log.submit_many, iter(range(after))

    def broken(log: Any, values: Any, **options: Any) -> Any:
        if next(calls, None) is None:
            raise error
        return submit_many(log, values, **options)

    monkeypatch.setattr(braidlog.Log, "submit_many", broken)
    return monkeypatch


@pytest.mark.parametrize("bad", [1, 2, 11, 20])
def test_everything_before_a_bad_row_is_in(cli: Cli, file: Path, bad: int) -> None:
    rows = lines(20)
    file.write_text("\n".join([*rows[: bad - 1], "{bad", *rows[bad:]]))
    arguments = ["import", "log", str(file), "--value", "v", "--create", "--batch", "4"]
    result = cli.run(*arguments, code=1)
    error, *notes = result.stderr.splitlines()
    assert error.startswith(f"error: {file}, row {bad}: ")
    note = f"note: next is {file}, row {bad}; pass --skip {bad - 1} to continue there"
    assert notes == ([note] if bad > 1 else [])
    assert numbers(cli) == list(range(1, bad))
    file.write_text("\n".join(rows))
    cli.run(*arguments, "--skip", str(bad - 1))
    assert numbers(cli) == list(range(1, 21))


def test_the_result_of_a_failed_import_is_exact(cli: Cli, file: Path) -> None:
    cli.run("log", "create", "log")
    cli.run("append", "log", "there before")
    file.write_text("\n".join([*lines(6), "{bad"]))
    arguments = ["import", "log", str(file), "--value", "v", "--skip", "2"]
    [result] = cli.json(*arguments, code=1)
    assert result == {"log": "log", "records": 4, "skipped": 2, "first": 2, "end": 6}
    result = cli.run(*arguments, code=1)
    assert result.stdout == "imported 4 records into log: 6 to 9; 2 skipped\n"


def test_a_bad_row_among_those_to_skip(cli: Cli, file: Path) -> None:
    file.write_text("\n".join([*lines(3), "{bad", *lines(3)]))
    arguments = ["import", "log", str(file), "--value", "v", "--create", "--skip", "6"]
    error, note = cli.run(*arguments, code=1).stderr.splitlines()
    assert f"{file}, row 4: " in error
    assert note == "note: it is among the 6 rows to skip; nothing was appended"


def test_a_bad_row_of_a_later_file_is_named(cli: Cli, file: Path) -> None:
    second = file.with_name("s.jsonl")
    second.write_text("\n".join([*lines(2), "{bad"]))
    result = cli.run(
        "import", "log", str(file), str(second), "--value", "v", "--create", code=1
    )
    assert f"next is {second}, row 3; pass --skip 22 to continue there" in result.stderr
    assert len(numbers(cli)) == 22


def test_a_row_that_is_too_large_is_named(cli: Cli, file: Path) -> None:
    rows = lines(20)
    rows[6] = json.dumps({"v": "7 " + "x" * (17 << 20)})
    file.write_text("\n".join(rows))
    arguments = ["import", "log", str(file), "--value", "v", "--create"]
    result = cli.run(*arguments, code=1)
    error, note, hint = result.stderr.splitlines()
    assert error.startswith(f"error: {file}, row 7: record batch of 17")
    assert note.endswith("row 7; pass --skip 6 to continue there")
    assert "split it" in hint
    assert numbers(cli) == [1, 2, 3, 4, 5, 6]
    cli.run(*arguments, "--skip", "7")
    assert numbers(cli) == [*range(1, 7), *range(8, 21)]


@pytest.mark.parametrize("producer", [False, True])
def test_a_full_log_in_the_middle_of_a_batch(
    cli: Cli, file: Path, monkeypatch: pytest.MonkeyPatch, *, producer: bool
) -> None:
    small = functools.partial(
        braidlog.open, segment_bytes=SEGMENT, wal_bytes_max=12 * SEGMENT
    )
    monkeypatch.setattr(braidlog, "open", small)
    file.write_text("\n".join(lines(900, 1000)))
    arguments = ["import", "log", str(file), "--value", "v", "--create"]
    arguments += ["--producer", "me"] if producer else []
    result = cli.run(*arguments, code=7)
    there = numbers(cli)
    assert 300 < len(there) < 900
    assert there == list(range(1, len(there) + 1))
    count = len(there)
    assert result.stdout == f"imported {count} records into log: 1 to {count}\n"
    way = "run the same command again" if producer else f"pass --skip {count}"
    way += " to continue there"
    assert f"next is {file}, row {count + 1}; {way}" in result.stderr
    cli.run("trim", "log", "--before", str(count + 1), "--yes")
    arguments += [] if producer else ["--skip", str(count)]
    rest = cli.run(*arguments, code=7 if 900 - count > count else 0)
    assert f": {count + 1} to " in rest.stdout
    assert numbers(cli)[:3] == [count + 1, count + 2, count + 3]


def test_an_interrupt_waits_for_what_is_on_its_way(
    cli: Cli, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["import", "log", str(file), "--value", "v", "--create", "--batch", "4"]
    with failing(monkeypatch, KeyboardInterrupt(), after=3).context():
        result = cli.run(*arguments, code=130)
    monkeypatch.undo()
    assert result.stdout == "imported 12 records into log: 1 to 12\n"
    interrupted, note = result.stderr.splitlines()
    assert interrupted == "interrupted"
    assert note.endswith("row 13; pass --skip 12 to continue there")
    cli.run(*arguments, "--skip", "12")
    assert numbers(cli) == list(range(1, 21))


def test_a_failed_store_may_have_stored_more(
    cli: Cli, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.run("log", "create", "log")
    cli.run("append", "log", "0", "0")
    failing(monkeypatch, StoreFailedError("sync failed"), after=3)
    result = cli.run("import", "log", str(file), "--value", "v", "--batch", "4", code=1)
    assert "row 13; if more rows were stored" in result.stderr
    assert "shows, less 3" in result.stderr
    [listed] = cli.json("log", "list")
    assert listed["end"] - 3 == 12


def test_rows_from_stdin(cli: Cli) -> None:
    text = "\n".join(lines(5))
    cli.run("import", "log", "-", "--format", "jsonl", "--create", "-q", code=2)
    arguments = ["import", "log", "-", "--value", "v", "--create"]
    assert "--format" in cli.run(*arguments, stdin=text, code=2).stderr
    cli.run(*arguments, "--format", "jsonl", stdin=text)
    assert numbers(cli) == [1, 2, 3, 4, 5]


def test_a_name_that_tells_no_format_creates_nothing(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "r.txt"
    file.write_text("")
    result = cli.run("import", "log", str(file), "--create", code=2)
    assert "the format cannot be told" in result.stderr
    assert "--format" in result.stderr
    assert not cli.data.exists()


@pytest.mark.parametrize("options", [["--skip", "1"], []])
def test_a_producer_needs_a_name_and_skips_by_itself(
    cli: Cli, file: Path, options: list[str]
) -> None:
    name = "me" if options else ""
    cli.run(
        "import", "log", str(file), "--producer", name, "--create", *options, code=2
    )
