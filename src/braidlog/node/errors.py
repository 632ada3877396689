"""Errors of a node's directory that the tree of the package has no word for."""

from __future__ import annotations

from braidlog.errors import ClosedError, CorruptionError
from braidlog.wire.messages import Faults


class DamagedNodeError(CorruptionError):
    """A node cannot be started from its directory: others have to replace it.

    What `braidlog repair` saves lacks something that the node promised to have, as a
    replica or with its vote. It is for a look, never for this node.
    """

    code = 63
    hint = (
        "Keep the directory for an investigation. Start a node with a new "
        "id and an empty directory, then remove this one with `braidlog "
        "node remove`"
    )


class LeftBehindError(ClosedError):
    """The cluster was rescued, and this node's fault log does not know of it."""

    code = 93
    hint = (
        "Move its directory away. Start a node with a new id and an empty "
        "directory, then remove this one with `braidlog node remove`"
    )


class UnfinishedRescueError(ClosedError):
    """A rescue counts on this node, and stopped before it wrote to it."""

    code = 94
    hint = (
        "Keep its directory. Stop all nodes, then run `braidlog rescue "
        "--write` again with the directories of all of them"
    )


def begun_anew(node: int, epoch: int) -> LeftBehindError:
    """Return the error of an empty voter that meets a cluster which was rescued."""
    return LeftBehindError(
        f"node {node} started with an empty directory, but the cluster was "
        f"rescued (epoch {epoch}) and expects the data of its voters"
    )


def left_behind(node: int, message: Faults) -> ClosedError:
    """Return the error of a node that hears of a rescue that did not write to it."""
    if node in message.failed or node not in message.members:
        return LeftBehindError(
            f"the cluster was rescued without node {node} (epoch "
            f"{message.epoch}): the data of this node is no longer part of it"
        )
    return UnfinishedRescueError(
        f"a rescue (epoch {message.epoch}) includes node {node} but stopped "
        "before it wrote to its directory"
    )
