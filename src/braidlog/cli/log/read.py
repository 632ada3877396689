"""``braidlog read`` and ``braidlog tail``: records on stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

import click

import braidlog
from braidlog.cli.command import parameters
from braidlog.cli.command.commands import EitherCommand, command
from braidlog.cli.command.options import archive_options, hole_option, layout_options
from braidlog.cli.command.session import NO_HOLES, Session
from braidlog.cli.terminal.records import encoder


@command(kind=EitherCommand)
@click.argument("log")
@click.argument("position", type=parameters.POSITION, required=False)
@click.option("--begin", type=parameters.POSITION, help="First position.")
@click.option("--end", type=parameters.POSITION, help="Stop before this position.")
@click.option("--key", help="Only records with this key.")
@click.option(
    "--since", type=parameters.timestamp, help="Only records from this time on."
)
@click.option(
    "--until", type=parameters.timestamp, help="Only records before this time."
)
@click.option("--limit", type=parameters.COUNT, help="Print at most this many records.")
@click.option("--reverse", "-r", is_flag=True, help="Newest record first.")
@archive_options
@hole_option
@layout_options
def read(
    session: Session,
    /,
    log: str,
    position: int | None,
    *,
    begin: int | None,
    key: str | None,
    layout: str,
    binary: Any,
    delimiter: bytes,
    reverse: bool,
    archive: bool | str,
    skip_holes: bool,
    **bounds: Any,
) -> None:
    """Print records.

    Prints the record at POSITION of LOG, or all records that the options select, oldest
    first, or newest first with --reverse. --limit counts from the first one printed.
    """
    filters = {name: value for name, value in bounds.items() if value is not None}
    if position is not None and (filters or begin or key is not None):
        raise click.UsageError(
            "POSITION names one record; for a range pass --begin and --end without it"
        )
    with session.logs() as store:
        source = store.log(log)
        records: Iterable[braidlog.Record]
        if position is not None and not archive:
            records = [source.get(position)]
        elif position is not None:
            if position >= source.end:
                source.get(position)  # Says so.
            records = source.read(position, position + 1, include_archive=archive)
        else:
            encoded = None if key is None else os.fsencode(key)
            if skip_holes:
                if session.cluster is not None:
                    raise click.UsageError(NO_HOLES)
                filters["skip_holes"] = True
            records = source.read(
                begin,
                key=encoded,
                reverse=reverse,
                include_archive=archive,
                **filters,
            )
        _print(session, records, layout, binary, delimiter)


@command(kind=EitherCommand)
@click.argument("log")
@click.option(
    "--lines",
    "-n",
    "count",
    type=parameters.COUNT,
    default=10,
    show_default=True,
    help="Begin with this many of the last records.",
)
@click.option("--follow", "-f", is_flag=True, help="Continue with new records.")
@click.option(
    "--timeout",
    type=parameters.seconds,
    help=("With --follow: stop after this many seconds without a record."),
)
@layout_options
def tail(
    session: Session,
    log: str,
    *,
    count: int,
    follow: bool,
    timeout: float | None,
    **layout: Any,
) -> None:
    """Print the last records, follow the log.

    With --follow it then prints new records of LOG as they are appended.
    """
    if timeout is not None and not follow:
        raise click.UsageError("--timeout needs --follow")
    with session.logs() as store:
        source = store.log(log)
        begin = max(source.first, source.end - count)
        records = (
            source.subscribe(begin, timeout=timeout) if follow else source.read(begin)
        )
        _print(session, records, **layout, flush=follow)


def _print(
    session: Session,
    records: Iterable[braidlog.Record],
    layout: str,
    binary: Any,
    delimiter: bytes,
    *,
    flush: bool = False,
) -> None:
    encode = encoder(
        "json" if session.as_json else layout, binary=binary, delimiter=delimiter
    )
    stdout = sys.stdout.buffer
    for record in records:
        stdout.write(encode(record))
        if flush:
            stdout.flush()
    stdout.flush()
