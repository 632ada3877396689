"""Where the other nodes are, for a node that is no member of the repository.

Members read it in their log. Others ask a voter for what is newer, and the next voter
if that one does not answer. Who votes may have changed since the settings were written,
so they learn that too.

A member that starts, or was away, may have to follow a leader that its log does not
have yet. It cannot answer that one, so it is sent nothing that says more: it asks too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from braidlog.errors import LogError
from braidlog.node.peers.links import Peers
from braidlog.wire.messages import GetMetadata, Message, Metadata

_log = logging.getLogger(__name__)

_WAIT_MS: Final = 5_000
_PATIENCE_S: Final = 1.0
"""Beyond what the voter was asked to wait."""
_PAUSE_S: Final = 0.1
"""Between two questions; registrations come in crowds when a cluster starts."""


class Directory:
    """Asks where the nodes are, as long as the node is no member."""

    def __init__(
        self,
        node: int,
        configured: Iterable[int],
        peers: Peers,
        *,
        learn: Callable[[Metadata], None],
        is_member: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        """Know the voters of the settings; ``learn`` gets what is new first."""
        self._node = node
        self._configured = tuple(configured)
        self._peers = peers
        self._learn = learn
        self._is_member = is_member
        self._changed = changed
        self.metadata: Metadata | None = None
        """What a voter said last."""
        self._voters: tuple[int, ...] = ()
        self._sought = 0
        self._turn = 0
        self._asked = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin."""
        self._ask()

    def close(self) -> None:
        """Ask no more."""
        self._asked = -1
        if self._timer is not None:
            self._timer.cancel()

    @property
    def voters(self) -> tuple[int, ...]:
        """Return the other nodes that vote, as configured and as it was last heard.

        Both, because those of the settings know who votes now, if they still run.
        """
        known = dict.fromkeys((*self._configured, *self._voters))
        return tuple(each for each in known if each != self._node)

    def seek(self, node: int) -> None:
        """Ask as a member too, until it is known where a node is."""
        if self._asked >= 0 and not self._sought and self._is_member():
            self._sought = node
            self._ask()

    def _ask(self) -> None:
        voters = self.voters
        if not voters or (self._is_member() and not self._sought):
            return
        self._asked += 1
        asked = self._asked

        def answered(answer: Message | LogError, _: memoryview) -> None:
            if asked == self._asked:
                self._take(answer)

        # A voter that hangs is left; whatever it says later is ignored.
        self._ask_in(_WAIT_MS / 1000 + _PATIENCE_S, turn=1)
        voter = voters[self._turn % len(voters)]
        known = self.metadata.index if self.metadata is not None else 0
        self._peers.request(voter, GetMetadata(known, _WAIT_MS), (), answered)

    def _ask_in(self, seconds: float, *, turn: int = 0) -> None:
        if self._timer is not None:
            self._timer.cancel()

        def again() -> None:
            self._turn += turn
            self._ask()

        self._timer = asyncio.get_running_loop().call_later(seconds, again)

    def _take(self, answer: Message | LogError) -> None:
        if not isinstance(answer, Metadata):
            _log.debug("the addresses of the other nodes are not known yet: %s", answer)
            self._ask_in(_PAUSE_S, turn=1)
            return
        if self.metadata is None or answer.index >= self.metadata.index:
            self.metadata = answer
        self._voters = tuple(each.node for each in answer.nodes if each.voter)
        self._learn(answer)
        self._peers.know(
            {
                each.node: each.address
                for each in answer.nodes
                if each.node != self._node
            }
        )
        if self._sought in self._peers.nodes:
            self._sought = 0
        self._ask_in(_PAUSE_S)
        self._changed()
