"""``braidlog serve``: one node of a cluster; ``braidlog up``: a cluster here."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

import click

from braidlog.cli.output import line, message, rows
from braidlog.cli.session import Command, Session
from braidlog.errors import InvalidArgumentError

__all__ = ["serve", "up"]

_WATCH_S: Final = 0.2


@click.command(cls=Command)
@click.option(
    "--config",
    "-c",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="BRAIDLOG_CONFIG",
    help="Settings file (TOML) [env: BRAIDLOG_CONFIG].",
)
@click.option("--check", is_flag=True, help="Check the settings and stop.")
@click.pass_obj
def serve(session: Session, /, config: Path | None, *, check: bool) -> None:
    """Run one node of a cluster until SIGTERM or Ctrl-C.

    Every setting may come from the environment instead of the file:
    BRAIDLOG_NODE_ID=1 is id = 1 in [node].
    """
    # Late: everything else works without the extra that these need.
    from braidlog.node.config import load
    from braidlog.node.process import run

    settings = load(config)
    if check:
        text = f"the settings of node {settings.node.id} can serve"
        line(session, text, node=settings.node.id)
        return
    sys.exit(run(settings))


@click.command(cls=Command)
@click.option(
    "--nodes", default=3, type=click.IntRange(1, 9), show_default=True, help="How many."
)
@click.pass_obj
def up(session: Session, /, *, nodes: int) -> None:
    """Run a cluster on this machine until Ctrl-C.

    Each node is a process with a directory of its own below the data directory; a later
    `up` with the same directory goes on with the same data.
    """
    from braidlog.testing.cluster import LocalCluster

    cluster = LocalCluster(nodes, directory=session.data.absolute())
    if len(cluster.nodes) != nodes:
        msg = f"{session.data} has a cluster of {len(cluster.nodes)} nodes"
        raise InvalidArgumentError(msg)
    with contextlib.suppress(KeyboardInterrupt), _stopped_by_sigterm(), cluster:
        rows(session, [_row(cluster, node) for node in cluster.nodes], empty="")
        message(f"connect to {cluster.seeds}; stop with Ctrl-C")
        _watch(session, cluster)
    message("stopped")


def _row(cluster: Any, node: int) -> dict[str, Any]:
    return {
        "node": node,
        "address": cluster.address(node),
        "status": f"{cluster.http(node)}/status",
        "pid": cluster.pid(node),
        "log": str(cluster.output(node)),
    }


def _watch(session: Session, cluster: Any) -> None:
    """Say when a node ends, until somebody stops all."""
    ended: set[int] = set()
    while True:
        for node in cluster.nodes:
            if node not in ended and not cluster.is_running(node):
                ended.add(node)
                text = f"node {node} ended; its log is {cluster.output(node)}"
                if session.as_json:
                    click.echo(json.dumps({"ended": node}))
                else:
                    message(text)
        time.sleep(_WATCH_S)


@contextlib.contextmanager
def _stopped_by_sigterm() -> Any:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
