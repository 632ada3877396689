"""Progress of long work, on stderr, only where a person looks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)


class Meter:
    """How far one piece of work has come."""

    def __init__(self, progress: Progress, label: str, total: int | None) -> None:
        """Start at nothing; a `total` of None is unknown."""
        self._progress = progress
        self._task = progress.add_task(label, total=total)

    def at(self, completed: int, total: int | None = None) -> None:
        """Set how much is done, and the total where it became known."""
        self._progress.update(self._task, completed=completed, total=total)


@contextmanager
def meter(label: str, total: int | None, *, unit: str = "") -> Iterator[Meter]:
    """Show a bar until the block ends; `unit` is "bytes" or what is counted."""
    counter: ProgressColumn = (
        DownloadColumn(binary_units=True) if unit == "bytes" else MofNCompleteColumn()
    )
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        counter,
        TextColumn("" if unit == "bytes" else unit),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        yield Meter(progress, label, total)
