"""Every call of the command in a document has options that exist."""

import contextlib
import re
import shlex
from pathlib import Path

import click
import pytest

from braidlog.cli import main
from docs.documents import DOCUMENTS, blocks, name

_CODE = re.compile(r"`(braidlog [^`\n]+)`")


def calls(document: Path) -> list[str]:
    lines = [line for block in blocks(document) for line in block.text.splitlines()]
    lines = [line.removeprefix("$ ").split("  #")[0] for line in lines]
    shown = [line.split(" | ")[-1] for line in lines]
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.M | re.S)
    return [line for line in shown if line.startswith("braidlog ")] + _CODE.findall(
        text
    )


def check(arguments: list[str]) -> None:
    """Let click parse a call, without running it."""
    command: click.Command = main
    context = click.Context(main, info_name="braidlog")
    while isinstance(command, click.Group) and arguments:
        found = command.get_command(context, arguments[0])
        if found is None:
            raise click.UsageError(f"no command {arguments[0]}", context)
        command, context = found, click.Context(found, context, arguments[0])
        arguments = arguments[1:]
    # It may be a file that is not here, or a name that stands for one.
    with contextlib.suppress(click.BadParameter):
        command.parse_args(context, list(arguments))


def test_calls_can_be_parsed() -> None:
    wrong = []
    for document, call in [(each, call) for each in DOCUMENTS for call in calls(each)]:
        try:
            check(shlex.split(call)[1:])
        except click.exceptions.NoArgsIsHelpError:
            continue
        except click.UsageError as error:
            wrong.append((name(document), call, error.format_message()))
    assert wrong == []


@pytest.mark.parametrize("arguments", [["log", "list", "--no"], ["logs"]])
def test_a_call_that_is_wrong_is_found(arguments: list[str]) -> None:
    with pytest.raises(click.UsageError):
        check(arguments)
