"""Exit codes and one-line messages, for every kind of failure."""

import json
import re
from typing import Any

import click
import pytest
from click.testing import CliRunner

import braidlog
from braidlog import errors
from braidlog.app import DivergedError
from braidlog.cli import main
from braidlog.cli.command.failures import KNOWN, Problem, explain
from unit.cli.conftest import Cli


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.LogError("x"), 1),
        (errors.StoreFailedError("x"), 1),
        (errors.NewerFormatError("x"), 1),
        (errors.InvalidArgumentError("x"), 1),
        (click.UsageError("x"), 2),
        (errors.NotFoundError("x"), 3),
        (FileNotFoundError(2, "No such file", "f"), 3),
        (errors.LockedError("x"), 4),
        (errors.CorruptionError("x"), 5),
        (errors.MissingFileError("x"), 5),
        (errors.TrimmedError("x"), 6),
        (errors.BeyondEndError("x"), 6),
        (errors.LogFullError("x"), 7),
        (Problem("x", exit_code=2), 2),
    ],
)
def test_exit_codes(error: Exception, code: int) -> None:
    assert isinstance(error, KNOWN)
    assert explain(error).exit_code == code


def is_command(text: str) -> bool:
    known: click.Command | None = main
    for word in text.split():
        if isinstance(known, click.Group):
            known = known.get_command(click.Context(known), word)
    return known is not None


def test_hints_of_commands_speak_of_commands() -> None:
    hints = {name: explain(getattr(errors, name)("x")).hint for name in errors.__all__}
    python = re.compile(r"=True|=False|\w\(|\.\w+\b|wal_bytes|\bLog\b|retry\b")
    assert {name: hint for name, hint in hints.items() if python.search(hint)} == {}
    named = [
        (name, command)
        for name, hint in hints.items()
        for command in re.findall(r"`braidlog ([^`]*)`", hint)
    ]
    assert named
    assert [each for each in named if not is_command(each[1])] == []


def test_hints_of_the_library_speak_of_the_library() -> None:
    hints = {name: getattr(errors, name).hint for name in errors.__all__}
    assert {name: hint for name, hint in hints.items() if "--" in hint} == {}
    absent = [
        (name, owner, member)
        for name, hint in hints.items()
        for owner, member in re.findall(r"`(Log|Store)\.(\w+)`", hint)
        if not hasattr(getattr(braidlog, owner), member)
    ]
    assert absent == []


def test_hints_take_what_the_error_knows() -> None:
    failure = explain(errors.TrimmedError("trimmed", first=8))
    assert "`braidlog read LOG --begin 8`" in failure.hint


def test_the_hint_is_that_of_the_nearest_class() -> None:
    """What diverged is corruption, but `braidlog repair` cannot mend it."""
    hint = explain(DivergedError("command 7 gave another result")).hint
    assert "restore the partition from a snapshot" in hint
    assert "repair" not in hint
    assert "braidlog verify" in explain(errors.CorruptionError("damaged")).hint


def test_notes_of_an_error_are_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        error = errors.LogFullError("log full")
        error.add_note("the first 3 records were appended")
        raise error

    cli.run("log", "create", "log")
    monkeypatch.setattr(braidlog, "open", refuse, raising=False)
    result = cli.run("log", "list", code=7)
    assert result.stderr.splitlines()[:2] == [
        "error: log full",
        "note: the first 3 records were appended",
    ]


def test_a_missing_extra_says_what_to_install() -> None:
    error = ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow.parquet")
    assert explain(error).hint == "pip install 'braidlog[arrow]'"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["reed"], "No such command 'reed'. Did you mean 'read'"),
        (["log", "lst"], "'list'"),
        (["read", "x", "--revers"], "--reverse"),
        (["read", "x", "5", "2"], "read`: 2 (it takes LOG [POSITION])"),
        (["read", "x", "abc"], "'abc' is not a whole number"),
        (["read", "x", "0"], "positions begin at 1"),
        (["read", "x", "5", "--end", "9"], "for a range pass --begin and --end"),
        (["log", "create", "x", "--streams", "9999"], "9999 is more than 1024"),
        (["read"], "Missing argument 'LOG'"),
        (["log", "create", "x", "--retention", "soon"], "not a duration"),
        (["log", "create", "x", "--retention-bytes", "big"], "not a size"),
        (["read", "x", "--since", "soon"], "not a time"),
        (["append", "x", "--delimiter", ""], "must not be empty"),
    ],
)
def test_wrong_usage_is_a_line_and_a_hint(arguments: list[str], complaint: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    error, hint = result.stderr.splitlines()
    assert error.startswith("error: ")
    assert complaint in error
    assert hint.startswith("hint: ")
    assert hint.endswith("--help")


def test_errors_are_json_too_where_results_are(orders: Cli) -> None:
    def failed(*arguments: str, code: int) -> dict[str, Any]:
        result = CliRunner().invoke(main, [*arguments, "--json"])
        assert (result.exit_code, result.stdout) == (code, "")
        [line] = result.stderr.splitlines()
        error: dict[str, Any] = json.loads(line)["error"]
        assert error.pop("exit_code") == code
        return error

    data = ["--data", str(orders.data)]
    beyond = failed("read", "orders", "99", *data, code=6)
    assert (beyond["code"], beyond["number"]) == ("out_of_range", 21)
    assert "99" in beyond["message"]
    assert "braidlog tail" in beyond["hint"]
    absent = failed("read", "absent", *data, code=3)
    assert (absent["code"], absent["number"]) == ("not_found", 42)
    usage = failed("read", "orders", "--limit", "x", *data, code=2)
    assert (usage["code"], usage["number"]) == ("usage", None)
    assert usage["hint"].endswith("--help")
    assert failed("reed", code=2)["message"].endswith("Did you mean 'read'?")


def test_a_word_that_only_looks_like_the_option_is_a_value(orders: Cli) -> None:
    result = orders.run("append", "absent", "--", "--json", code=3)
    assert result.stderr.startswith("error: ")


def test_no_help_shows_a_bound_that_nobody_meets() -> None:
    for command in ("read", "tail", "trim", "import"):
        result = CliRunner().invoke(main, [command, "--help"])
        assert "<=" not in result.stdout


def test_multi_line_messages_become_one(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise errors.LockedError("held\nby process 7")

    cli.run("log", "create", "log")
    monkeypatch.setattr(braidlog, "open", refuse, raising=False)
    result = cli.run("log", "list", code=4)
    assert result.stderr.splitlines()[0] == "error: held by process 7"


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt, 130), (BrokenPipeError, 141)]
)
def test_interrupt_and_broken_pipe_are_quiet(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], code: int
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise error

    cli.run("log", "create", "log")
    monkeypatch.setattr(braidlog, "open", stop, raising=False)
    monkeypatch.setattr("braidlog.cli.root.forget", lambda _: None)
    result = cli.run("log", "list", code=code)
    assert "Traceback" not in result.output


_PLACES = ("archive", "backup", "restore")


def test_every_command_has_help_and_the_shared_options() -> None:
    def walk(command: click.Command, path: list[str]) -> None:
        result = CliRunner().invoke(main, [*path, "--help"])
        assert result.exit_code == 0, path
        assert command.help
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                walk(child, [*path, name])
        else:
            assert "--json" in result.output, path
            ways = ("--data", "--cluster", "--hosts")
            place = any(way in result.output for way in ways)
            # A token is text; archives and backups are places of their own.
            alone = path == ["token", "create"] or path[0] in _PLACES
            assert place or alone, path

    walk(main, [])
