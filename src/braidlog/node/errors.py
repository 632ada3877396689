"""Errors of a node's directory that the tree of the package has no word for."""

from __future__ import annotations

from braidlog.errors import ClosedError, CorruptionError
from braidlog.wire.messages import Faults

__all__ = [
    "DamagedNodeError",
    "LeftBehindError",
    "UnfinishedRescueError",
    "begun_anew",
    "left_behind",
]


class DamagedNodeError(CorruptionError):
    """A node cannot be started from its directory: others have to replace it.

    What `braidlog repair` saves lacks something that the node promised to have, as a
    replica or with its vote. It is for a look, never for this node.
    """

    code = 63
    hint = (
        "Keep the directory for a look, start a node with a new id and an empty"
        " directory, then remove this one from the cluster"
    )


class LeftBehindError(ClosedError):
    """The cluster was rescued, and this node's fault log does not know of it."""

    code = 93
    hint = (
        "Move its directory away, start a node with a new id and an empty directory,"
        " then remove this one from the cluster"
    )


class UnfinishedRescueError(ClosedError):
    """A rescue counts on this node, and stopped before it wrote to it."""

    code = 94
    hint = (
        "Keep its directory: stop all nodes, and run `braidlog rescue --write` again"
        " with the directories of all of them"
    )


def begun_anew(node: int, epoch: int) -> LeftBehindError:
    """Return the error of an empty voter that meets a cluster which was rescued."""
    return LeftBehindError(
        f"node {node} has begun with an empty directory, and the cluster was rescued as"
        f" epoch {epoch}"
    )


def left_behind(node: int, message: Faults) -> ClosedError:
    """Return the error of a node that hears of a rescue that did not write to it."""
    if node in message.failed or node not in message.members:
        return LeftBehindError(
            f"the cluster was rescued without node {node}, as epoch {message.epoch}:"
            " what it holds does not count any more"
        )
    return UnfinishedRescueError(
        f"the rescue of epoch {message.epoch} counts on node {node}, but did not write"
        " to it"
    )
