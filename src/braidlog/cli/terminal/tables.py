"""Tables for people: aligned columns under a bold head."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import click
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text


def print_table(
    columns: Mapping[str, Sequence[str]], to_right: Collection[str]
) -> None:
    """Print columns of equal length; those named in ``to_right`` end below one another.

    A narrow terminal wraps the lines, which is better than cutting cells.
    """
    widths = {
        name: max(map(cell_len, [name, *cells])) for name, cells in columns.items()
    }

    def aligned(cells: Iterable[str]) -> str:
        padded = []
        for name, cell in zip(columns, cells, strict=True):
            space = " " * (widths[name] - cell_len(cell))
            padded.append(space + cell if name in to_right else cell + space)
        return "  ".join(padded).rstrip()

    width = sum(widths.values()) + 2 * len(widths)
    console = Console(highlight=False, width=width)
    # Printed by rich itself, a closed pipe would end the process its way.
    with console.capture() as head:
        console.print(Text(aligned(columns), style="bold"), soft_wrap=True)
    click.echo(head.get(), nl=False)
    for cells in zip(*columns.values(), strict=True):
        click.echo(aligned(cells))
