"""Makes the node known to the metadata repository, until it is."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from braidlog.errors import LogError
from braidlog.metarepo.events import Event
from braidlog.node.config import NodeConfig
from braidlog.node.metrics.event_log import tell
from braidlog.node.peers.identity import Identity
from braidlog.node.requests.forwarding import Execution
from braidlog.wire.commands import RegisterNode, encode
from braidlog.wire.messages import Feature, Message

_log = logging.getLogger(__name__)

_RETRY_S: Final = 0.05
_RETRY_MAX_S: Final = 1.0


class Registration:
    """Says who the node is, where, and that it started; again until it is accepted."""

    def __init__(
        self, config: NodeConfig, who: Identity, execute: Execution, features: Feature
    ) -> None:
        """Prepare; ``execute`` executes a command on the leader."""
        self._features = features
        self._config = config
        self._who = who
        self._execute = execute
        self._timer: asyncio.TimerHandle | None = None
        self._retry_s = _RETRY_S
        self._closed = False
        self.done = False

    def start(self) -> None:
        """Begin."""
        self._try()

    def close(self) -> None:
        """Give up."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _try(self) -> None:
        config, who = self._config, self._who
        command = RegisterNode(
            config.node.id,
            config.advertise,
            who.incarnation,
            who.directory,
            self._features,
        )
        # Without an identity: a refusal may be over by the next time, when another node
        # has left the address, and to be registered twice is the same as once.
        self._execute(b"", encode(command), self._answered)

    def _answered(self, answer: Message | LogError, _: memoryview) -> None:
        if self._closed:
            return
        if isinstance(answer, LogError):
            _log.debug("the node could not register and will try again: %s", answer)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._retry_s, self._try)
            self._retry_s = min(2 * self._retry_s, _RETRY_MAX_S)
            return
        self.done = True
        event = Event("node_registered", "the node is registered and serves")
        tell(_log, self._config.node.id, event)
