"""Which nodes keep which table.

*Theory of operation.* A table has as many hosts as it should have, on nodes that live
and are not drained. A host that is dead is replaced only after `patience`: a new one
copies the whole table, and a node that restarts is back long before. A node that is
drained, or whose directory is lost, is replaced at once; it stays a host until another
one has joined, because clients may need it and the new one copies from it.

*Invariants.* The last host that has all of a table stays one, dead or not. One change
of a table is under way at a time: each names the hosts that it was made for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from braidlog.metarepo.machine.state import State
from braidlog.metarepo.machine.tables import hosts_wanted, place
from braidlog.wire.commands import PlaceHosts
from braidlog.wire.tables import TableInfo

__all__ = ["Hosting"]


class Hosting:
    """Decides; never executes."""

    def __init__(self, patience: float) -> None:
        """Wait ``patience`` seconds for a host that is dead."""
        self._patience = patience
        self._dead_since: dict[int, float] = {}
        self.calm = True
        """Whether time alone will bring nothing to do."""

    def decide(
        self, state: State, dead: Callable[[int], bool], now: float
    ) -> list[PlaceHosts]:
        """Return the changes that are due."""
        if not state.tables:
            self.calm = True
            return []
        for node in state.nodes:
            if dead(node):
                self._dead_since.setdefault(node, now)
            else:
                self._dead_since.pop(node, None)
        for gone in self._dead_since.keys() - state.nodes.keys():
            del self._dead_since[gone]
        leaving = {
            node.node
            for node in state.nodes.values()
            if node.draining
            or node.readmitting
            or now - self._dead_since.get(node.node, now) >= self._patience
        }
        # A rescue may have left nodes out.
        kept = {node for table in state.tables.values() for node in table.hosts}
        leaving |= kept - state.nodes.keys()
        takers = [
            node
            for node in state.nodes
            if node not in leaving and node not in self._dead_since
        ]
        placed = [table.hosts for table in state.tables.values()]
        commands = []
        waits = bool(self._dead_since)
        for table in state.tables.values():
            hosts = _hosts(state, placed, table, leaving, takers)
            short = len(set(hosts) - leaving) < hosts_wanted(state, table)
            waits |= short or len(table.joined) < len(table.hosts)
            if hosts != table.hosts:
                commands.append(PlaceHosts(table.table, table.hosts, hosts))
                placed.append(hosts)
        self.calm = not waits and not commands
        return commands


def _hosts(
    state: State,
    placed: Sequence[tuple[int, ...]],
    table: TableInfo,
    leaving: set[int],
    takers: list[int],
) -> tuple[int, ...]:
    """Return the hosts that a table should have now."""
    wanted = hosts_wanted(state, table)
    staying = [node for node in table.hosts if node not in leaving]
    more = [node for node in takers if node not in table.hosts]
    if len(staying) < wanted and more:
        return (*table.hosts, *place(state, placed, more, wanted - len(staying)))
    joined = [node for node in staying if node in table.joined]
    # There are more than wanted where one that was gone for long came back.
    extra = {*joined[wanted:]}
    staying = [node for node in staying if node not in extra]
    # Whoever leaves is needed until as many others have all that it has.
    if len(joined) >= min(wanted, max(1, len(staying))):
        return tuple(staying)
    return table.hosts
