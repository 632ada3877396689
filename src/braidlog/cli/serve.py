"""``braidlog serve``: one node of a cluster; ``braidlog up``: a cluster here."""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from braidlog.cli.commands import LocalCommand
from braidlog.cli.failures import LOCKED, USAGE, Problem, explain
from braidlog.cli.output import line, message, rows
from braidlog.cli.session import Session
from braidlog.errors import LockedError

__all__ = ["serve", "up"]

_WATCH_S: Final = 0.2


@click.command(cls=LocalCommand)
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
    sys.exit(run(settings, lambda error: explain(error).exit_code))


@click.command(cls=LocalCommand)
@click.option(
    "--nodes",
    type=click.IntRange(1, 9),
    help="How many [default: those that the directory has; 3 in a new one].",
)
@click.pass_obj
def up(session: Session, /, *, nodes: int | None) -> None:
    """Run a cluster on this machine until Ctrl-C.

    Each node is a process with a directory of its own below the data directory; a later
    `up` with the same directory goes on with the same data.
    """
    for needed in ("msgspec", "prometheus_client", "uvloop"):
        importlib.import_module(needed)  # Else each node would miss it by itself.
    from braidlog.testing.cluster import LocalCluster, kept_ports

    if session.has_data():
        raise Problem(
            f"{session.data} is the data directory of one node",
            "name another one with --data",
            USAGE,
        )
    directory = session.data.absolute()
    there = nodes or len(kept_ports(directory)) // 2 or 3
    cluster = LocalCluster(there, directory=directory)
    with contextlib.suppress(KeyboardInterrupt), _stopped_by_signals():
        try:
            with cluster:
                rows(session, [_row(cluster, node) for node in cluster.nodes], empty="")
                _say_how_to_use(cluster)
                _watch(session, cluster)
        except LockedError as error:
            hint = "use that cluster, or stop the `braidlog up` that runs it"
            raise Problem(error.message, hint, LOCKED) from None
    message("stopped")


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
    ended: set[int] = set()
    while True:
        for node in cluster.nodes:
            if node not in ended and not cluster.is_running(node):
                ended.add(node)
                text = f"node {node} ended; its log is {cluster.output(node)}"
                if session.as_json:
                    line(session, text, ended=node)
                else:
                    message(text)
        time.sleep(_WATCH_S)


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Let SIGTERM, and SIGHUP of a terminal that closes, do what Ctrl-C does."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
