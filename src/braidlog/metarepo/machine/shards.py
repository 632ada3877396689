"""The command with which members of shards say where they stand.

*Theory of operation.* A shard decides by itself who leads it and what is in it. The
repository only places it, and remembers what its leader says, so that clients find it
and everybody sees where it ends. What is here may be old and is never ahead.

*Invariants.* Of two leaders the one with the greater term counts. Ends never fall.
"""

from __future__ import annotations

from braidlog.metarepo.machine.state import ShardPlace, State
from braidlog.wire.commands import ReportShards
from braidlog.wire.results import Done


def note(state: State, index: int, command: ReportShards) -> Done:
    """Apply `ReportShards`; what is not known, or older, is passed over."""
    for news in command.shards:
        place = state.shards.get(news.stream)
        if place is None or command.node not in place.voters or news.term < place.term:
            continue
        if (place.leader, place.term) != (command.node, news.term):
            place.leader, place.term = command.node, news.term
            state.revision = index
        log = state.logs[place.log]
        if news.next - 1 > log.high_watermark:
            log.high_watermark = news.next - 1
            log.version += 1
    return Done()


def shards_of(state: State, node: int) -> list[ShardPlace]:
    """Return the shards that a node is a member of."""
    return [each for each in state.shards.values() if node in each.voters]
