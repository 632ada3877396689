"""Which nodes keep which table.

*Theory of operation.* A table has as many hosts as it should have, on nodes that live
and are not drained. A host that is dead is replaced only after `patience`: a new one
copies the whole table, and a node that restarts is back long before. A node that is
drained, or whose directory is lost, is replaced at once; it stays a host until another
one has joined, because clients may need it and the new one copies from it.

A node that is new keeps no tables. While all is well, and some node has kept at least
two tables more than another one for `patience`, a table of it gets the other one as a
host too. When that has joined there is one host too many: one that is dead leaves, or
else the one that keeps most. So one table moves at a time, and each move makes the
difference smaller: once no two nodes differ by more than one, nothing moves.

*Invariants.* The last host that has all of a table stays one, dead or not. One change
of a table is under way at a time: each names the hosts that it was made for. A host
that leaves because there are too many leaves as many as should be that have joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from typing import Final

from braidlog.metarepo.machine.state import State
from braidlog.metarepo.machine.tables import hosts_wanted, place
from braidlog.wire.commands import PlaceHosts
from braidlog.wire.tables import TableInfo

__all__ = ["Hosting"]

_UNEVEN: Final = 2
"""Tables that one node keeps more than another before one of them moves. With one less,
a move would only turn the difference around."""


class Hosting:
    """Decides; never executes."""

    def __init__(self, patience: float) -> None:
        """Wait ``patience`` seconds for a host that is dead."""
        self._patience = patience
        self._dead_since: dict[int, float] = {}
        self._uneven_since: float | None = None
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
        loads = Counter(node for hosts in placed for node in hosts)
        commands = []
        waits = bool(self._dead_since)
        for table in state.tables.values():
            hosts = _hosts(state, placed, loads, table, leaving, takers)
            loads.subtract({*table.hosts} - {*hosts})
            short = len(set(hosts) - leaving) < hosts_wanted(state, table)
            waits |= short or len(table.joined) < len(table.hosts)
            if hosts != table.hosts:
                commands.append(PlaceHosts(table.table, table.hosts, hosts))
                placed.append(hosts)
        if not waits and not commands:
            commands = self._balance(state, loads, takers, now)
            waits = self._uneven_since is not None
        elif self._dead_since:
            self._uneven_since = None
        self.calm = not waits and not commands
        return commands

    def _balance(
        self, state: State, loads: Counter[int], takers: list[int], now: float
    ) -> list[PlaceHosts]:
        """Return what lets another node have a table of one that keeps more of them."""
        move = _move(state, loads, takers)
        if move is None:
            self._uneven_since = None
            return []
        if self._uneven_since is None:
            self._uneven_since = now
        return [move] if now - self._uneven_since >= self._patience else []


def _move(state: State, loads: Counter[int], takers: list[int]) -> PlaceHosts | None:
    """Return the first half of a move: one host more for a table."""
    rising = sorted(takers, key=lambda node: (loads[node], node))
    for taker, giver in product(rising, reversed(rising)):
        if loads[giver] - loads[taker] < _UNEVEN:
            continue
        for table in state.tables.values():
            if giver in table.hosts and taker not in table.hosts:
                hosts = (*table.hosts, taker)
                return PlaceHosts(table.table, table.hosts, hosts)
    return None


def _known(state: State, table: TableInfo) -> tuple[int, ...] | None:
    """Return the hosts without those that a rescue left out: no command may name them.

    None if nothing can be done: nobody else has all of the table, and its log does not
    reach back to where it began.
    """
    known = tuple(node for node in table.hosts if node in state.nodes)
    lost = len(known) < len(table.hosts) and not set(known) & set(table.joined)
    if lost and state.logs[table.log].trim > table.begin:
        return None
    return known


def _hosts(
    state: State,
    placed: Sequence[tuple[int, ...]],
    loads: Counter[int],
    table: TableInfo,
    leaving: set[int],
    takers: list[int],
) -> tuple[int, ...]:
    """Return the hosts that a table should have now."""
    wanted = hosts_wanted(state, table)
    staying = [node for node in table.hosts if node not in leaving]
    more = [node for node in takers if node not in table.hosts]
    if len(staying) < wanted and more:
        stays = _known(state, table)
        if stays is None:
            return table.hosts
        return (*stays, *place(state, placed, more, wanted - len(staying)))
    joined = [node for node in staying if node in table.joined]
    # There are more than wanted where one that was gone for long came back, or one of
    # few tables takes over from one of many.
    ranked = sorted(joined, key=lambda node: (node not in takers, loads[node]))
    extra = {*ranked[wanted:]}
    staying = [node for node in staying if node not in extra]
    # Whoever leaves is needed until as many others have all that it has.
    if len(joined) >= min(wanted, max(1, len(staying))):
        return tuple(staying)
    return table.hosts
