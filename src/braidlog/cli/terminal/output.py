"""Print facts: as aligned text for people, as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, TextIO, TypeAlias

import click

from braidlog.cli.command.session import Session
from braidlog.cli.terminal.text import printable

Shown: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any]]
"""Makes of an object for programs what a person sees of it."""


def plain(value: Any) -> Any:
    """Turn a dataclass, struct, mapping, path or bytes into what JSON can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if names := getattr(value, "__struct_fields__", None):
        # A message of the cluster, whose extra may be missing.
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (Path, datetime)):
        return str(value)
    return value


def message(text: str) -> None:
    """Tell a person something beside the result.

    That nobody can hear it, because stderr is a full disk or a closed pipe, is no
    reason to stop, nor to end with another exit code.
    """
    try:
        click.echo(printable(text), err=True)
    except OSError:
        # What it still holds would fail once more when the process ends.
        forget(sys.stderr)


def forget(output: TextIO) -> None:
    """Let what is written to `output` from now on, or was not yet, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output.fileno())
    os.close(nowhere)


def line(session: Session, text: str, **result: Any) -> None:
    """Print one result: `text` for people, the named values for programs."""
    try:
        if session.as_json:
            _print_json(result)
        else:
            click.echo(printable(text))
    except OSError as error:
        # Whoever repeats the command because of that may do the work twice.
        error.filename = error.filename or "stdout"
        error.add_note(f"the command was carried out nevertheless: {text}")
        raise


def facts(session: Session, value: Any, shown: Shown | None = None) -> None:
    """Print one object: a name and a value a line."""
    named = plain(value)
    if session.as_json:
        _print_json(named)
        return
    flat = dict(_flatten(shown(named) if shown else named))
    width = max((len(name) for name in flat), default=0)
    for name, item in flat.items():
        click.echo(f"{name:<{width}}  {_cell(item)}")


def rows(
    session: Session, items: Iterable[Any], *, empty: str, shown: Shown | None = None
) -> None:
    """Print many objects of one kind: a table, or a JSON object a line."""
    if session.as_json:
        for item in items:
            _print_json(plain(item))
        return
    named = (plain(item) for item in items)
    table = [dict(_flatten(shown(item) if shown else item)) for item in named]
    if not table:
        message(empty)
        return
    # Late: most commands print none, and rich takes long to import.
    from braidlog.cli.terminal.tables import print_table

    names = list(dict.fromkeys(name for row in table for name in row))
    right = [
        name
        for name in names
        if all(isinstance(row.get(name), (int, float, NoneType)) for row in table)
    ]
    print_table({n: [_cell(row.get(n)) for row in table] for n in names}, right)


def _print_json(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # In UTF-8 whatever the locale; the escape of a lone surrogate is JSON's as well.
    click.echo(text.encode(errors="backslashreplace"))


def _flatten(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, item in value.items():
        if isinstance(item, Mapping):
            yield from _flatten(item, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", item


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_cell(item) for item in value) or "-"
    return printable(str(value))
