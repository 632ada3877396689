"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import click

from braidlog.cli.command import parameters

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


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


hole_option: Decorator = click.option(
    "--skip-holes",
    is_flag=True,
    help="Continue after positions whose records a repair declared lost.",
)

raw_option: Decorator = click.option(
    "--raw",
    multiple=True,
    type=parameters.FOLDER,
    metavar="DIR",
    help="Directory of a stopped node. Repeat for each node.",
)

outcomes_option: Decorator = click.option(
    "--outcomes",
    type=click.Choice(["strict", "report", "off"]),
    default="strict",
    show_default=True,
    help="If an outcome differs from the log: stop, or report and continue.",
)

environment_option: Decorator = click.option(
    "--environment",
    type=click.Choice(["refuse", "report", "off"]),
    default="refuse",
    show_default=True,
    help=(
        "If outcomes were computed in another environment: refuse, "
        "or report and continue."
    ),
)

snapshots_option: Decorator = click.option(
    "--snapshots",
    type=parameters.DIRECTORY,
    metavar="DIR",
    help=(
        "Directory of snapshots to begin from [default: snapshots "
        "in the data directory]."
    ),
)

from_zero_option: Decorator = click.option(
    "--from-zero", is_flag=True, help="Begin at the first record, without a snapshot."
)

interval_option: Decorator = click.option(
    "--interval",
    type=parameters.seconds,
    default="1",
    show_default=True,
    help="Seconds between two refreshes.",
)

host_option: Decorator = click.option(
    "--host",
    "address",
    metavar="HOST:PORT",
    help="The host to use [default: the first of --hosts].",
)

app_option: Decorator = click.option(
    "--app",
    "application",
    metavar="MODULE:APP",
    help="With --directory: the application, as MODULE:NAME.",
)

yes_option: Decorator = click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation."
)


def layout_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how a record is printed."""
    for option in (
        click.option(
            "--delimiter",
            type=parameters.delimiter,
            default=r"\n",
            help="Separator of raw values [default: \\n].",
        ),
        click.option(
            "--binary",
            type=click.Choice(["base64", "hex"]),
            default="base64",
            show_default=True,
            help="How JSON shows bytes that are not UTF-8.",
        ),
        click.option(
            "--format",
            "layout",
            type=click.Choice(["text", "json", "raw"]),
            default="text",
            show_default=True,
            help=(
                "text: position, time, key and value, separated by tabs; "
                "json: one object per line; raw: only the values."
            ),
        ),
    ):
        function = option(function)
    return function
