"""``braidlog log``: create, list, describe and delete logs."""

from __future__ import annotations

from typing import Any

import click

from braidlog.cli import parameters
from braidlog.cli.output import facts, line, plain, rows
from braidlog.cli.session import Command, Session
from braidlog.cli.text import clock, counted, human_bytes, human_duration

__all__ = ["log"]


class Logs(click.Group):
    """A group whose commands have the shared options."""

    command_class = Command


@click.group(cls=Logs)
def log() -> None:
    """Create, list, describe, delete logs."""


@log.command()
@click.argument("name")
@click.option("--exist-ok", is_flag=True, help="Succeed if the log exists.")
@click.option(
    "--compression",
    type=click.Choice(["none", "zstd", "lz4"]),
    help="How record batches are stored.",
)
@click.option(
    "--retention",
    "retention_ms",
    type=parameters.duration,
    help="Trim records older than this, for instance 7d.",
)
@click.option(
    "--retention-bytes",
    type=parameters.size,
    help="Trim the oldest records beyond this size, for instance 10GiB.",
)
@click.pass_obj
def create(session: Session, /, name: str, *, exist_ok: bool, **settings: Any) -> None:
    """Create the log NAME, and the data directory if there is none."""
    given = {key: value for key, value in settings.items() if value is not None}
    with session.writer(create=True) as node:
        node.create_log(name, exist_ok=exist_ok, **given)
    line(session, f"created {name}", log=name, **given)


@log.command("list")
@click.pass_obj
def list_(session: Session) -> None:
    """List the logs with their ranges."""
    with session.reader() as node:
        rows(session, [_range(node, name) for name in node.logs()], empty="no logs")


@log.command()
@click.argument("name")
@click.pass_obj
def describe(session: Session, name: str) -> None:
    """Show the settings and the state of the log NAME."""
    with session.reader() as node:
        described = plain(node.log(name).describe())
    facts(session, {"log": described.pop("name"), **described}, _shown)


@log.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(session: Session, name: str, *, yes: bool) -> None:
    """Delete the log NAME with all of its records."""
    with session.writer() as node:
        records = _range(node, name)["records"]
        session.confirm(f"delete {name} with {counted(records, 'record')}", yes=yes)
        node.delete_log(name)
    line(session, f"deleted {name}", log=name, records=records)


def _shown(log: dict[str, Any]) -> dict[str, Any]:
    first, end = log["first"], log["end"]
    positions = f"{first} to {end - 1}" if first < end else "none"
    stored = f"{human_bytes(log['bytes'])} in {counted(log['segments'], 'segment')}"
    kept = []
    if log["retention_ms"] is not None:
        kept.append(human_duration(log["retention_ms"]))
    if log["retention_bytes"] is not None:
        kept.append(human_bytes(log["retention_bytes"]))
    return {
        "log": log["log"],
        "created": clock(log["created"]),
        "records": log["records"],
        "positions": f"{positions}, the next is {end}",
        "stored": stored,
        "compression": log["compression"],
        "retention": ", ".join(kept) or "until trimmed",
        "cursors": log["cursors"],
        "id": log["id"],
        "stream": log["stream"],
    }


def _range(node: Any, name: str) -> dict[str, Any]:
    log = node.log(name)
    first, end = log.first, log.end
    return {"log": name, "first": first, "end": end, "records": end - first}
