"""The leader's part of the fault logs: who recorded what, and what comes next.

*Theory of operation.* Nodes say what their fault logs have, after each record and with
each heartbeat. Who lacks the current configuration is sent it again and again, and no
configuration of a stream before: so nobody enters an epoch before the configuration
under which it was decided is durable there. A node that is not viable is told last.

*Invariants.* One change of the configuration is under way at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from braidlog.faultlog.configuration import MEMBERS_MAX
from braidlog.metarepo.leader.collector import Collector
from braidlog.metarepo.machine import faults
from braidlog.metarepo.machine.state import FaultState, State
from braidlog.wire.commands import ChangeFaults
from braidlog.wire.messages import Faults, Recorded

RESEND_SECONDS: Final = 0.1

_NOTHING: Final = (0, 0)


class FaultRecording:
    """Soft state of one leader."""

    def __init__(self) -> None:
        """Know of no record."""
        self._recorded: dict[int, Recorded] = {}
        self._sent: dict[int, tuple[Faults, float]] = {}
        self._pending = 0

    def take(self, message: Recorded) -> bool:
        """Note what a node recorded, which only goes forward; tell if it is news."""
        known = self._recorded.get(message.node)
        if known is not None and _order(message) <= _order(known):
            return False
        self._recorded[message.node] = message
        return True

    def forget(self, node: int) -> None:
        """Drop what a node said: it comes back with an empty directory."""
        self._recorded.pop(node, None)
        self._sent.pop(node, None)

    def begun(self, index: int) -> None:
        """Note a change that is in the log."""
        self._pending = index

    def applied(self, index: int) -> None:
        """Note that it was applied."""
        if index == self._pending:
            self._pending = 0

    def knows(self, state: State, node: int) -> bool:
        """Tell whether a node recorded the current configuration."""
        known = state.faults
        return known is not None and self._number(node) >= known.number

    def _number(self, node: int) -> tuple[int, int]:
        said = self._recorded.get(node)
        return (said.epoch, said.sequence) if said else _NOTHING

    # --- what comes next

    def decide(
        self, state: State, dead: Callable[[int], bool], alive: Callable[[int], bool]
    ) -> ChangeFaults | None:
        """Return the next change of the configuration, or None."""
        known = state.faults
        if self._pending:
            return None
        if known is None:
            joined = tuple(state.nodes)
            return ChangeFaults(0, 0, joined=joined) if joined else None
        if known.awaited:
            return None
        at = known.number
        joined = tuple(node for node in state.nodes if node not in known.members)
        if joined := joined[: MEMBERS_MAX - len(known.members)]:
            return ChangeFaults(*at, joined=joined)
        if failed := _failed(state, known, dead):
            return ChangeFaults(*at, failed=failed)
        if viable := tuple(node for node in state.nodes if self._is_new(known, node)):
            return ChangeFaults(*at, viable=viable)
        back = tuple(
            node for node in known.failed if alive(node) and self._is_back(known, node)
        )
        return ChangeFaults(*at, back=back[:1]) if back else None

    def _is_new(self, known: FaultState, node: int) -> bool:
        said = self._recorded.get(node)
        if said is None or node in known.failed or node in known.viable:
            return False
        return said.viable and self._number(node) >= known.since[node]

    def _is_back(self, known: FaultState, node: int) -> bool:
        said = self._recorded.get(node)
        return said is not None and self._number(node) == known.number

    # --- what the nodes are told

    def messages(
        self, state: State, collector: Collector, now: float
    ) -> Iterator[tuple[int, Faults]]:
        """Return what nodes that were heard of have to record now."""
        known = state.faults
        if known is None:
            return
        for gone in self._recorded.keys() - set(known.members):
            del self._recorded[gone]
        settled = all(self._number(node) >= known.number for node in known.viable)
        for node in known.members:
            if node not in collector.reports or node not in state.nodes:
                continue
            message = self._lacks(state, known, collector, node)
            # Who has recorded it was told when all viable nodes had, so it may become
            # viable even if one of them has died since and this leader never heard it.
            waits = message is not None and not message.viable and not settled
            if waits and node not in known.viable:
                continue
            if message is not None and self._is_due(node, message, now):
                yield node, message

    def _lacks(
        self, state: State, known: FaultState, collector: Collector, node: int
    ) -> Faults | None:
        said = self._recorded.get(node)
        lacks = self._number(node) < known.number
        viable = (
            node not in known.failed
            and node not in known.viable
            and not lacks
            and said is not None
            and not said.viable
            and _is_complete(state, collector, node)
        )
        if not lacks and not viable:
            return None
        return Faults(*known.number, known.members, known.failed, viable)

    def _is_due(self, node: int, message: Faults, now: float) -> bool:
        sent, at = self._sent.get(node, (None, 0.0))
        if sent == message and now - at < RESEND_SECONDS:
            return False
        self._sent[node] = message, now
        return True


def _order(message: Recorded) -> tuple[int, int, bool]:
    return message.epoch, message.sequence, message.viable


def _failed(
    state: State, known: FaultState, dead: Callable[[int], bool]
) -> tuple[int, ...]:
    """Return the members that died, if all of them may be listed.

    Listing some of them would leave a viable one that is dead, and nobody who is not
    viable yet could be told of it, or ever become viable.
    """
    gone = tuple(n for n in known.members if n not in known.failed and dead(n))
    return gone if gone and faults.listable(state, gone) else ()


def _is_complete(state: State, collector: Collector, node: int) -> bool:
    """Tell whether all replicas of a node are members of the epochs of their streams.

    Who entered an epoch has all before it, and nothing behind it is acknowledged
    without it.
    """
    for stream in state.streams.values():
        if node in stream.learners:
            return False
        if node in stream.replicas and node not in collector.entered(stream):
            return False
    known = collector.node(node)
    return known is not None and known.full
