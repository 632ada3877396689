"""``braidlog index``: indexes of tables."""

from __future__ import annotations

import click

from braidlog.cli.command.commands import EitherCommand, group_of
from braidlog.cli.command.session import Session
from braidlog.cli.table.opening import opened
from braidlog.cli.terminal.output import line
from braidlog.cli.terminal.progress import meter

# How often the progress of a building is shown.
_STEP_S = 0.2


@click.group(cls=group_of(EitherCommand))
def index() -> None:
    """Indexes of tables."""


@index.command()
@click.argument("table")
@click.argument("name")
@click.argument("field")
def create(session: Session, table: str, name: str, field: str) -> None:
    """Add the index NAME to TABLE, by FIELD.

    FIELD is json:/POINTER, header:NAME or value, each with :TYPE behind it if wanted
    (text, int, float, bool, bytes); several are joined by +. The index is built before
    the command ends; what was interrupted goes on when the directory is opened again.
    """
    with opened(session, table, write=True) as found:
        with found.ddl() as change:
            change.create_index(table, name, field)
        built = found.index(name)
        with meter("building", None, unit="records") as progress:
            while not built.wait(timeout=_STEP_S):
                # Hosts of a cluster do not say how far they are.
                progress.at(getattr(built, "built", 0))
        missing = built.describe().missing
    text = f"created index {name} of {table}"
    if missing:
        text += f"; {missing} records are not in it, `braidlog table describe` says why"
    line(session, text, table=table, index=name, field=field, missing=missing)


@index.command()
@click.argument("table")
@click.argument("name")
def drop(session: Session, table: str, name: str) -> None:
    """Drop the index NAME of TABLE."""
    with opened(session, table, write=True) as found, found.ddl() as change:
        change.drop_index(table, name)
    line(session, f"dropped index {name} of {table}", table=table, index=name)
