"""``braidlog serve``: one node of a cluster; ``braidlog up``: a cluster here."""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from braidlog.cli.cluster.profiles import PROFILES, Ports, node_settings
from braidlog.cli.command import parameters
from braidlog.cli.command.commands import LocalCommand, NodeCommand
from braidlog.cli.command.failures import LOCKED, USAGE, Problem, explain
from braidlog.cli.command.parameters import FILE
from braidlog.cli.command.session import Session, stopped_by_signals
from braidlog.cli.terminal.output import line, message, rows
from braidlog.errors import LockedError

_WATCH_S: Final = 0.2


_log_level = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Lowest level to log; overrides [log] level [default: info].",
)


@click.command(cls=NodeCommand)
@click.option(
    "--config",
    "-c",
    type=FILE,
    envvar="BRAIDLOG_CONFIG",
    help="Settings file (TOML) [env: BRAIDLOG_CONFIG].",
)
@click.option(
    "--check",
    is_flag=True,
    help="Check whether the node would start, without starting it.",
)
@click.option("--lifeline", type=int, hidden=True, help="Stop when this pipe closes.")
@_log_level
def serve(
    session: Session,
    /,
    config: Path | None,
    data: Path | None,
    *,
    check: bool,
    lifeline: int | None,
    log_level: str | None,
) -> None:
    """Run one node of a cluster until SIGTERM or Ctrl-C; SIGHUP reloads its settings.

    Settings can also come from the environment: BRAIDLOG_NODE_ID=1 stands for id = 1 in
    [node]. Options override the environment, which overrides the file. BRAIDLOG_DATA
    counts only if nothing else names the directory, and must not contradict the file.
    """
    # Late: everything else works without the extra that these need.
    from braidlog.node.config import LogSettings, NodeConfig, load
    from braidlog.node.process import run

    def read() -> NodeConfig:
        settings = load(config, data=str(data) if data else "")
        if log_level is None:
            return settings
        return replace(settings, log=LogSettings(level=log_level))

    settings = read()
    if check:
        # Late: a start needs none of it.
        from braidlog.node.preflight import preflight

        notes, node = preflight(settings), settings.node
        text = f"node {node.id} can be started with these settings, on {node.data}"
        line(session, text, node=node.id, data=node.data, notes=notes)
        for note in () if session.as_json else notes:
            message(f"note: {note}")
        return
    sys.exit(run(settings, lambda error: explain(error).exit_code, lifeline, read))


@click.command(cls=LocalCommand)
@click.option(
    "--nodes",
    type=parameters.Whole(1, 9),
    help=("Number of nodes [default: as in the directory; 3 in a new one]."),
)
@click.option(
    "--ports",
    type=Ports(),
    help="The first port, or all: two a node, one for clients and one for its status"
    " [default: those that the directory has; free ones in a new one].",
)
@click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    default="default",
    show_default=True,
    help="small: a node takes 1 GiB of disk at most, and records of less than 4 MiB;"
    " patient: for a busy machine or a slow disk, nodes wait 3 s for one another.",
)
@click.option(
    "--config",
    "-c",
    type=FILE,
    help="Settings file (TOML) for all nodes, without [node] and [cluster]; what it"
    " says goes before the profile.",
)
@_log_level
def up(
    session: Session,
    /,
    *,
    nodes: int | None,
    ports: tuple[int, ...] | None,
    profile: str,
    config: Path | None,
    log_level: str | None,
) -> None:
    """Run a cluster on this machine until Ctrl-C.

    Each node is a process with its own directory below the data directory. A later `up`
    with the same directory continues with the same data and ports.
    Profile and settings file are not kept; they apply to this run only.
    """
    for needed in ("msgspec", "prometheus_client", "uvloop"):
        importlib.import_module(needed)  # Else each node would miss it by itself.
    from braidlog.node.config import parse
    from braidlog.testing.cluster import LocalCluster
    from braidlog.testing.ports import kept_ports

    if session.has_data():
        raise Problem(
            f"{session.data} is the data directory of one node",
            "choose another directory with --data",
            USAGE,
        )
    directory = session.data.absolute()
    asked = ports or ()
    there = nodes or len(kept_ports(directory)) // 2 or len(asked) // 2 or 3
    settings = node_settings(profile, config, log_level)
    cluster = LocalCluster(
        there,
        directory=directory,
        settings=settings,
        ports=Ports.of_nodes(asked, there),
    )
    # All nodes have the same: one error here is better than one of each node.
    parse(cluster.settings_file(1).read_text(), {})
    with contextlib.suppress(KeyboardInterrupt), stopped_by_signals():
        try:
            with cluster:
                rows(session, [_row(cluster, node) for node in cluster.nodes], empty="")
                _say_how_to_use(cluster)
                _watch(session, cluster)
        except LockedError as error:
            hint = (
                "use that cluster, or stop the `braidlog up` that runs it; end "
                "nodes that outlived it with `kill` and their process ids"
            )
            raise Problem(error.message, hint, LOCKED) from None
    _tell(lambda: message("stopped"))


def _row(cluster: Any, node: int) -> dict[str, Any]:
    return {
        "node": node,
        "address": cluster.address(node),
        "status": f"{cluster.http(node)}/status",
        "pid": cluster.pid(node),
        "log": str(cluster.output(node)),
    }


def _say_how_to_use(cluster: Any) -> None:
    statuses = (cluster.http(node).removeprefix("http://") for node in cluster.nodes)
    message("ready; stop with Ctrl-C, and in another shell begin with:")
    message(f"export BRAIDLOG_CLUSTER={cluster.seeds}")
    message(f"export BRAIDLOG_STATUS={','.join(statuses)}")


def _watch(session: Session, cluster: Any) -> None:
    """Say when a node ends, until somebody stops all."""
    left = set(cluster.nodes)
    while left:
        for node in sorted(left):
            if not cluster.is_running(node):
                left.discard(node)
                _tell(partial(_say_ended, session, cluster, node))
        time.sleep(_WATCH_S)
    raise Problem(
        "all nodes have stopped", "run the same command to start all of them again"
    )


def _say_ended(session: Session, cluster: Any, node: int) -> None:
    code, file = cluster.exit_code(node), cluster.settings_file(node)
    if session.as_json:
        line(session, "", ended=node, code=code)
        return
    if code < 0:
        message(f"node {node} was killed by {signal.Signals(-code).name}")
    else:
        message(
            f"node {node} stopped with exit code {code}: {cluster.last_words(node)}"
        )
    message(f"its log is {cluster.output(node)}; to start it again:")
    message(f"braidlog serve --config {shlex.quote(str(file))}")


def _tell(say: Callable[[], None]) -> None:
    """Say something, if anybody listens: that nobody does is no reason to stop."""
    try:
        say()
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for output in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                output.flush()
                continue
            # Else the next words, or the end of the process, would fail there.
            os.dup2(nowhere, output.fileno())
        os.close(nowhere)
