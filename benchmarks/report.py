"""Results as a table on the terminal, JSON lines, and plots."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.rows import Row

_COLUMNS = (
    *("metric", "ours", "floor", "x floor", "best peer", "x peer", "target"),
    "result",
)
_PIPE_COLUMNS = 150


def console() -> Console:
    """Return a console that is wide enough for the tables when nobody looks."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_COLUMNS)


def header(console: Console, facts: Mapping[str, str]) -> None:
    """Print what the results depend on."""
    table = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        table.add_row(name, Text(value), style="dim")
    console.print(table)


def table(console: Console, title: str, rows: Sequence[Row]) -> None:
    """Print the rows of one question."""
    made = Table(title=title, title_justify="left", title_style="bold")
    made.add_column("workload", overflow="fold", min_width=24)
    for name in _COLUMNS:
        left = name in ("metric", "result")
        made.add_column(name, justify="left" if left else "right")
    for row in rows:
        made.add_row(Text(row.workload), *_cells(row))
    console.print(made)
    notes = [part for row in rows for part in row.note.split("; ") if part]
    for note in dict.fromkeys(notes):
        console.print(Text(f"  {note}", style="dim"))


def _cells(row: Row) -> list[str | Text]:
    peer = ""
    if row.best_peer is not None:
        peer = f"{number(row.best_peer)}\n{row.best_peer_name}"
    return [
        row.metric,
        number(row.ours),
        _spread(row.floor, row.floor_spread),
        _spread(row.ratio_to_floor, row.spread_to_floor),
        peer,
        _spread(row.ratio_to_peer, row.spread_to_peer),
        row.target,
        verdict(row),
    ]


def number(value: float | None) -> str:
    """Return a figure with three significant digits, thousands separated."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _spread(value: float | None, spread: tuple[float, float] | None) -> str:
    if value is None or spread is None:
        return ""
    return f"{number(value)}\n{number(spread[0])}..{number(spread[1])}"


def verdict(row: Row) -> Text:
    """Say whether the target is met and the best peer beaten."""
    words = []
    if row.met is not None:
        words.append(("met", "green") if row.met else ("MISSED", "bold red"))
    elif row.target:
        words.append(("not measured", "yellow"))
    if row.ahead is not None:
        words.append(("ahead", "green") if row.ahead else ("BEHIND", "bold red"))
    return Text(" ").join(Text(word, style) for word, style in words)


def json_lines(path: Path, facts: Mapping[str, str], rows: Sequence[Row]) -> None:
    """Write the header and the rows, one JSON object a line."""
    lines = [{"header": dict(facts)}, *(row.as_json() for row in rows)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
