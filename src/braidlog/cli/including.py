"""Options of commands that may read the archive of a log too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from braidlog import Log

__all__ = ["archive_options", "hole_option", "include", "skipping"]


def archive_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of commands that may read an archive too."""
    for option in (
        click.option(
            "--archive",
            metavar="PLACE",
            help=(
                "Read trimmed records from the archive in this directory or"
                " at this URI."
            ),
        ),
        click.option(
            "--include-archive",
            is_flag=True,
            help="Read trimmed records from the log's archive.",
        ),
    ):
        function = option(function)
    return function


hole_option = click.option(
    "--skip-holes",
    is_flag=True,
    help=("Continue after positions whose records a repair declared lost."),
)


def skipping(log: Any, skip_holes: bool) -> dict[str, Any]:
    """Return what the option says, for the calls of a log."""
    if not skip_holes:
        return {}
    if not isinstance(log, Log):
        raise click.UsageError(
            "--skip-holes is for data directories only: nodes have no declared holes"
        )
    return {"skip_holes": True}


def include(include_archive: bool, archive: str | None) -> bool | str:
    """Return what the options say, for `include_archive` of a log's calls."""
    return include_archive if archive is None else archive
