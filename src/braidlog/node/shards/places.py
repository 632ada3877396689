"""Where shards are, in the two forms in which a node has the metadata."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from braidlog.metarepo.machine.state import State
from braidlog.wire.members import generation_of, node_of
from braidlog.wire.messages import LogKind, Metadata

__all__ = ["Place", "knows_start", "places_in", "places_of"]


class Place(NamedTuple):
    """Where a shard is, as the metadata repository says."""

    stream: int
    log: bytes
    name: str
    voters: tuple[int, ...]
    plan: int
    wanted: tuple[int, ...]
    kept: tuple[int, ...]
    lost: tuple[int, ...]
    founded: bool
    """Whether a leader has said that it leads."""
    settled: bool
    """Whether a leader has said that the group is as it should be."""
    trim: int
    """The first position that is to be kept."""
    options: bytes
    """Of the log."""

    def founders(self, member: int) -> tuple[int, ...]:
        """Return with whom a new member begins; nobody if it is to be added."""
        begins = not self.founded and not generation_of(member)
        return tuple(sorted(self.voters)) if begins else ()

    def due(self, node: int) -> list[int]:
        """Return the members that a node has to have.

        As long as nobody leads, those who found the group are needed, wanted or not.
        """
        needed = self.wanted if self.founded else {*self.wanted, *self.voters}
        return [
            each
            for each in sorted(needed)
            if node_of(each) == node and each not in self.lost
        ]


def places_in(state: State) -> Iterator[Place]:
    """Return the places of all shards, of a member of the repository."""
    for each in state.shards.values():
        log = state.logs[each.log]
        yield Place(
            each.stream,
            each.log,
            log.name,
            each.voters,
            each.plan,
            each.wanted,
            each.kept,
            each.lost,
            each.term > 0,
            each.settled,
            log.trim,
            log.options,
        )


def places_of(metadata: Metadata) -> Iterator[Place]:
    """Return the places of all shards, as a voter said."""
    for log in metadata.logs:
        if log.kind is not LogKind.SHARD:
            continue
        for stream in log.streams:
            who = stream.members
            if who is not None:
                yield Place(
                    stream.stream,
                    log.log,
                    log.name,
                    who.voters,
                    who.plan,
                    who.wanted,
                    who.kept,
                    who.lost,
                    stream.epoch > 0,
                    who.settled,
                    log.trim,
                    log.options,
                )


def knows_start(metadata: State | Metadata, node: int, incarnation: int) -> bool:
    """Tell whether this is no older than a start of a node.

    A node that starts may hear of older metadata than it knew before it ended. It makes
    nothing anew of that and deletes nothing: it may have deleted it already, or made it
    since.
    """
    if isinstance(metadata, State):
        known = metadata.nodes.get(node)
        return known is not None and known.incarnation == incarnation
    return any(
        each.node == node and each.incarnation == incarnation for each in metadata.nodes
    )
