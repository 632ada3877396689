"""``braidlog trim``: forget the oldest records."""

from __future__ import annotations

import click

from braidlog.cli.command import parameters
from braidlog.cli.command.commands import EitherCommand, command
from braidlog.cli.command.failures import OUT_OF_RANGE, Problem
from braidlog.cli.command.options import yes_option
from braidlog.cli.command.session import Session
from braidlog.cli.terminal.output import line, message
from braidlog.cli.terminal.text import counted


@command(kind=EitherCommand)
@click.argument("log")
@click.option("--before", type=parameters.POSITION, help="First position to keep.")
@click.option(
    "--before-time", type=parameters.timestamp, help="Time of the first record to keep."
)
@click.option(
    "--keep", type=parameters.COUNT, help="Keep this many of the last records."
)
@yes_option
def trim(
    session: Session,
    log: str,
    *,
    before: int | None,
    before_time: int | None,
    keep: int | None,
    yes: bool,
) -> None:
    """Delete the oldest records.

    Positions of the other records of LOG do not change.
    """
    if sum(option is not None for option in (before, before_time, keep)) != 1:
        raise click.UsageError("pass exactly one of --before, --before-time and --keep")
    with session.changing() as store:
        target = store.log(log)
        first = target.first
        if keep is not None:
            before = max(first, target.end - keep)
        elif before_time is not None:
            found = target.find(timestamp=before_time)
            before = target.end if found is None else found
        assert before is not None
        if before > target.end:
            raise Problem(
                f"position {before} is beyond the end of the log, {target.end}",
                f"--before {target.end} deletes every record",
                OUT_OF_RANGE,
            )
        if before > first:
            lost = counted(before - first, "record")
            session.confirm(f"delete {lost} of {log}", yes=yes)
            first = target.trim(before=before)
            if first < before:
                message(
                    f"note: a pinning cursor keeps records of {log}; `braidlog cursor "
                    "list` shows it"
                )
    line(session, f"{log} begins at {first}", log=log, first=first)
