"""Where shards are, in the two forms in which a node has the metadata."""

from __future__ import annotations

from collections.abc import Iterator

from braidlog.metarepo.machine.state import State
from braidlog.node.shards.shard_host import Place
from braidlog.wire.messages import LogKind, Metadata


def places_in(state: State) -> Iterator[Place]:
    """Return the places of all shards, of a member of the repository."""
    for each in state.shards.values():
        log = state.logs[each.log]
        yield Place(each.stream, each.log, log.name, _sorted(each.voters), log.trim)


def places_of(metadata: Metadata) -> Iterator[Place]:
    """Return the places of all shards, as a voter said."""
    for log in metadata.logs:
        if log.kind is LogKind.SHARD:
            stream = log.streams[0]
            voters = _sorted(stream.replicas)
            yield Place(stream.stream, log.log, log.name, voters, log.trim)


def _sorted(voters: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(voters))
