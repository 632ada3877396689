"""``braidlog app resize``: another number of partitions for an application."""

from __future__ import annotations

from pathlib import Path

import click

from braidlog.cli.app.applications import calling, opened
from braidlog.cli.command.commands import HostsCommand
from braidlog.cli.command.failures import USAGE, Problem
from braidlog.cli.command.options import app_option, host_option
from braidlog.cli.command.parameters import DIRECTORY, Whole
from braidlog.cli.command.session import Session
from braidlog.cli.terminal.output import line, message


@click.command(cls=HostsCommand)
@click.argument("partitions", type=Whole(1))
@host_option
@click.option("--directory", type=DIRECTORY, help="Open this directory to do it.")
@app_option
def resize(
    session: Session,
    /,
    partitions: int,
    address: str | None,
    directory: Path | None,
    application: str | None,
) -> None:
    """Give an application another number of PARTITIONS.

    An entry in the log says so, and each host spreads its rows over the new partitions
    when it comes to the entry; calls wait meanwhile. The program names in row_keys= the
    column of each table that has the partition key of a row. Interrupted, it may go on;
    run it again to wait for it.
    """
    if directory is not None and address is not None:
        text = "--directory and --host exclude each other"
        raise Problem(text, "leave one of them out", USAGE)
    message(f"spreading the rows over {partitions} partitions; calls wait meanwhile")
    if directory is not None:
        with opened(application, directory) as host:
            host.resize(partitions)
            found, position = host.partitions, host.position
    else:
        with calling(session, address) as caller:
            said = caller.resize(partitions, address)
            found, position = said.partitions, said.applied
    text = f"{found} partitions as of position {position}"
    line(session, text, partitions=found, position=position)
