"""Commands that the documents show exist and take the options that are shown."""

import re
import shlex
from pathlib import Path

import click
import pytest

from braidlog.cli import main

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def shown(program: str) -> list[str]:
    """Return the commands of a program in fenced or indented blocks and pipes."""
    pattern = re.compile(rf"^(?: {{4}})?(?:[^#`\n]*\| )?({program} [^|#\n]*)", re.M)
    texts = [document.read_text() for document in DOCUMENTS]
    return sorted({m[1].strip() for text in texts for m in pattern.finditer(text)})


def parse(line: str) -> None:
    """Let click parse a command line."""
    command: click.Command = main
    arguments = shlex.split(line)[1:]
    while isinstance(command, click.Group):
        named = command.get_command(click.Context(command), arguments.pop(0))
        if named is None:
            raise click.UsageError("no such command")
        command = named
    with click.Context(command) as context:
        command.parse_args(context, arguments)


def test_braidlog_commands_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    # Files that an earlier command of the document makes; tests/docs runs them all.
    monkeypatch.setattr(click.Path, "convert", lambda _self, value, *_: Path(value))
    wrong = {}
    for line in shown("braidlog"):
        try:
            parse(line)
        except click.UsageError as error:
            wrong[line] = error.format_message()
    assert wrong == {}


def test_make_targets_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
    assert [line for line in shown("make") if shlex.split(line)[1] not in targets] == []


def test_the_makefile_stays_small() -> None:
    text = (ROOT / "Makefile").read_text()
    assert len(re.findall(r"^[a-z]+:.*## ", text, re.M)) <= 15


def test_something_is_shown() -> None:
    assert len(shown("braidlog")) >= 5
    assert len(shown("make")) >= 3
