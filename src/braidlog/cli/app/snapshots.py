"""``braidlog app snapshot``: snapshots that hosts take, and copies of their state."""

from __future__ import annotations

from pathlib import Path

import click

from braidlog.cli.app.applications import calling, opened
from braidlog.cli.command.commands import HostsCommand
from braidlog.cli.command.failures import USAGE, Problem
from braidlog.cli.command.options import app_option, host_option
from braidlog.cli.command.parameters import DIRECTORY
from braidlog.cli.command.session import Session
from braidlog.cli.terminal.output import line
from braidlog.cli.terminal.progress import meter


@click.command(cls=HostsCommand)
@click.argument("target", type=DIRECTORY, required=False)
@host_option
@click.option("--directory", type=DIRECTORY, help="Open this directory to do it.")
@app_option
def snapshot(
    session: Session,
    /,
    target: Path | None,
    address: str | None,
    directory: Path | None,
    application: str | None,
) -> None:
    """Have a host take a snapshot, or copy its state to TARGET.

    Without TARGET the host takes one of its own snapshots: durable, read back, and the
    log is trimmed to it as its settings say. TARGET becomes a directory with one
    database per partition, all as of one position. The host keeps running.
    """
    if directory is not None:
        if target is not None or address is not None:
            text = "--directory is for a snapshot of its own"
            raise Problem(text, "leave out TARGET and --host", USAGE)
        _take_here(session, directory, application)
    elif target is not None:
        _copy(session, target, address)
    else:
        _take(session, address)


def _take(session: Session, address: str | None) -> None:
    with (
        calling(session, address) as caller,
        meter("taking", None, unit="bytes") as bar,
    ):
        said = caller.take_snapshot(address, bar.at)
    _report(session, said.number, said.position, said.bytes, said.took_us, said.first)


def _take_here(session: Session, directory: Path, application: str | None) -> None:
    with (
        opened(application, directory) as host,
        meter("taking", None, unit="bytes") as bar,
    ):
        made = host.snapshot(bar.at)
        took_us = int(made.seconds * 1_000_000)
        first = host.runner.known.start
    _report(session, made.number, made.position, made.size, took_us, first)


def _report(
    session: Session, number: int, position: int, size: int, took_us: int, first: int
) -> None:
    seconds = took_us / 1_000_000
    text = (
        f"snapshot {number} as of position {position}: {size:,} bytes in {seconds:.2f}"
        f" s; the log begins at {first}"
    )
    line(
        session,
        text,
        number=number,
        position=position,
        bytes=size,
        seconds=round(seconds, 6),
        first=first,
    )


def _copy(session: Session, target: Path, address: str | None) -> None:
    from braidlog import durable
    from braidlog.app.snapshots.transfer import take_copy

    if target.exists() and any(target.iterdir()):
        text = f"{target} is not empty"
        raise Problem(text, "name a directory that is not there yet", USAGE)
    new = target.with_name(f"{target.name}.part")
    with (
        calling(session, address) as caller,
        meter("copying", None, unit="bytes") as bar,
    ):
        made = take_copy(caller, new, bar.at)
    if target.exists():
        target.rmdir()
    durable.move(new, target)
    text = f"{len(made.sizes)} partitions as of position {made.position} in {target}"
    line(
        session,
        text,
        position=made.position,
        bytes=sum(made.sizes),
        hashes=[each.hex() for each in made.hashes],
        directory=str(target),
    )
