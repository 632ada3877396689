"""Where shards are: what the repository decides, and what their leaders say of them.

*Theory of operation.* A shard decides by itself who leads it and what is in it. Who
should belong to it the repository decides: a plan. The leader of the shard brings the
group there and says so. What is here may be old and is never ahead; of who belongs to
the group there is more here than there is, never less.

*Invariants.* Of two leaders the one with the greater term counts. Ends never fall.
Plans rise. A member is left out of `kept` only when a leader has said of the last plan,
in which it has no place, that it does not belong to the group: nobody will add it, for
the group itself follows no earlier plan any more. No number of a member is given twice.
"""

from __future__ import annotations

import msgspec

from braidlog.errors import FencedError, InvalidArgumentError, NotFoundError
from braidlog.metarepo.machine.nodes import require_node
from braidlog.metarepo.machine.state import REPLICAS_MAX, ShardPlace, State
from braidlog.wire.commands import (
    DropLearner,
    MoveReplica,
    PlaceShard,
    ReportShards,
    ShardNews,
)
from braidlog.wire.members import NODE_END, member_of, node_of, nodes_of
from braidlog.wire.results import Done

# --- what their leaders say


def note(state: State, index: int, command: ReportShards) -> Done:
    """Apply `ReportShards`; what is not known, or older, is passed over."""
    for news in command.shards:
        place = state.shards.get(news.stream)
        if place is None or news.term < place.term:
            continue
        if command.node not in nodes_of((*place.kept, *news.voters)):
            continue
        if (place.leader, place.term) != (command.node, news.term):
            place.leader, place.term = command.node, news.term
            state.revision = index
        if _members(place, news):
            state.revision = index
        log = state.logs[place.log]
        if news.next - 1 > log.high_watermark:
            log.high_watermark = news.next - 1
            log.version += 1
    for stream, member in command.damaged:
        place = state.shards.get(stream)
        mine = node_of(member) == command.node
        if place is not None and mine and member in {*place.kept} - {*place.damaged}:
            place.damaged = (*place.damaged, member)
            state.revision = index
    return Done()


def _members(place: ShardPlace, news: ShardNews) -> bool:
    """Note who belongs to a shard; tell whether that is news."""
    before = msgspec.structs.astuple(place)
    place.generation = max(place.generation, news.generation)
    if news.plan > place.plan:
        # Of before a rescue, which found an earlier state of the repository.
        place.plan, place.wanted = news.plan, news.wanted
    elif 0 < news.plan == place.plan and news.wanted != place.wanted:
        # Or somebody who should stay has left before the group heard of it.
        place.plan, place.wanted = news.plan + 1, news.wanted
    if news.voters and news.epoch >= place.epoch:
        place.epoch, place.voters = news.epoch, news.voters
        belongs = dict.fromkeys((*place.wanted, *news.voters, *news.learners))
        if news.plan == place.plan:
            place.kept = tuple(belongs)
        else:
            place.kept = tuple(dict.fromkeys((*place.kept, *belongs)))
        there = set(news.voters) == set(place.wanted) and not news.learners
        place.settled = news.plan == place.plan and there
        place.lost = tuple(each for each in place.lost if each in place.kept)
        place.damaged = tuple(each for each in place.damaged if each in place.kept)
    elif not news.plan and not place.plan:
        place.settled = True
    return msgspec.structs.astuple(place) != before


# --- what the repository decides


def place(state: State, index: int, command: PlaceShard) -> Done:
    """Apply `PlaceShard`."""
    shard = _require_shard(state, command.stream)
    _require_plan(shard, command.expected)
    _plan(state, index, shard, command.add, command.drop)
    return Done()


def move(state: State, index: int, command: MoveReplica) -> Done:
    """Apply `MoveReplica` to a shard: one member for another, in one step."""
    shard = _require_shard(state, command.stream)
    _require_plan(shard, command.expected)
    wanted = nodes_of(shard.wanted)
    if command.target in wanted and command.source not in wanted:
        return Done()
    if command.source not in wanted:
        msg = f"node {command.source} is no member of shard {shard.stream}"
        raise InvalidArgumentError(msg)
    if require_node(state, command.target).draining:
        msg = f"node {command.target} is being drained, so it takes no replicas"
        raise InvalidArgumentError(msg)
    gone = [each for each in shard.wanted if node_of(each) == command.source]
    _plan(state, index, shard, (command.target,), tuple(gone))
    return Done()


def give_up_move(state: State, index: int, command: DropLearner) -> Done:
    """Apply `DropLearner` to a shard: who was to leave for a new member stays."""
    shard = _require_shard(state, command.stream)
    _require_plan(shard, command.expected)
    gone = [
        each
        for each in shard.wanted
        if node_of(each) == command.node and each not in shard.voters
    ]
    leaving = [each for each in shard.voters if each not in shard.wanted]
    if not gone or not leaving:
        msg = f"nothing of shard {shard.stream} is being moved to node {command.node}"
        raise InvalidArgumentError(msg)
    _plan(state, index, shard, nodes_of(leaving[:1]), tuple(gone))
    return Done()


def _plan(
    state: State,
    index: int,
    shard: ShardPlace,
    add: tuple[int, ...],
    drop: tuple[int, ...],
) -> None:
    """Decide that members come and go.

    Raises:
        NotFoundError: there is no such node.
        InvalidArgumentError: nobody would be left, too many would be there, or a node
            has a member already.
    """
    if strange := set(drop) - set(shard.wanted):
        msg = f"members {sorted(strange)} have no place in shard {shard.stream}"
        raise InvalidArgumentError(msg)
    staying = [each for each in shard.wanted if each not in drop]
    count = len(staying) + len(add)
    if not 1 <= count <= REPLICAS_MAX:
        msg = f"shard {shard.stream} would have {count} members"
        raise InvalidArgumentError(msg)
    useless = {*shard.lost, *shard.damaged}
    known = {node_of(each): each for each in shard.kept if each not in useless}
    votes = {node_of(each): each for each in shard.voters if each in known.values()}
    for node in add:
        require_node(state, node)
        # Who is about to leave may stay; if it has left already, its leader says so.
        stays = votes.get(node) not in (None, *staying)
        if add.count(node) > 1 or node >= NODE_END or (node in known and not stays):
            msg = f"node {node} has a member of shard {shard.stream} already"
            raise InvalidArgumentError(msg)
    for node in add:
        if node in votes:
            staying.append(votes[node])
            continue
        shard.generation += 1
        staying.append(member_of(node, shard.generation))
    shard.plan, shard.wanted, shard.settled = shard.plan + 1, tuple(staying), False
    shard.kept = tuple(dict.fromkeys((*shard.kept, *staying)))
    state.revision = index


def give_up(state: State, node: int) -> None:
    """Note that what a node had is lost with its directory."""
    for shard in state.shards.values():
        gone = [each for each in shard.kept if node_of(each) == node]
        shard.lost = tuple(dict.fromkeys((*shard.lost, *gone)))


def _require_plan(shard: ShardPlace, expected: int | None) -> None:
    if expected not in (None, shard.plan):
        msg = (
            f"shard {shard.stream} is at plan {shard.plan}, not {expected}: who "
            "belongs to it was changed meanwhile. Look, then decide again"
        )
        raise FencedError(msg, given=expected or 0, current=shard.plan)


def _require_shard(state: State, stream: int) -> ShardPlace:
    found = state.shards.get(stream)
    if found is None:
        raise NotFoundError(f"shard {stream} does not exist")
    return found
