"""Where a member of a shard keeps its checkpoint: the options of a log without records.

*Invariants.* What is stored becomes durable behind everything that was stored before:
so whoever finds a checkpoint has the entries up to it. Without one a start reads more,
and nothing else is different.
"""

from __future__ import annotations

import logging

from braidlog.errors import ClosedError, LogError
from braidlog.node.repository.raft_log import GroupLog
from braidlog.shard.checkpoint import Checkpoint
from braidlog.store.node_store import NodeStore

_log = logging.getLogger(__name__)


class SavedState:
    """The checkpoint of one member; see the module."""

    def __init__(self, store: NodeStore, log: GroupLog) -> None:
        """Keep it beside the log of the member."""
        self._store = store
        self._name = f"{log.name}.mark"

    def load(self) -> Checkpoint | None:
        """Return what was stored last; None if nothing was.

        Raises:
            CorruptionError: it is no checkpoint.
        """
        options = self._store.options(self._name)
        return Checkpoint.decode(options) if options else None

    def store(self, checkpoint: Checkpoint) -> None:
        """Store one; if there is no room for it, the one before stays.

        Raises:
            ClosedError: the store has failed.
        """
        try:
            if self._store.options(self._name) is None:
                self._store.create(self._name)
            self._store.open(self._name).alter(checkpoint.encode())
        except ClosedError:
            raise
        except LogError as error:
            _log.warning(
                "%s cannot be stored: a start reads more: %s", self._name, error
            )

    def delete(self) -> None:
        """Delete it, if there is one; durable on return."""
        if self._store.options(self._name) is not None:
            self._store.delete(self._name)
