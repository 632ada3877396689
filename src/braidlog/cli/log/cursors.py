"""``braidlog cursor``: stored positions of readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import click

from braidlog.cli.command import parameters
from braidlog.cli.command.commands import EitherCommand, group_of
from braidlog.cli.command.failures import NOT_FOUND, OUT_OF_RANGE, Problem
from braidlog.cli.command.session import Session
from braidlog.cli.terminal.output import facts, line, rows
from braidlog.cli.terminal.text import clock, human_duration

if TYPE_CHECKING:
    import braidlog
    from braidlog.cli.command.session import Log
    from braidlog.client.blocking import ClusterCursor

    Cursor: TypeAlias = braidlog.Cursor | ClusterCursor


@click.group(cls=group_of(EitherCommand))
def cursor() -> None:
    """Stored positions of readers."""


@cursor.command("list")
@click.argument("log")
def list_(session: Session, log: str) -> None:
    """List the cursors of LOG and the lag of each."""
    with session.logs() as store:
        source = store.log(log)
        rows(
            session,
            [_described(source, item) for item in source.cursors()],
            empty="no cursors",
            shown=_shown,
        )


@cursor.command()
@click.argument("log")
@click.argument("name")
def get(session: Session, log: str, name: str) -> None:
    """Show the cursor NAME of LOG."""
    with session.logs() as store:
        source = store.log(log)
        facts(session, _described(source, _find(source, name)), _shown)


@cursor.command("set")
@click.argument("log")
@click.argument("name")
@click.argument("position", type=parameters.POSITION)
@click.option(
    "--pin/--no-pin",
    default=None,
    help=(
        "Keep records from the cursor on, despite trims and "
        "retention [default: unchanged; off for a new cursor]."
    ),
)
@click.option(
    "--lease",
    type=parameters.lease,
    metavar="DURATION",
    help=(
        "How long the pin holds after the last commit, for instance 7d, or none for"
        " ever [default: unchanged; none for a new cursor]."
    ),
)
def set_(
    session: Session,
    log: str,
    name: str,
    position: int,
    *,
    pin: bool | None,
    lease: float | None,
) -> None:
    """Move the cursor NAME of LOG to POSITION, the next to read; create it if new."""
    with session.changing() as store:
        target = store.log(log)
        old = next((item for item in target.cursors() if item.name == name), None)
        pins = (old is not None and old.pin) if pin is None else pin
        if lease and not pins:
            raise click.UsageError(
                "--lease needs --pin: it limits how long a pin holds"
            )
        if pins and lease is None and old is not None and old.pin:
            lease = old.lease
        if position > target.end:
            raise Problem(
                f"position {position} is beyond the end of the log, {target.end}",
                f"the highest position that a cursor can have is {target.end}",
                OUT_OF_RANGE,
            )
        moved = target.set_cursor(name, position, pin=pins, lease=lease or None)
        described = _described(target, moved)
    shown = _shown(described)
    holds = f" for {shown['lease']} after each commit" if lease else ""
    line(
        session,
        f"{name} is at {position}" + (f", pins{holds}" if pins else ""),
        log=log,
        **described,
    )


@cursor.command()
@click.argument("log")
@click.argument("name")
def delete(session: Session, log: str, name: str) -> None:
    """Delete the cursor NAME of LOG."""
    with session.changing() as store:
        _find(store.log(log), name).delete()
    line(session, f"deleted {name}", log=log, cursor=name)


def _find(log: Log, name: str) -> Cursor:
    for item in log.cursors():
        if item.name == name:
            return item
    raise Problem(
        f"log {log.name!r} has no cursor {name!r}",
        f"`braidlog cursor list {log.name}` shows the cursors",
        NOT_FOUND,
    )


def _described(log: Log, item: Cursor) -> dict[str, Any]:
    return {
        "cursor": item.name,
        "position": item.position,
        "lag": log.end - item.position,
        "pin": item.pin,
        "lease": item.lease,
        "touched": item.touched,
    }


def _shown(described: dict[str, Any]) -> dict[str, Any]:
    lease = described["lease"]
    return described | {
        "lease": None if lease is None else human_duration(round(lease * 1000)),
        "touched": clock(described["touched"]),
    }
