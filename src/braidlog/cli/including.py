"""Options of commands that may read the archive of a log, or pass over its holes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

__all__ = ["archive_options", "hole_option"]


def _remember(ctx: click.Context, _: click.Parameter, include: bool) -> None:  # noqa: FBT001, RUF100
    ctx.meta[__name__] = include


def _place(ctx: click.Context, _: click.Parameter, place: str | None) -> bool | str:
    return bool(ctx.meta.get(__name__)) if place is None else place


_ARCHIVE = click.option(
    "--archive",
    metavar="PLACE",
    callback=_place,
    help="Read trimmed records from the archive in this directory or at this URI.",
)
_INCLUDE_ARCHIVE = click.option(
    "--include-archive",
    is_flag=True,
    is_eager=True,  # Before --archive, which gives the value of both.
    expose_value=False,
    callback=_remember,
    help="Read trimmed records from the log's archive.",
)


def archive_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that give ``archive``: a place, the recorded one, or False."""
    return _INCLUDE_ARCHIVE(_ARCHIVE(function))


hole_option = click.option(
    "--skip-holes",
    is_flag=True,
    help="Continue after positions whose records a repair declared lost.",
)
