"""``braidlog serve`` that keeps the times of what it does until it ends.

    BRAIDLOG_TRACE=folder python -m benchmarks.cluster.traced serve --config node.toml

All processes of a machine have one monotonic clock, so that times of several nodes can
be put side by side. What is kept costs about a microsecond an event.
"""

import atexit
import json
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from time import monotonic_ns
from typing import Any

from braidlog.cli.root import main
from braidlog.node.node import ClusterNode
from braidlog.node.replication.replicas import Replicas
from braidlog.node.repository.member import RepositoryMember
from braidlog.node.repository.raft_log import GroupLog
from braidlog.serving.sessions import Session

EVENTS_MAX = 1_000_000
_events: list[tuple[str, int]] = []


def _note(name: str) -> None:
    if len(_events) < EVENTS_MAX:
        _events.append((name, monotonic_ns()))


def trace(
    owner: type,
    method: str,
    begin: str,
    end: str = "",
    only: Callable[..., bool] = lambda *_: True,
) -> None:
    """Keep when a method is called, and returns, if its arguments are among those."""
    inner = getattr(owner, method)

    @wraps(inner)
    def traced(self: Any, *arguments: Any) -> Any:
        wanted = only(*arguments)
        if wanted:
            _note(begin)
        result = inner(self, *arguments)
        if end and wanted:
            _note(end)
        return result

    setattr(owner, method, traced)


def install() -> None:
    """Trace the way of an append."""
    trace(ClusterNode, "appends", "append", "placed")
    # What the lane takes of a read is told when it is done.
    trace(ClusterNode, "taken", "replicate", only=lambda _, event: not event.commits)
    trace(ClusterNode, "taken", "commit", only=lambda _, event: event.commits)
    trace(Replicas, "commit", "commit")
    trace(ClusterNode, "_note_durable", "synced")
    # Of other nodes, and of this one.
    trace(ClusterNode, "_report", "report", only=lambda _, report, __: not report.full)
    trace(RepositoryMember, "report", "report", only=lambda report, _: not report.full)
    trace(GroupLog, "write", "write", only=lambda write: bool(write.entries))
    trace(Session, "answer_appends", "answer")


def _dump(folder: Path) -> None:
    (folder / f"{os.getpid()}.json").write_text(json.dumps(_events))


if __name__ == "__main__":
    install()
    atexit.register(_dump, Path(os.environ["BRAIDLOG_TRACE"]))
    main()
