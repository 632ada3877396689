"""``braidlog inspect``: what is in the files, also beside a running writer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from itertools import islice
from typing import Any

import click

from braidlog.cli.command import parameters
from braidlog.cli.command.commands import Command, group_of
from braidlog.cli.command.session import Session
from braidlog.cli.terminal.output import facts, rows


@click.group(cls=group_of(Command))
def inspect() -> None:
    """Show the contents of the data files.

    Takes no lock, so it works beside a writer.
    """


def _show(
    session: Session, items: Iterable[Any], columns: tuple[str, ...], *, empty: str
) -> None:
    """Print everything as JSON, and for people what fits in a table."""
    if session.as_json:
        return rows(session, items, empty=empty)
    table = (asdict(item) for item in items)
    return rows(
        session, ({name: row[name] for name in columns} for row in table), empty=empty
    )


_SEGMENT = (
    "number",
    "slot",
    "state",
    "live",
    "records",
    "streams",
    "end",
    "bytes",
    "side",
    "salt",
    "problem",
)

_FRAME = (
    "offset",
    "length",
    "kind",
    "log",
    "epoch",
    "first",
    "count",
    "durable",
    "ordinal",
    "head",
    "ok",
    "problem",
)


@inspect.command()
def segments(session: Session) -> None:
    """List the segments of the write-ahead log."""
    from braidlog.store import inspect as files

    with session.files():
        _show(session, files.segments(session.data), _SEGMENT, empty="no segments")


@inspect.command()
@click.argument("segment", type=parameters.SEGMENT)
@click.option("--log", help="Only frames of this log.")
@click.option("--offset", type=parameters.OFFSET, default=0, help="First offset.")
@click.option(
    "--limit",
    type=parameters.POSITION,
    default=1000,
    show_default=True,
    help="Show at most this many frames.",
)
def frames(
    session: Session, segment: int, *, log: str | None, offset: int, limit: int
) -> None:
    """List the frames of SEGMENT, including bad ones."""
    from braidlog.store import inspect as files

    with session.files():
        found = files.frames(session.data, segment, log=log, offset=offset)
        _show(session, islice(found, limit), _FRAME, empty="no frames")


@inspect.command()
@click.argument("segment", type=parameters.SEGMENT, required=False)
@click.option("--log", help="Only this log.")
@click.option("--samples", is_flag=True, help="Show every sample instead of totals.")
def index(
    session: Session, segment: int | None, *, log: str | None, samples: bool
) -> None:
    """Show the number index of all segments, or of one SEGMENT."""
    from braidlog.store import inspect as files

    show = files.samples if samples else files.index
    with session.files():
        rows(session, show(session.data, segment, log=log), empty="no index")


@inspect.command()
def manifest(session: Session) -> None:
    """List the edits of the manifest."""
    from braidlog.store import inspect as files

    with session.files():
        rows(session, files.manifest(session.data), empty="no edits")


@inspect.command()
def state(session: Session) -> None:
    """Show logs, tables, producers and cursors as recovery sees them."""
    from braidlog.store import inspect as files

    with session.files():
        seen = files.state(session.data)
    if session.as_json:
        return facts(session, seen)
    shown = asdict(seen)
    shown["logs"] = {log.pop("name"): log for log in shown["logs"]}
    for log in shown["logs"].values():
        log["cursors"] = {c["name"]: c["position"] for c in log["cursors"]}
        log["producers"] = {p["id"]: p["next_sequence"] for p in log["producers"]}
    shown["tables"] = {table.pop("name"): table for table in shown["tables"]}
    for table in shown["tables"].values():
        table["indexes"] = {
            index["name"]: f"{index['field']} ({index['state']})"
            for index in table["indexes"]
        }
    return facts(session, shown)
