"""``braidlog cursor``: stored positions of readers."""

from __future__ import annotations

from typing import Any

import click

import braidlog
from braidlog.cli.failures import NOT_FOUND, Problem
from braidlog.cli.output import facts, line, rows
from braidlog.cli.session import Command, Session

__all__ = ["cursor"]


class Cursors(click.Group):
    """A group whose commands have the shared options."""

    command_class = Command


@click.group(cls=Cursors)
def cursor() -> None:
    """Stored positions of readers."""


@cursor.command("list")
@click.argument("log")
@click.pass_obj
def list_(session: Session, log: str) -> None:
    """List the cursors of LOG and how far each is behind."""
    with session.reader() as node:
        source = node.log(log)
        rows(
            session,
            [_shown(source, item) for item in source.cursors()],
            empty="no cursors",
        )


@cursor.command()
@click.argument("log")
@click.argument("name")
@click.pass_obj
def get(session: Session, log: str, name: str) -> None:
    """Show the cursor NAME of LOG."""
    with session.reader() as node:
        source = node.log(log)
        facts(session, _shown(source, _find(source, name)))


@cursor.command("set")
@click.argument("log")
@click.argument("name")
@click.argument("position", type=click.IntRange(1))
@click.option("--pin", is_flag=True, help="Retention keeps what it has not passed.")
@click.pass_obj
def set_(session: Session, log: str, name: str, position: int, *, pin: bool) -> None:
    """Move the cursor NAME of LOG to POSITION, the next to read; create it if new."""
    with session.writer() as node:
        node.log(log).cursor(name, pin=pin).commit(position)
    line(session, f"{name} is at {position}", log=log, cursor=name, position=position)


@cursor.command()
@click.argument("log")
@click.argument("name")
@click.pass_obj
def delete(session: Session, log: str, name: str) -> None:
    """Delete the cursor NAME of LOG."""
    with session.writer() as node:
        _find(node.log(log), name).delete()
    line(session, f"deleted {name}", log=log, cursor=name)


def _find(log: braidlog.Log, name: str) -> Any:
    for item in log.cursors():
        if item.name == name:
            return item
    raise Problem(
        f"no cursor {name}", "`braidlog cursor list` shows what is there", NOT_FOUND
    )


def _shown(log: braidlog.Log, item: Any) -> dict[str, Any]:
    return {
        "cursor": item.name,
        "position": item.position,
        "lag": log.end - item.position,
        "pin": item.pin,
    }
