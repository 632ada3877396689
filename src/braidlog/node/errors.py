"""Errors of a node's directory that the tree of the package has no word for."""

from __future__ import annotations

from braidlog.errors import CorruptionError

__all__ = ["DamagedNodeError"]


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
