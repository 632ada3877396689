"""Print facts: as aligned text for people, as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from braidlog.cli.session import Session

__all__ = ["clock", "facts", "human_bytes", "line", "message", "plain", "rows"]

# Wide enough that no table wraps where a program or a file takes the output.
_UNBOUNDED_WIDTH = 100_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plain(value: Any) -> Any:
    """Turn a dataclass, mapping, path or bytes into what JSON can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields}
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
    """Tell a person something beside the result."""
    click.echo(text, err=True)


def line(session: Session, text: str, **result: Any) -> None:
    """Print one result: `text` for people, the named values for programs."""
    click.echo(_json(result) if session.as_json else text)


def facts(session: Session, value: Any) -> None:
    """Print one object: a name and a value a line."""
    named = plain(value)
    if session.as_json:
        click.echo(_json(named))
        return
    flat = dict(_flatten(named))
    width = max((len(name) for name in flat), default=0)
    for name, item in flat.items():
        click.echo(f"{name:<{width}}  {_cell(item)}")


def rows(session: Session, items: Iterable[Any], *, empty: str) -> None:
    """Print many objects of one kind: a table, or a JSON object a line."""
    if session.as_json:
        for item in items:
            click.echo(_json(plain(item)))
        return
    table = [dict(_flatten(plain(item))) for item in items]
    if table:
        _print_table(table)
    else:
        message(empty)


def human_bytes(count: int) -> str:
    """Return a size a person can read."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:.0f} {units[0]}" if units[0] == "B" else f"{size:.1f} {units[0]}"


def clock(timestamp: int) -> str:
    """Return a timestamp as ISO 8601 in UTC, or the number where no date fits."""
    try:
        moment = _EPOCH + timedelta(microseconds=timestamp)
    except OverflowError:
        return f"{timestamp}us"
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


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
    return str(value)


def _print_table(table: Sequence[Mapping[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in table for name in row))
    view = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        numeric = all(isinstance(row.get(name), (int, float)) for row in table)
        view.add_column(name, justify="right" if numeric else "left", no_wrap=True)
    for row in table:
        view.add_row(*(Text(_cell(row.get(name))) for name in names))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _UNBOUNDED_WIDTH
    console.print(view)
