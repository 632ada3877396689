"""``braidlog inspect``: what is in the files, also beside a running writer."""

from __future__ import annotations

from itertools import islice

import click

from braidlog.cli.output import facts, rows
from braidlog.cli.session import Command, Session

__all__ = ["inspect"]


class Inspections(click.Group):
    """A group whose commands have the shared options."""

    command_class = Command


@click.group(cls=Inspections)
def inspect() -> None:
    """Show what is in the files.

    Takes no lock, so it works beside a writer.
    """


@inspect.command()
@click.pass_obj
def segments(session: Session) -> None:
    """List the segments of the write-ahead log."""
    from braidlog.storage import inspect as files

    session.require()
    rows(session, files.segments(session.data), empty="no segments")


@inspect.command()
@click.argument("segment", type=click.IntRange(1))
@click.option("--log", help="Only frames of this log.")
@click.option("--offset", type=click.IntRange(0), default=0, help="From this offset.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="At most so many frames.",
)
@click.pass_obj
def frames(
    session: Session, segment: int, *, log: str | None, offset: int, limit: int
) -> None:
    """List the frames of SEGMENT, the bad ones too."""
    from braidlog.storage import inspect as files

    session.require()
    found = files.frames(session.data, segment, log=log, offset=offset)
    rows(session, islice(found, limit), empty="no frames")


@inspect.command()
@click.argument("segment", type=click.IntRange(1), required=False)
@click.option("--log", help="Only this log.")
@click.option("--samples", is_flag=True, help="Show every sample, not the totals.")
@click.pass_obj
def index(
    session: Session, segment: int | None, *, log: str | None, samples: bool
) -> None:
    """Show the number index of all segments, or of one SEGMENT."""
    from braidlog.storage import inspect as files

    session.require()
    show = files.samples if samples else files.index
    rows(session, show(session.data, segment, log=log), empty="no index")


@inspect.command()
@click.pass_obj
def manifest(session: Session) -> None:
    """List the edits of the manifest."""
    from braidlog.storage import inspect as files

    session.require()
    rows(session, files.manifest(session.data), empty="no edits")


@inspect.command()
@click.pass_obj
def state(session: Session) -> None:
    """Show the catalog, streams, producers and cursors as recovery sees them."""
    from braidlog.storage import inspect as files

    session.require()
    facts(session, files.state(session.data))
