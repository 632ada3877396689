"""How a node reaches the metadata repository: by its own member, or by other nodes."""

from __future__ import annotations

from braidlog.node.peers.directory import Directory
from braidlog.node.peers.links import Peers
from braidlog.node.repository.member import RepositoryMember


class RepositoryRoute:
    """The node's member of the repository, if it has one, and who leads."""

    def __init__(self, node: int, peers: Peers, directory: Directory) -> None:
        """Begin without a member, and knowing no leader."""
        self.node = node
        self.directory = directory
        """Where the nodes are, as a voter said last."""
        self.member: RepositoryMember | None = None
        self.leader_heard = 0
        """Who last told this node what was decided."""
        self._peers = peers
        self.seen = 0
        """Revision that all who wait for news were told of."""

    @property
    def leader(self) -> int:
        """Return the leader of the repository, 0 if none is known."""
        return self.member.leader if self.member is not None else self.leader_heard

    @property
    def revision(self) -> int:
        """Return the last entry that changed more than a cut does, as known here."""
        if self.member is not None:
            return self.member.group.repository.revision
        known = self.directory.metadata
        return known.index if known is not None else 0

    @property
    def way_to_leader(self) -> int:
        """Return the node to ask for what the leader decides, 0 if none is known.

        Whoever is no member of the repository hears of its leader only once it has to
        do with it; until then any member passes things on.
        """
        if self.member is not None:
            return self.member.leader
        ways = (self.leader_heard, *self.directory.voters)
        return next((each for each in ways if self._peers.is_connected(each)), 0)

    @property
    def voters(self) -> tuple[int, ...]:
        """Return the other nodes that may lead, for a node that is no member."""
        heard = (self.leader_heard,) if self.leader_heard else ()
        return tuple(dict.fromkeys((*self.directory.voters, *heard)))

    @property
    def connected_voter(self) -> int:
        """Return a voter that can be asked now, 0 if none can."""
        connected = self._peers.is_connected
        return next((each for each in self.voters if connected(each)), 0)
