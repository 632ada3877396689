"""``braidlog cluster`` and ``braidlog node``: what runs, and who takes part."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Final

import click

from braidlog.cli.cluster import health
from braidlog.cli.command import parameters
from braidlog.cli.command.commands import ClusterCommand, group_of
from braidlog.cli.command.failures import NOT_FOUND, WAIT, Problem
from braidlog.cli.command.options import yes_option
from braidlog.cli.command.session import Session
from braidlog.cli.terminal.output import facts, line, message, rows
from braidlog.cli.terminal.text import counted
from braidlog.errors import LogError

if TYPE_CHECKING:
    from braidlog.wire.messages import Metadata, Reloaded

_LAGS_S: Final = 1.0
"""How long hosts of tables may take to say how far they are."""
_ASKED_MAX: Final = 8
_TABLES_MAX: Final = 100
_LOOK_S: Final = 0.2
"""Between two looks at a cluster that is waited for."""


@click.group(cls=group_of(ClusterCommand))
def cluster() -> None:
    """Show the state of a whole cluster, and reload its settings."""


@cluster.command()
@click.option(
    "--check",
    is_flag=True,
    help="Exit with 8 unless the cluster is ok.",
)
def status(session: Session, *, check: bool) -> None:
    """Show nodes, leader, logs, streams and health, and why it is not ok.

    Takes two seconds at most. The answer comes from the leader; without a leader, from
    every node that answers. `told_by` names them.
    """
    described = health.looked(session.look())
    if described["leader"] and described["tables"]:
        _add_lags(session, described["tables"])
    if session.as_json:
        facts(session, described)
    else:
        _show(session, dict(described))
    if check and (found := described["health"]) != health.OK:
        raise Problem(f"the cluster is {found}", exit_code=WAIT)


def _add_lags(session: Session, tables: list[dict[str, Any]]) -> None:
    """Ask hosts how far each table is; who does not say it in time is left out."""
    from braidlog.client.tables.blocking import ClusterTable

    def lag(table: ClusterTable) -> int | None:
        hosts = [host for host in table.describe().hosts if host.failure is None]
        return max((host.lag for host in hosts), default=None)

    pool = ThreadPoolExecutor(_ASKED_MAX)
    try:
        with session.client(timeout_s=_LAGS_S) as client:
            asked = {
                pool.submit(lambda name: lag(client.table(name)), row["table"]): row
                for row in tables[:_TABLES_MAX]
            }
            done, _ = wait(asked, timeout=_LAGS_S)
            for each in done:
                if each.exception() is None:
                    asked[each]["lag"] = each.result()
    except (Problem, LogError):
        return  # The state is worth more than this.
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _show(session: Session, described: dict[str, Any]) -> None:
    names = ("why", "nodes", "logs", "streams", "tables")
    tables = {name: described.pop(name, []) for name in names}
    facts(session, described)
    for row in tables["why"]:
        for name in ("what", "seconds", "nodes", "log", "stream"):
            del row[name]
    for name, table in tables.items():
        if table:
            click.echo()
        if table or name not in ("why", "tables"):
            rows(session, table, empty=f"no {name}")


@cluster.command("health")
@click.option("--wait", is_flag=True, help="Wait until all replicas are in sync.")
@click.option(
    "--timeout",
    "timeout_ms",
    type=parameters.duration,
    default="60s",
    show_default=True,
    help="With --wait: longest time to wait.",
)
def health_(session: Session, *, wait: bool, timeout_ms: int) -> None:
    """Check whether all replicas are in sync; exit with 8 if not.

    With --wait it waits until they are. Use it between the restarts of two nodes, so
    that no stream lacks both.
    """
    begin = time.monotonic()
    end = begin + (timeout_ms / 1000 if wait else 0.0)
    lacking = _lacking(session, wait=wait)
    while lacking and time.monotonic() < end:
        time.sleep(_LOOK_S)
        lacking = _lacking(session, wait=True)
    if not lacking:
        waited = round(time.monotonic() - begin, 1)
        line(session, "all replicas are in sync", in_sync=True, waited_s=waited)
        return
    if session.as_json:
        line(session, "", in_sync=False, lacking=lacking)
    else:
        for each in lacking:
            line(session, each)
    after = f" after {timeout_ms / 1000:g} s" if wait else ""
    raise Problem(
        f"not all replicas are in sync{after}",
        "the logs of the nodes say what happened" if wait else "--wait waits for them",
        WAIT,
    )


@cluster.command()
@click.option(
    "--node",
    "nodes",
    type=parameters.NODE,
    multiple=True,
    help="Only this node; may be repeated [default: all].",
)
def reload(session: Session, /, *, nodes: tuple[int, ...]) -> None:
    """Have the nodes read their tokens, certificates and log level again.

    Each node reads its own files, as on SIGHUP. One that finds something wrong goes on
    with what it had; the command says what it is and exits with 1. Connections stay,
    but for those whose token was removed or allows less.
    """
    with session.client() as client:
        found = client.reload(nodes or None)
    said = [_reloaded(node, found[node]) for node in sorted(found)]
    rows(session, said, empty="no nodes")
    if failed := [row["node"] for row in said if row["error"]]:
        names = ", ".join(map(str, failed))
        text = f"not reloaded: node{'s' * (len(failed) != 1)} {names}"
        raise Problem(text, "fix what the column `error` says, then run it again")


def _reloaded(node: int, answer: Reloaded | LogError) -> dict[str, Any]:
    """Return the row of a node."""
    from braidlog.wire.messages import Reloaded

    error = ""
    if isinstance(answer, LogError):
        error, answer = answer.message, Reloaded(())
    return {
        "node": node,
        "reloaded": not error,
        "changed": list(answer.changed),
        "needs_restart": list(answer.ignored),
        "warnings": list(answer.warnings),
        "closed": answer.closed,
        "error": error,
    }


def _lacking(session: Session, *, wait: bool) -> list[str]:
    """Return what the cluster lacks; a cluster that does not answer lacks a leader."""
    try:
        look = session.look()
    except Problem as error:
        # The only node that was named may be the one that is restarted just now.
        if not wait or error.failure.exit_code != NOT_FOUND:
            raise
        return [error.failure.message]
    if look.judged is not None:
        return health.lacks(look.judged)
    return [each["why"] for each in health.leaderless(look)["why"]]


@click.group(cls=group_of(ClusterCommand))
def node() -> None:
    """List, drain and remove nodes of a cluster."""


@node.command("list")
def list_(session: Session) -> None:
    """List the nodes and their replicas."""
    with session.client() as client:
        found = health.node_rows(client.metadata())
    rows(session, found, empty="no nodes")


@node.command()
@click.argument("number", metavar="NODE", type=parameters.NODE)
def drain(session: Session, number: int) -> None:
    """Move all replicas off NODE.

    The command returns at once. The node is empty when `braidlog node list` shows no
    replicas on it.
    """
    with session.client() as client:
        metadata = client.metadata()
        find_node(metadata, number)
        client.drain_node(number)
    line(session, f"node {number} is draining", node=number, draining=True)
    if stuck := _stuck(metadata, number):
        message(
            f"no other node can take {counted(stuck, 'replica')} of it: start one, or"
            " `braidlog node undrain` one"
        )


@node.command()
@click.argument("number", metavar="NODE", type=parameters.NODE)
def undrain(session: Session, number: int) -> None:
    """Let a drained NODE have replicas again."""
    with session.client() as client:
        find_node(client.metadata(), number)
        client.drain_node(number, draining=False)
    text = f"node {number} takes replicas again"
    line(session, text, node=number, draining=False)


@node.command()
@click.argument("number", metavar="NODE", type=parameters.NODE)
@yes_option
def remove(session: Session, number: int, *, yes: bool) -> None:
    """Forget an empty NODE.

    Its number is never used again, and its directory becomes useless.
    """
    with session.client() as client:
        metadata = client.metadata()
        row = find_node(metadata, number)
        if row["replicas"]:
            raise Problem(
                f"node {number} still has replicas of {row['replicas']} streams",
                f"`braidlog node drain {number}` moves them elsewhere",
            )
        session.confirm(f"remove node {number} permanently", yes=yes)
        client.remove_node(number)
    line(session, f"removed node {number}", node=number)


@node.command()
@click.argument("number", metavar="NODE", type=parameters.NODE)
@click.option("--off", is_flag=True, help="Remove its vote.")
@yes_option
def voter(session: Session, number: int, *, off: bool, yes: bool) -> None:
    """Make NODE a voter of the metadata repository.

    The command returns at once; the node copies the repository first.
    """
    with session.client() as client:
        metadata = client.metadata()
        find_node(metadata, number)
        voters = {each.node for each in metadata.nodes if each.voter}
        if off and voters == {number}:
            raise Problem(
                f"node {number} is the only voter",
                "make another node a voter first with `braidlog node voter`, and "
                "wait until it votes",
            )
        if off:
            session.confirm(_fewer(metadata, number), yes=yes)
        client.set_voter(number, voter=not off)
    text = f"node {number} is to vote" + (" no longer" if off else "")
    line(session, text, node=number, voter=not off)
    if not off and len(voters | {number}) % 2 == 0:
        count = len(voters | {number})
        message(
            f"note: {count} voters tolerate no more failures than {count - 1}; an odd"
            " number is better"
        )


@node.command()
@click.argument("number", metavar="NODE", type=parameters.NODE)
@yes_option
def readmit(session: Session, number: int, *, yes: bool) -> None:
    """Let NODE return with an empty directory, because its own is lost.

    Stop NODE first. Its replicas and its vote are removed. When it starts, it copies
    what it needs like a new node, and votes again if it did before.
    """
    with session.client() as client:
        find_node(client.metadata(), number)
        session.confirm(_discard(number), yes=yes)
        client.readmit_node(number)
    line(
        session,
        f"node {number} may come back with an empty directory",
        node=number,
        readmitting=True,
    )


def _fewer(metadata: Metadata, number: int) -> str:
    left = [n.node for n in metadata.nodes if n.voter and n.node != number]
    stands = (len(left) - 1) // 2
    voters, failures = counted(len(left), "voter"), counted(max(0, stands), "failure")
    return f"leave {voters} (tolerates {failures})"


def _discard(number: int) -> str:
    return f"discard everything in the old directory of node {number} permanently"


def _stuck(metadata: Metadata, number: int) -> int:
    """Return how many replicas of a node no other node can take."""
    takes = {
        each.node
        for each in metadata.nodes
        if each.alive and not each.draining and not each.readmitting
    }
    placed = [stream for log in metadata.logs for stream in log.streams]
    return sum(
        number in each.replicas and not takes - {number, *each.replicas}
        for each in placed
    )


def find_node(metadata: Metadata, number: int) -> dict[str, Any]:
    """Return what is known of a node.

    Raises:
        Problem: There is no such node.
    """
    for each in metadata.nodes:
        if each.node == number:
            return health.node_row(metadata, each)
    there = ", ".join(map(str, sorted(each.node for each in metadata.nodes))) or "none"
    text = f"node {number} does not exist (nodes here: {there})"
    raise Problem(text, "`braidlog node list` shows the nodes", NOT_FOUND)
