"""After a rescue: says once what the node holds, in parts that fit a command."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from braidlog.errors import LogError
from braidlog.node.requests.forwarding import Execution
from braidlog.store.node_store import NodeStore
from braidlog.wire.commands import OfferReplicas, StoredReplica, encode
from braidlog.wire.messages import Message

_log = logging.getLogger(__name__)

_PART_BYTES: Final = 256 << 10
_REPLICA_BYTES: Final = 64
"""Numbers of a replica, about."""
_RETRY_S: Final = 0.2


class ReplicaOffer:
    """Repeats each part until it is taken; what is done is remembered on the disk."""

    def __init__(
        self, node: int, store: NodeStore, epoch: int, execute: Execution
    ) -> None:
        """Prepare for the fault epoch of the cluster; 1 has nothing to offer."""
        self._node = node
        self._execute = execute
        self._store = store
        self._epoch = epoch
        self._mark = f"rescued.{epoch}"
        self._parts: list[OfferReplicas] = []
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def start(self, stored: Callable[[], Sequence[StoredReplica]]) -> None:
        """Begin, if this start is the first one after a rescue."""
        if self._epoch <= 1 or self._store.options(self._mark) is not None:
            return
        parts = list(_parts(stored()))
        self._parts = [
            OfferReplicas(self._node, self._epoch, number, len(parts), part)
            for number, part in enumerate(parts)
        ]
        self._try()

    def close(self) -> None:
        """Give up."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _try(self) -> None:
        self._execute(b"", encode(self._parts[0]), self._answered)

    def _answered(self, answer: Message | LogError, _: memoryview) -> None:
        if self._closed:
            return
        if isinstance(answer, LogError):
            _log.debug(
                (
                    "the rescued metadata repository did not take this node's list of "
                    "replicas: %s"
                ),
                answer,
            )
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_RETRY_S, self._try)
            return
        del self._parts[0]
        if self._parts:
            self._try()
            return
        self._store.create(self._mark)
        _log.info("the rescued metadata repository has this node's list of replicas")


def _parts(
    stored: Sequence[StoredReplica],
) -> Iterator[tuple[StoredReplica, ...]]:
    """Cut the list; there is always one part, which may be empty."""
    part: list[StoredReplica] = []
    size = 0
    for each in stored:
        grown = size + len(each.about) + _REPLICA_BYTES
        if part and grown > _PART_BYTES:
            yield tuple(part)
            part, grown = [], len(each.about) + _REPLICA_BYTES
        part.append(each)
        size = grown
    yield tuple(part)
