"""Which directory each node is known by, and who is therefore not listened to.

*Theory of operation.* The repository binds an id to the identity of a directory when
the node registers. Members of the repository see that in their state, others learn it
with the metadata. A connection says who makes it, and who answers says so too; what
comes with another identity is refused before anything is heard from it, so neither a
vote nor what it claims to hold counts. What changed is looked at again, because
connections live long.

Whoever is behind must not refuse the leader because of what it does not know yet: it
could never catch up. So a directory also says which entry gave the id to it, and who
has not come to that entry lets it in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from braidlog.errors import NodeIdentityError
from braidlog.metarepo.machine.nodes import require_identity
from braidlog.metarepo.machine.repository import Repository
from braidlog.metarepo.machine.state import NodeState, State
from braidlog.node.peers.identity import Identity, note_bound
from braidlog.store.node_store import NodeStore
from braidlog.wire.messages import Hello, Metadata
from braidlog.wire.rights import Rights
from braidlog.wire.roles import Role
from braidlog.wire.server import Authorizer

_log = logging.getLogger(__name__)

COMPLAINTS_MAX: Final = 1024


class PeerIdentity:
    """Tells directories of one id apart."""

    def __init__(self, store: NodeStore, node: int, who: Identity, group: int) -> None:
        """Know nobody but the own node, in a group of the repository."""
        self._store = store
        self._node = node
        # Entries of another group are other entries.
        self._who = who if who.group == group else replace(who, group=0, bound=0)
        self._told: dict[int, NodeState] = {}
        self._told_index = 0
        self._complained: set[tuple[int, str]] = set()
        self._revision = 0
        self._refused: dict[int, NodeIdentityError] = {}
        self.repository: Callable[[], Repository | None] = lambda: None
        """Gives the state machine on a member of the repository."""
        self.part: Callable[[], None] = lambda: None
        """Looks at all connections again."""

    def _state(self) -> State | None:
        """Return the replicated state, None where it is not kept or not begun."""
        repository = self.repository()
        if repository is None or not repository.revision:
            return None
        return repository.state

    @property
    def why(self) -> str:
        """Return why another node does not take this one for who it says."""
        return next((each.message for each in self._refused.values()), "")

    @property
    def vacant(self) -> tuple[int, ...]:
        """Return the nodes whose directory was given up, until the next one comes."""
        state = self._state()
        nodes = state.nodes.values() if state is not None else ()
        return tuple(each.node for each in nodes if each.former and not each.identity)

    def refused(self, node: int, error: NodeIdentityError) -> None:
        """Note that another node does not take this one for who it says."""
        if error.node == self._node and node not in self._refused:
            msg = "node %d rejected our identity as node %d: %s"
            _log.critical(msg, node, self._node, error)
        self._refused[node] = error

    def connected(self, node: int) -> None:
        """Note that another node takes this one for who it says."""
        self._refused.pop(node, None)

    def look(self, group: int) -> None:
        """Part with nodes whose ids belong to other directories by now."""
        repository = self.repository()
        # Asked after everything that came in, and hardly ever is it new.
        if repository is None or repository.state.revision == self._revision:
            return
        state = repository.state
        self._revision = state.revision
        self._note_bound(state, group)
        self.part()

    def bound(self) -> int:
        """Return the entry that gave the id to this directory, 0 if not known."""
        return self._who.bound

    def _note_bound(self, state: State, group: int) -> None:
        """Look for the entry that gave the id to this directory, and keep it."""
        known = state.nodes.get(self._node)
        if known is None or known.identity != self._who.directory:
            return
        if (self._who.group, self._who.bound) != (group, known.bound):
            self._who = replace(self._who, group=group, bound=known.bound)
            note_bound(self._store, self._who)

    def learn(self, metadata: Metadata) -> None:
        """Take what the metadata says."""
        self._told_index = metadata.index
        self._told = {
            each.node: NodeState(
                each.node,
                each.address,
                0,
                identity=each.identity,
                readmitting=each.readmitting,
                features=each.features,
            )
            for each in metadata.nodes
        }
        self.part()

    def check(self, node: int, identity: bytes, bound: int) -> None:
        """Refuse a node that is not who it says, as far as that is known here.

        Raises:
            NodeIdentityError: its id belongs to another directory.
        """
        if node == self._node and identity != self._who.directory:
            given, known = identity.hex(), self._who.directory.hex()
            msg = (
                f"node {node} is this directory, with identity {known}; another "
                f"directory with identity {given} connects as node {node}"
            )
            raise NodeIdentityError(msg, node=node, given=given, known=known)
        state = self._state()
        if state is None:
            nodes, index = self._told, self._told_index
        else:
            nodes, index = state.nodes, state.index
        if node in nodes and bound <= index:
            require_identity(nodes[node], identity)

    def guarded(self, authorize: Authorizer) -> Authorizer:
        """Return what lets in whom `authorize` lets in, if it is who it says."""

        def checked(hello: Hello) -> Rights:
            rights = authorize(hello)
            # Who may not speak as a node is not told who the nodes are.
            if hello.node and rights.role >= Role.PEER:
                self.vouch(hello.node, hello.identity, hello.bound)
            return rights

        return checked

    def vouch(self, node: int, identity: bytes, bound: int) -> None:
        """Check a node that connects or answers, and complain once of each stranger.

        Raises:
            NodeIdentityError: its id belongs to another directory.
        """
        try:
            self.check(node, identity, bound)
        except NodeIdentityError as error:
            who = error.node, error.given
            if who not in self._complained and len(self._complained) < COMPLAINTS_MAX:
                self._complained.add(who)
                _log.error("a connection was refused: %s", error, extra={"node": node})  # noqa: TRY400, RUF100
            raise

    def holds(self, node: int, identity: bytes, bound: int) -> bool:
        """Tell whether a node that was let in may stay."""
        try:
            self.vouch(node, identity, bound)
        except NodeIdentityError:
            return False
        return True
