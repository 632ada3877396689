"""``braidlog backup`` and ``braidlog restore``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from braidlog.cli.command import parameters
from braidlog.cli.command.commands import EitherCommand, PlainCommand, group_of
from braidlog.cli.command.failures import CORRUPTION, Problem
from braidlog.cli.command.options import yes_option
from braidlog.cli.command.session import Session
from braidlog.cli.terminal.output import facts, line, message, rows
from braidlog.cli.terminal.progress import meter
from braidlog.cli.terminal.text import clock, counted, human_bytes

if TYPE_CHECKING:
    from braidlog.backup.restored import Restored


@click.group(cls=group_of(PlainCommand))
def backup() -> None:
    """Make, list, verify, delete backups; `restore` brings one back.

    PLACE is a directory, or a URI of object storage such as s3://bucket/backups.
    """


@backup.command(cls=EitherCommand)
@click.argument("place")
@click.option(
    "--base",
    metavar="BACKUP",
    help=(
        "Copy only what this backup lacks; none copies everything "
        "[default: the newest one of the same source]."
    ),
)
def create(session: Session, /, place: str, *, base: str | None) -> None:
    """Back up all logs and tables into PLACE, beside a writer or a running cluster."""
    with session.logs() as store, meter("backup", None, unit="records") as progress:
        made = store.backup(place, base=base, progress=progress.at)
    new = human_bytes(made.new_bytes)
    on_top = f", {new} of it new since {made.base}" if made.base else ""
    what = f"{counted(made.records, 'record')}{_tables(len(made.tables))}"
    line(
        session,
        f"backup {made.id}: {counted(len(made.logs), 'log')},"
        f" {what}, {human_bytes(made.bytes)}{on_top}",
        **_described(made),
    )


def _tables(count: int) -> str:
    return f", {counted(count, 'table')}" if count else ""


def _described(each: Any) -> dict[str, Any]:
    return {
        "backup": each.id,
        "time": each.time,
        "source": each.source.name,
        "kind": each.source.kind,
        "base": each.base,
        "logs": len(each.logs),
        "records": each.records,
        "tables": len(each.tables),
        "bytes": each.bytes,
        "new_bytes": each.new_bytes,
        "parts": len(each.parts),
    }


@backup.command("list")
@click.argument("place")
def list_(session: Session, place: str) -> None:
    """List the backups in PLACE, the oldest first."""
    from braidlog.backup import backups, damaged

    found = [_described(each) for each in backups(place)]
    if not session.as_json:
        sizes = ("bytes", "new_bytes")
        found = [
            {**row, "time": clock(row["time"])}
            | {size: human_bytes(row[size]) for size in sizes}
            for row in found
        ]
    rows(session, found, empty="no backups")
    wrong = damaged(place)
    for error in wrong.values():
        message(str(error))
    if wrong:
        raise Problem(
            f"{counted(len(wrong), 'backup')} cannot be read",
            "`braidlog backup delete` removes one; the others are not affected",
            CORRUPTION,
        )


@backup.command("verify")
@click.argument("place")
@click.argument("backup_id", metavar="[BACKUP]", required=False)
def verify_(session: Session, place: str, backup_id: str | None) -> None:
    """Read every byte of a backup in PLACE, by default of the newest, and check it."""
    from braidlog.backup import verify

    with meter("verify", None, unit="bytes") as progress:
        found = verify(place, backup_id, progress=progress.at)
    facts(session, found, lambda named: {**named, "findings": len(named["findings"])})
    for each in found.findings:
        of_log = f"log {each.log!r}, {each.begin} to {each.end}"
        where = of_log if each.table is None else f"table {each.table!r}"
        message(f"{each.problem} ({where})")
    if found.findings:
        raise Problem(
            f"{len(found.findings)} of {found.parts} files are damaged or missing",
            "put them back from a copy, or make a full backup with --base none",
            CORRUPTION,
        )


@backup.command()
@click.argument("place")
@click.argument("backup_id", metavar="BACKUP")
@yes_option
def delete(session: Session, place: str, backup_id: str, *, yes: bool) -> None:
    """Delete BACKUP in PLACE, and the files that no other backup needs."""
    from braidlog.backup import delete as remove

    session.confirm(f"delete the backup {backup_id} in {place}", yes=yes)
    removed = remove(place, backup_id)
    line(
        session,
        f"deleted {backup_id} and {counted(removed, 'file')}",
        backup=backup_id,
        files=removed,
    )


@click.command(cls=PlainCommand)
@click.argument("place")
@click.argument("directory", type=parameters.LocalPath(file_okay=False))
@click.option("--backup", "backup_id", help="Which backup [default: the newest].")
@click.option(
    "--wal-bytes-max",
    type=parameters.size,
    help="Bound of the new directory [default: that of the source].",
)
@click.option(
    "--as-cluster",
    metavar="NAME",
    help="Make the directory of the first node of a new cluster of this name.",
)
@click.option(
    "--node",
    type=parameters.NODE,
    help="With --as-cluster: id of that node [default: 1].",
)
@click.option(
    "--streams",
    type=parameters.STREAMS,
    help="With --as-cluster: streams of each log [default: as in the backup].",
)
@click.option(
    "--replication",
    type=parameters.STREAMS,
    help="With --as-cluster: replicas of each stream [default: as in the backup].",
)
@click.option(
    "--without-tables",
    is_flag=True,
    help="With --as-cluster: leave out the tables.",
)
def restore(
    session: Session,
    place: str,
    directory: Path,
    *,
    backup_id: str | None,
    wal_bytes_max: int | None,
    as_cluster: str | None,
    without_tables: bool,
    **wanted: int | None,
) -> None:
    """Make DIRECTORY of a backup in PLACE.

    Nothing is overwritten: DIRECTORY does not exist, or is empty. It can be opened when
    all of it is there; after an interruption run the same command again.
    """
    given = {name: value for name, value in wanted.items() if value is not None}
    if without_tables:
        given["without_tables"] = True
    if given and as_cluster is None:
        raise click.UsageError(
            f"--{next(iter(given)).replace('_', '-')} needs --as-cluster"
        )
    with meter("restore", None, unit="bytes") as progress:
        if as_cluster is None:
            from braidlog.backup import restore as bring_back

            made = bring_back(
                place,
                directory,
                backup_id,
                wal_bytes_max=wal_bytes_max,
                progress=progress.at,
            )
        else:
            wishes = {"cluster": as_cluster, "wal_bytes_max": wal_bytes_max, **given}
            made = _first_node(place, directory, backup_id, progress.at, wishes)
    line(
        session,
        f"restored {made.backup} to {made.target}: {counted(made.logs, 'log')},"
        f" {counted(made.records, 'record')}{_tables(made.tables)}",
        **asdict(made),
    )
    if as_cluster is not None and not session.as_json:
        message(
            f"hint: start node {given.get('node', 1)} with [node] data ="
            f" {made.target!r}, [cluster] name = {as_cluster!r} and itself as the only"
            " voter; other nodes join with empty directories"
        )


def _first_node(
    place: str,
    directory: Path,
    backup_id: str | None,
    progress: Callable[[int, int], object],
    wishes: dict[str, Any],
) -> Restored:
    # Late: everything else works without the extra that this needs.
    from braidlog.backup.place import place_of
    from braidlog.backup.run import find
    from braidlog.node.rescue.restored import Wanted, restore_node

    where = place_of(place)
    found = find(where, backup_id)
    now = time.time_ns() // 1000
    wanted = Wanted(**wishes)
    target = directory.absolute()
    return restore_node(where, found, target, wanted, now=now, progress=progress)
