"""``braidlog stream``: the streams of a cluster and where their replicas are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from braidlog.cli.cluster import health
from braidlog.cli.cluster.clusters import find_node
from braidlog.cli.command import parameters
from braidlog.cli.command.commands import ClusterCommand, group_of
from braidlog.cli.command.failures import NOT_FOUND, Problem
from braidlog.cli.command.options import yes_option
from braidlog.cli.command.session import Session
from braidlog.cli.terminal.output import line, message, rows

if TYPE_CHECKING:
    from braidlog.client import Client


_expect_option = click.option(
    "--expect",
    type=click.IntRange(min=1),
    help="Only if the stream is in this epoch, which `stream list` shows.",
)


@click.group(cls=group_of(ClusterCommand))
def stream() -> None:
    """List, seal and move streams of a cluster."""


@stream.command("list")
@click.argument("log", required=False)
def list_(session: Session, log: str | None) -> None:
    """List all streams, or those of LOG."""
    with session.client() as client:
        metadata = client.metadata()
        if log is not None:
            client.log(log)
    rows(session, health.stream_rows(metadata, log), empty="no streams")


@stream.command()
@click.argument("number", metavar="STREAM", type=parameters.POSITION)
@_expect_option
@yes_option
def seal(session: Session, number: int, *, expect: int | None, yes: bool) -> None:
    """Stop appends to STREAM.

    Acknowledged records stay readable. Appends whose key belongs to the stream wait
    until it is unsealed.
    """
    with session.client() as client:
        log = _find(client, number)["log"]
        session.confirm(f"stop appends to stream {number} of {log}", yes=yes)
        epoch = client.seal(number, expect=expect)
    text = f"stream {number} of {log} is sealed in epoch {epoch}"
    line(session, text, log=log, stream=number, epoch=epoch)


@stream.command()
@click.argument("number", metavar="STREAM", type=parameters.POSITION)
@_expect_option
def unseal(session: Session, number: int, *, expect: int | None) -> None:
    """Allow appends to STREAM again."""
    with session.client() as client:
        log = _find(client, number)["log"]
        epoch = client.unseal(number, expect=expect)
    text = f"stream {number} of {log} takes appends in epoch {epoch}"
    line(session, text, log=log, stream=number, epoch=epoch)


@stream.command()
@click.argument("number", metavar="STREAM", type=parameters.POSITION)
@click.option("--from", "source", type=parameters.NODE, help="Node.")
@click.option("--to", "target", type=parameters.NODE, help="Node.")
@click.option("--cancel", is_flag=True, help="Cancel the move in progress.")
@_expect_option
def move(
    session: Session,
    number: int,
    *,
    source: int | None,
    target: int | None,
    cancel: bool,
    expect: int | None,
) -> None:
    """Move a replica of STREAM to another node.

    The command returns at once. The new node copies the stream; then the old replica is
    removed. If the new node is down, the move waits for it.
    """
    if cancel:
        if source is not None or target is not None:
            raise click.UsageError("--cancel takes neither --from nor --to")
        _cancel(session, number)
        return
    if source is None or target is None:
        raise click.UsageError("a move needs --from and --to")
    with session.client() as client:
        found = _find(client, number)
        if source not in found["replicas"]:
            there = ", ".join(map(str, found["replicas"])) or "none"
            raise Problem(
                f"node {source} has no replica of stream {number} (it is on {there})",
                f"`braidlog stream list {found['log']}` shows where they are",
                NOT_FOUND,
            )
        state = find_node(client.metadata(), target)["state"]
        client.move_replica(number, source, target, expect=expect)
    line(
        session,
        f"stream {number} of {found['log']} moves from node {source} to {target}",
        log=found["log"],
        stream=number,
        source=source,
        target=target,
    )
    if state == "down":
        message(
            f"note: node {target} is down, so the move waits for it; `braidlog "
            f"stream move {number} --cancel` cancels it"
        )


def _cancel(session: Session, number: int) -> None:
    with session.client() as client:
        found = _find(client, number)
        infos = client.streams(found["log"])
        moves = [each.move for each in infos if each.stream == number]
        if not moves or moves[0] is None:
            raise Problem(
                f"no replica of stream {number} is being moved",
                f"`braidlog stream list {found['log']}` shows where they are",
                NOT_FOUND,
            )
        source, target = moves[0]
        client.drop_learner(number, target)
    line(
        session,
        f"cancelled the move of stream {number} from node {source} to {target}",
        log=found["log"],
        stream=number,
        source=source,
        target=target,
    )


def _find(client: Client, number: int) -> dict[str, Any]:
    for row in health.stream_rows(client.metadata()):
        if row["stream"] == number:
            return row
    raise Problem(
        f"stream {number} does not exist",
        "`braidlog stream list` shows the streams",
        NOT_FOUND,
    )
