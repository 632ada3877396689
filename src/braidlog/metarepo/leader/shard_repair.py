"""Who should belong to which shard.

*Theory of operation.* A shard goes on by itself as long as a majority of it lives, so
nothing here is urgent. A member whose node is dead is replaced only after `patience`: a
node that restarts is back long before, with all it had. One whose node is drained,
whose directory was given up or whose log is damaged is replaced at once. Whoever is to
go stays until the new one has everything: the group changes both in one step. Where no
other node can take the new member, nothing changes; but a node that lost its directory,
or has damage in the log, gets its member anew.

A decision that cannot be carried out, because somebody who was to learn is dead or is
drained by now, is replaced by another one.

*Invariants.* One decision about a shard is under way at a time. No decision takes a
member away without another in its place, but when there are more than the log asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from braidlog.metarepo.events import Event, EventName, Value
from braidlog.metarepo.machine.placement import Loads
from braidlog.metarepo.machine.state import ShardPlace, State
from braidlog.wire.commands import PlaceShard
from braidlog.wire.members import NODE_END, node_of, nodes_of

__all__ = ["ShardRepair"]


@dataclass(slots=True)
class _Watch:
    """Soft memory of one shard."""

    lacking: float | None = None
    """Since when it has not had all it should have."""
    why: str = ""
    told: EventName | None = None


class ShardRepair:
    """Decides; never executes."""

    def __init__(self, patience: float) -> None:
        """Wait ``patience`` seconds for a member whose node is dead."""
        self._patience = patience
        self._dead_since: dict[int, float] = {}
        self._watches: dict[int, _Watch] = {}
        self._events: list[Event] = []
        self.calm = True
        """Whether time alone will bring nothing to do."""

    def decide(
        self,
        state: State,
        dead: Callable[[int], bool],
        now: float,
        pending: Collection[int] = (),
        *,
        unfit: Collection[int] = (),
    ) -> list[PlaceShard]:
        """Return decisions for shards of which none is under way.

        Nodes that are ``unfit`` take no members.
        """
        self._notice(state, dead, now)
        if not state.shards:
            self.calm = True
            return []
        leaving = self._leaving(state, now)
        takers = [
            node
            for node in state.nodes
            if node not in leaving
            and node not in self._dead_since
            and node not in unfit
            and node < NODE_END
        ]
        loads = Loads(state)
        commands: list[PlaceShard] = []
        calm = True
        for shard in state.shards.values():
            whole = self._judge(state, shard, now)
            calm &= whole
            if shard.stream in pending:
                continue
            command = self._next(state, shard, leaving, takers, loads)
            if command is not None:
                commands.append(command)
        self.calm = calm and not commands
        return commands

    def lacking(self, stream: int, now: float) -> tuple[float, str]:
        """Return for how many seconds a shard has lacked something, and what."""
        watch = self._watches.get(stream)
        if watch is None or watch.lacking is None:
            return 0.0, ""
        return max(0.0, now - watch.lacking), watch.why

    def take_events(self) -> list[Event]:
        """Return which shards have become whole, degraded or unavailable."""
        events, self._events = self._events, []
        return events

    # --- what is known

    def _notice(self, state: State, dead: Callable[[int], bool], now: float) -> None:
        for node in state.nodes:
            if dead(node):
                self._dead_since.setdefault(node, now)
            else:
                self._dead_since.pop(node, None)
        for gone in self._dead_since.keys() - state.nodes.keys():
            del self._dead_since[gone]
        for gone in self._watches.keys() - state.shards.keys():
            del self._watches[gone]

    def _leaving(self, state: State, now: float) -> set[int]:
        """Return the nodes whose members have to go elsewhere."""
        return {
            node.node
            for node in state.nodes.values()
            if node.draining
            or node.readmitting
            or now - self._dead_since.get(node.node, now) >= self._patience
        }

    def _goes(self, state: State, shard: ShardPlace, leaving: set[int]) -> list[int]:
        """Return the members that should vote, and cannot for long."""
        return [
            member
            for member in shard.wanted
            if member in shard.lost
            or (member in shard.damaged and len(shard.voters) > 1)
            or node_of(member) in leaving
            or node_of(member) not in state.nodes
        ]

    # --- what to do

    def _next(
        self,
        state: State,
        shard: ShardPlace,
        leaving: set[int],
        takers: list[int],
        loads: Loads,
    ) -> PlaceShard | None:
        goes = self._goes(state, shard, leaving)
        if not shard.settled:
            # Whoever votes already is no reason: the decision is about to replace it,
            # or the next one will.
            goes = [each for each in goes if each not in shard.voters]
            if not goes:
                return None
        wanted = state.logs[shard.log].replication
        count = len(shard.wanted)
        taken = nodes_of(each for each in shard.kept if each not in shard.lost)
        able = loads.lightest(node for node in takers if node not in taken)
        # Nobody else may be there: then it begins anew where it is damaged.
        whole = nodes_of({*shard.kept} - {*shard.lost, *shard.damaged})
        able += [node for node in takers if node in taken and node not in whole]
        # Who is about to leave for one that cannot come may stay.
        stays = nodes_of(
            each
            for each in shard.voters
            if each not in {*shard.wanted, *shard.lost, *shard.damaged}
        )
        lightest = [*(node for node in stays if node in takers), *able]
        add = tuple(lightest[: max(0, wanted - count + len(goes))])
        drop = tuple(goes[: max(0, count + len(add) - wanted)])
        if len(drop) < count - wanted and shard.settled:
            drop = self._surplus(shard, goes, count - wanted)
        if not shard.settled and not drop:
            # Nobody else can learn. Who may come back is waited for.
            gone = [each for each in goes if self._hopeless(state, shard, each)]
            drop = tuple(gone) if len(gone) < count else ()
        if not add and not drop:
            return None
        loads.replicas.update(add)
        return PlaceShard(shard.stream, shard.plan, add, drop)

    def _hopeless(self, state: State, shard: ShardPlace, member: int) -> bool:
        node = state.nodes.get(node_of(member))
        if node is None or member in shard.lost:
            return True
        return node.draining and node.node in self._dead_since

    def _surplus(
        self, shard: ShardPlace, goes: list[int], count: int
    ) -> tuple[int, ...]:
        """Return members that are too many: those that leave anyway, then the last."""
        latest_first = list(reversed(shard.wanted))
        order = sorted(
            latest_first,
            key=lambda each: (each not in goes, node_of(each) == shard.leader),
        )
        return tuple(order[:count])

    # --- what to tell

    def _judge(self, state: State, shard: ShardPlace, now: float) -> bool:
        """Note how a shard stands; tell whether it has all it should have."""
        log = state.logs[shard.log]
        watch = self._watches.setdefault(shard.stream, _Watch())
        why, short = self._why(state, shard, log.replication)
        told: EventName | None = None
        if why:
            told = "stream_unavailable" if short else "stream_degraded"
            if watch.lacking is None:
                watch.lacking = now
        since, watch.why = watch.lacking, why
        if not why:
            watch.lacking = None
        if told != watch.told:
            watch.told = told
            lasted = now - (now if since is None else since)
            self._events += self._news(shard, log.name, told, why, lasted)
        return not why

    def _why(
        self, state: State, shard: ShardPlace, replication: int
    ) -> tuple[str, bool]:
        """Return what a shard lacks, and whether it cannot take appends for it."""
        gone = [
            each
            for each in shard.voters
            if each in shard.lost
            or node_of(each) in self._dead_since
            or node_of(each) not in state.nodes
        ]
        short = 2 * len(gone) >= len(shard.voters)
        if gone:
            nodes = ", ".join(str(node) for node in nodes_of(gone))
            what = f"{len(gone)} of {len(shard.voters)} members are down (node {nodes})"
            return what, short
        if shard.damaged:
            nodes = ", ".join(str(node) for node in nodes_of(shard.damaged))
            return f"the log of its member on node {nodes} is damaged", False
        if not shard.settled:
            return "its members are being changed", False
        if len(shard.wanted) < replication:
            missing = replication - len(shard.wanted)
            return f"it lacks {missing} of {replication} members", False
        draining = [
            node
            for node in nodes_of(shard.wanted)
            if node in state.nodes and state.nodes[node].draining
        ]
        if draining:
            return f"node {draining[0]} is drained and no other can take over", False
        return "", False

    def _news(
        self,
        shard: ShardPlace,
        name: str,
        told: EventName | None,
        why: str,
        lasted: float,
    ) -> Iterator[Event]:
        fields: dict[str, Value] = {
            "stream": shard.stream,
            "log": name,
            "epoch": shard.term,
            "reason": why,
        }
        text = f"shard {shard.stream} of {name} "
        if told is None:
            text += f"has all its members again, after {lasted:.2f} s"
        elif told == "stream_unavailable":
            text += f"takes no appends, because {why}"
        else:
            text += f"is degraded, because {why}"
        yield Event(told or "stream_whole", text, fields, told is not None)
