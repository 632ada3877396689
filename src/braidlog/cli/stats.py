"""``braidlog stats``: counters of a node or a log."""

from __future__ import annotations

import click

from braidlog.cli.output import facts
from braidlog.cli.session import Session, command

__all__ = ["stats"]


@command()
@click.argument("log", required=False)
@click.pass_obj
def stats(session: Session, log: str | None) -> None:
    """Show counters of all, or of one LOG."""
    with session.reader() as node:
        facts(session, node.stats() if log is None else node.log(log).stats())
