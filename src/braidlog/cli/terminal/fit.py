"""Make what `braidlog top` shows fit the terminal, without hiding trouble.

Nothing is cut off at the bottom or the side unsaid: of rows that do not fit those in
trouble stay and the others are counted, and columns go in the order of what they are
worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table

_TABLES: Final = ("streams", "logs", "hosts", "nodes")
_NAMES: Final = {"log", "application"}
_FINE: Final = {"ok", "up", True, None}
# The least important first; what is not here stays to the end.
_COLUMNS: Final = (
    "cuts/s", "replay", "since", "waiting", "connections", "appends/s", "votes",
    "epoch", "snapshot", "primary of", "stored", "calls/s", "records", "braid",
    "address", "committed", "replicas", "marks", "role", "streams", "records/s", "lag",
)  # fmt: skip

_NAME_MIN: Final = 8

Look = dict[str, Any]


def fitted(
    look: Look, console: Console, frame: Callable[[Look], RenderableType]
) -> RenderableType:
    """Return the frame of a look as it fits the console."""
    size = console.size
    look, left = dict(look), dict.fromkeys(_TABLES, 0)
    look["left"] = left
    for name in _TABLES:
        # More rows than lines never fit, and to render them all takes long.
        _shorten(look, name, size.height)
    while True:
        shown = frame(look)
        for table in _tables(shown):
            _narrow(table, console)
        over = len(console.render_lines(shown, pad=False)) - size.height
        longest = max(_TABLES, key=lambda name: len(look.get(name) or ()))
        rows = len(look.get(longest) or ())
        if over <= 0 or not rows:
            return shown
        _shorten(look, longest, max(rows - over, rows // 2))


def _shorten(look: Look, name: str, count: int) -> None:
    """Keep so many rows, those in trouble first, in their order."""
    rows = look.get(name)
    if not rows or len(rows) <= count:
        return
    worst = sorted(range(len(rows)), key=lambda number: (_fine(rows[number]), number))
    look[name] = [rows[number] for number in sorted(worst[:count])]
    look["left"][name] += len(rows) - count


def _fine(row: dict[str, Any]) -> bool:
    return row.get("state", row.get("ready")) in _FINE


def _tables(shown: RenderableType) -> Iterator[Table]:
    if isinstance(shown, Table):
        yield shown
    elif isinstance(shown, Group):
        for each in shown.renderables:
            yield from _tables(each)


def _narrow(table: Table, console: Console) -> None:
    """Let each row be one line: without some columns, at last with names cut."""
    for column in table.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
        if column.header in _NAMES:
            # One long name leaves room for what there is to know.
            column.max_width = max(_NAME_MIN, console.width // 3)
    options = console.options.update(max_width=1 << 16)
    for name in _COLUMNS:
        if Measurement.get(console, options, table).maximum <= console.width:
            return
        table.columns[:] = [each for each in table.columns if each.header != name]
