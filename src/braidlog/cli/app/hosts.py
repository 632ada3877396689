"""``braidlog app hosts`` and ``app forget``: the hosts that a log knows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from braidlog.cli.command.commands import ClusterCommand
from braidlog.cli.command.failures import NOT_FOUND, REFUSED, USAGE, Problem
from braidlog.cli.command.session import Session
from braidlog.cli.terminal.output import line, rows
from braidlog.cli.terminal.text import clock

if TYPE_CHECKING:
    from braidlog.app.log.cursors import KnownHost
    from braidlog.client.blocking import ClusterLog

_LIST = "`braidlog app hosts --log {log}` lists them"


@click.command(cls=ClusterCommand)
@click.option("--log", "log_name", required=True, help="Log of the application.")
def hosts(session: Session, *, log_name: str) -> None:
    """List the hosts known to a log, including those that are gone.

    A host without `hold` no longer keeps records from being trimmed. A host without
    `count` is not one of the `snapshots_min` hosts with a snapshot.
    """
    with session.client() as client:
        found = [_row(each) for each in _known(client.log(log_name))]
    rows(session, found, empty="no hosts", shown=_shown)


@click.command(cls=ClusterCommand)
@click.argument("host")
@click.option("--log", "log_name", required=True, help="Log of the application.")
@click.option("--force", is_flag=True, help="Even if it was there a moment ago.")
def forget(session: Session, /, host: str, *, log_name: str, force: bool) -> None:
    """Forget a HOST that is gone for good; the first 8 digits of its id are enough.

    It no longer keeps records from being trimmed, and its snapshots do not count. If it
    comes back, it is known again.
    """
    from braidlog.app.log.cursors import HOST, SNAPSHOT

    with session.client() as client:
        log = client.log(log_name)
        found = _find(_known(log), host, log_name)
        if found.live and not force:
            text = (
                f"host {found.host} reported at {clock(found.seen)}, so it may be "
                "running"
            )
            raise Problem(text, "stop it first, or pass --force", REFUSED)
        gone = []
        for cursor in log.cursors():
            if cursor.name in (f"{HOST}{found.host}", f"{SNAPSHOT}{found.host}"):
                cursor.delete()
                gone.append(cursor.name)
    line(session, f"forgot {found.host}", host=found.host, cursors=gone)


def _known(log: ClusterLog) -> list[KnownHost]:
    from braidlog.app.log.cursors import known
    from braidlog.wire.results import CursorRow

    found = [
        CursorRow(c.name, c.position, c.pin, c.touched, round((c.lease or 0) * 1e6))
        for c in log.cursors()
    ]
    return known(found, time.time_ns() // 1000)


def _find(there: list[KnownHost], host: str, log: str) -> KnownHost:
    hint = _LIST.format(log=log)
    if len(host) < 8:
        raise Problem(
            f"{host!r} is too short: give at least 8 digits of the host", hint, USAGE
        )
    found = [each for each in there if each.host.startswith(host.lower())]
    if not found:
        raise Problem(f"log {log!r} has no registered host {host}", hint, NOT_FOUND)
    if len(found) > 1:
        raise Problem(f"{host} matches several hosts: give more digits", hint, USAGE)
    return found[0]


def _row(each: KnownHost) -> dict[str, Any]:
    return {
        "host": each.host,
        "seen": each.seen,
        "needs": each.needs,
        "holds": each.live,
        "snapshot": each.snapshot,
        "counts": each.counts,
    }


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"seen": clock(row["seen"])}
