"""``braidlog stats``: figures of the logs."""

from __future__ import annotations

from typing import Any

import click

from braidlog.cli.command.commands import command
from braidlog.cli.command.session import Session
from braidlog.cli.terminal.output import facts, plain, rows
from braidlog.cli.terminal.text import clock, human_bytes


@command()
@click.argument("log", required=False)
def stats(session: Session, log: str | None) -> None:
    """Show the figures of all logs, or of one LOG."""
    with session.reader() as store:
        if log is not None:
            facts(session, {"log": log, **plain(store.log(log).stats())}, _shown)
            return
        every = [
            {"log": name, **plain(store.log(name).stats())} for name in store.logs()
        ]
        rows(session, every, empty="no logs", shown=_shown)


def _shown(figures: dict[str, Any]) -> dict[str, Any]:
    times = {
        name: None if figures[name] is None else clock(figures[name])
        for name in ("timestamp_min", "timestamp_max")
    }
    return figures | {"bytes": human_bytes(figures["bytes"])} | times
