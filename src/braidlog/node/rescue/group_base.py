"""What a new member of the metadata repository begins with, after a rescue or not."""

from __future__ import annotations

from pathlib import Path

from braidlog.errors import InvalidArgumentError
from braidlog.faultlog.record import NO_DIGEST, FaultRecord
from braidlog.metarepo.succession import base_of
from braidlog.node.config import NodeConfig
from braidlog.node.repository.member import FIRST_GROUP
from braidlog.node.rescue.files import read_seed
from braidlog.raft import Base, Membership


def begin_base(config: NodeConfig, newest: FaultRecord | None) -> Base | None:
    """Return what a member begins with whose disk has nothing of its group.

    After a rescue it is the same on all valid nodes. None: the node has to be let in.

    Raises:
        CorruptionError: what the rescue left for it is not there.
        InvalidArgumentError: the settings name none of the valid nodes as a voter.
    """
    if newest is None or newest.configuration.epoch == FIRST_GROUP:
        return Base(membership=Membership(voters=tuple(sorted(config.cluster.voters))))
    if newest.configuration.sequence > 0:
        return None  # It came after the rescue.
    seed = None
    if newest.state != NO_DIGEST:
        seed = read_seed(Path(config.node.data), newest.state)
    live = newest.configuration.live
    voters = tuple(node for node in live if node in config.cluster.voters)
    if seed is not None and seed.voters:
        voters = seed.voters
    if not voters:
        raise InvalidArgumentError(
            f"[cluster] voters names none of the nodes {live} that survived the "
            "rescue: add them"
        )
    return base_of(newest.configuration, voters, seed)
