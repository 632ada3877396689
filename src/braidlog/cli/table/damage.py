"""``braidlog table verify``, ``repair`` and ``rebuild``: find damage, and undo it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from braidlog.cli.command.commands import EitherCommand, LocalCommand, command
from braidlog.cli.command.failures import CORRUPTION
from braidlog.cli.command.options import yes_option
from braidlog.cli.command.session import Session
from braidlog.cli.table.opening import opened, table_of
from braidlog.cli.terminal.output import facts, line, message, rows
from braidlog.cli.terminal.progress import Meter, meter
from braidlog.cli.terminal.text import counted
from braidlog.errors import CorruptionError

if TYPE_CHECKING:
    from braidlog.client.tables.blocking import ClusterTable
    from braidlog.store.tables.table import Table

# How often the progress of a building is shown.
_STEP_S = 0.2


def _damage_of(
    found: Table | ClusterTable, progress: Meter, *, elsewhere: bool = False
) -> tuple[dict[str, int], dict[str, Any]]:
    """Read a table, ``elsewhere`` in a cluster: what is whole, and its first damage."""
    whole = {"records": 0, "entries": 0}
    try:
        whole["records"], whole["entries"] = found.verify(progress.at)
    except CorruptionError as error:
        index = found.damaged_index(error)
        how = "rebuild the index" if index else "make the table anew of its log"
        step = f"`braidlog table repair {found.name}` can {how}"
        if elsewhere:
            step = (
                "the host copies the table from another one by itself; if no other has "
                f"it, `braidlog table rebuild {found.name}` makes it anew of its log"
            )
        return whole, {
            "table": found.name,
            "index": index,
            "path": error.path,
            "offset": error.offset,
            "problem": error.message,
            "next_step": step,
        }
    return whole, {}


@command("verify", kind=EitherCommand)
@click.argument("names", nargs=-1)
def verify(session: Session, names: tuple[str, ...]) -> None:
    """Read the tables NAMES, by default all, and check every page.

    Also compares the indexes with the records. Changes nothing, and works beside a
    writer; in a cluster each host reads its own files. Shows the first damage of each
    table, and exits with 5 if there is any.
    """
    totals = {"tables": 0, "records": 0, "entries": 0}
    findings = []
    elsewhere = session.cluster is not None
    with session.logs() as store:
        tables = [table_of(store, name) for name in names or store.tables()]
        for found in tables:
            with meter(f"verify {found.name}", None, unit="entries") as progress:
                whole, damage = _damage_of(found, progress, elsewhere=elsewhere)
            totals["tables"] += 1
            for what, count in whole.items():
                totals[what] += count
            if damage:
                findings.append(damage)
    if session.as_json:
        facts(session, {**totals, "findings": findings})
    else:
        columns = ("table", "index", "path", "offset", "problem")
        shown = ({name: each[name] for name in columns} for each in findings)
        rows(session, shown, empty="no damage found")
        message(
            f"checked {counted(totals['tables'], 'table')},"
            f" {counted(totals['records'], 'record')},"
            f" {totals['entries']} entries of indexes"
        )
        for each in findings:
            message(f"hint: {each['next_step']}")
    if findings:
        raise click.exceptions.Exit(CORRUPTION)


@command("repair", kind=LocalCommand)
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@yes_option
def repair(session: Session, name: str, *, dry_run: bool, yes: bool) -> None:
    """Make what is damaged of the table NAME anew.

    A damaged index is built anew of the table, and a damaged table of its log, which
    must still have all records from where the table began: nothing is lost by that. A
    table without damage stays as it is.
    """
    with opened(session, name) as found:
        with meter("verify", None, unit="entries") as progress:
            _, damage = _damage_of(found, progress)
        log = found.log
    if not damage:
        line(session, f"{name} is not damaged", table=name, repaired=None, damage=None)
        return
    index = damage["index"]
    what = f"index {index!r} of table {name!r}" if index else f"table {name!r}"
    if not session.as_json or dry_run:
        message(f"damage: {damage['problem']}")
    if dry_run:
        source = "the table" if index else f"log {log!r}"
        text = f"would make {what} anew of {source}"
        line(session, text, table=name, repaired=None, damage=damage)
        return
    session.confirm(f"make {what} anew, and remove its files", yes=yes)
    with opened(session, name, write=True) as found:
        if index:
            _build_anew(found, index)
        else:
            _rebuild(found)
        with meter("verify", None, unit="entries") as progress:
            records, entries = found.verify(progress.at)
    line(
        session,
        f"made {what} anew: {counted(records, 'record')}, {entries} entries of indexes",
        table=name,
        repaired=index or "table",
        damage=damage,
        records=records,
        entries=entries,
    )


def _build_anew(found: Table, index: str) -> None:
    field = found.index(index).field
    with found.ddl() as change:
        change.drop_index(found.name, index)
        change.create_index(found.name, index, field)
    built = found.index(index)
    with meter("building", None, unit="records") as progress:
        while not built.wait(timeout=_STEP_S):
            progress.at(built.built)


def _rebuild(found: Table) -> None:
    found.rebuild()
    with meter("rebuilding", None, unit="records") as progress:
        found.flush(progress=progress.at)


def _rebuild_hosts(found: ClusterTable) -> None:
    found.rebuild()
    seen = found.describe()
    end = seen.applied + seen.lag
    with meter("rebuilding", None, unit="records") as progress:
        # Until then no host answers.
        while end and not found.wait(end, timeout=_STEP_S):
            progress.at(0)
        found.flush(progress=progress.at)


@command("rebuild", kind=EitherCommand)
@click.argument("name")
def rebuild(session: Session, name: str) -> None:
    """Make the table NAME anew of its log.

    The log must still have all records from where the table began.
    """
    with opened(session, name, write=True) as found:
        if session.cluster is None:
            _rebuild(found)
        else:
            _rebuild_hosts(found)
        applied = found.applied
    line(session, f"rebuilt {name} up to {applied}", table=name, applied=applied)
