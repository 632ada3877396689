"""``braidlog stats``: figures of the logs."""

from __future__ import annotations

import click

from braidlog.cli.output import facts, plain, rows
from braidlog.cli.session import Session, command

__all__ = ["stats"]


@command()
@click.argument("log", required=False)
@click.pass_obj
def stats(session: Session, log: str | None) -> None:
    """Show the figures of all logs, or of one LOG."""
    with session.reader() as node:
        if log is not None:
            facts(session, node.log(log).stats())
            return
        every = [{"log": name, **plain(node.log(name).stats())} for name in node.logs()]
        rows(session, every, empty="no logs")
