"""Options of commands that may read the archive of a log too."""

from __future__ import annotations

from collections.abc import Callable

import click

__all__ = ["archive_options", "include"]


def archive_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of commands that may read an archive too."""
    for option in (
        click.option(
            "--archive",
            metavar="PLACE",
            help="The same, from the archive in this directory or at this URI.",
        ),
        click.option(
            "--include-archive",
            is_flag=True,
            help="What was trimmed comes from the log's archive.",
        ),
    ):
        function = option(function)
    return function


def include(include_archive: bool, archive: str | None) -> bool | str:
    """Return what the options say, for `include_archive` of a log's calls."""
    return include_archive if archive is None else archive
