"""The configuration of the cluster: who is listed as failed, who is viable.

*Theory of operation.* Beside the epochs of the streams there is one configuration for
all nodes. A node is listed before any stream goes on without it because it failed, and
nobody is told of such an epoch who has not recorded that. So whoever finds the newest
records of some nodes knows whom else to wait for: `braidlog.faultlog.rule`. A node that
comes back takes the steps of `braidlog.faultlog.configuration`.

*Invariants.* Numbers rise. Of each stream one of the replicas that hold everything is
viable and not listed, unless all of them are listed: then the stream stands still.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from braidlog.errors import FencedError, InvalidArgumentError, UnavailableError
from braidlog.faultlog.configuration import MEMBERS_MAX, Configuration
from braidlog.metarepo.machine.state import FaultState, State, StreamState
from braidlog.wire.commands import ChangeFaults
from braidlog.wire.results import Done


def configuration(faults: FaultState) -> Configuration:
    """Return what the nodes record."""
    return Configuration(faults.epoch, faults.sequence, faults.members, faults.failed)


def first(configuration: Configuration, awaited: tuple[int, ...] = ()) -> FaultState:
    """Return the state with which a configuration begins."""
    return FaultState(
        configuration.epoch,
        configuration.sequence,
        configuration.members,
        configuration.failed,
        viable=awaited,
        since=dict.fromkeys(configuration.live, configuration.number),
        awaited=awaited,
    )


def is_settled(state: State) -> bool:
    """Tell whether nothing has to wait for the end of a rescue."""
    return state.faults is None or not state.faults.awaited


def require_settled(state: State) -> None:
    """Refuse what has to wait for the end of a rescue.

    Raises:
        UnavailableError: not all nodes have said what they hold.
    """
    if state.faults is not None and state.faults.awaited:
        names = ", ".join(map(str, state.faults.awaited))
        msg = f"the rescue of the cluster is not finished: start nodes {names} first"
        raise UnavailableError(msg)


def change(state: State, index: int, command: ChangeFaults) -> Done:
    """Apply `ChangeFaults`."""
    known = state.faults
    if known is None:
        state.faults = first(Configuration(1, 0, tuple(sorted(command.joined))))
        state.revision = index
        return Done()
    if known.number != (command.epoch, command.sequence):
        msg = f"the configuration is {known.number}"
        raise FencedError(msg, given=command.sequence, current=known.sequence)
    require_settled(state)
    if command.viable:
        _require(set(command.viable) <= set(configuration(known).live), "not listed")
        known.viable = tuple(sorted({*known.viable, *command.viable}))
    else:
        _next(state, known, command)
    state.revision = index
    return Done()


def _next(state: State, known: FaultState, command: ChangeFaults) -> None:
    _require(set(command.failed) <= set(known.members), "members")
    _require(set(command.back) <= set(known.failed), "listed")
    if command.failed and not listable(state, command.failed):
        raise InvalidArgumentError(
            f"without nodes {list(command.failed)} no viable node would hold everything"
        )
    members = {*known.members, *command.joined}
    failed = {*known.failed, *command.failed} - set(command.back)
    if state.streams:
        # Somebody may have acknowledged what a new node lacks.
        failed |= set(command.joined) - set(known.members)
    new = Configuration(
        known.epoch,
        known.sequence + 1,
        tuple(sorted(members)),
        tuple(sorted(failed)),
    )
    _become(known, new)


def _become(known: FaultState, new: Configuration) -> None:
    fresh = set(new.live) - set(configuration(known).live)
    known.sequence, known.members, known.failed = new.sequence, new.members, new.failed
    known.viable = tuple(node for node in known.viable if node in new.live)
    known.since = {
        node: new.number if node in fresh else known.since[node] for node in new.live
    }


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise InvalidArgumentError(f"a change of nodes that are not {what}")


def forget(state: State, node: int) -> None:
    """Take a node that was removed out of the configuration.

    Raises:
        InvalidArgumentError: nobody viable would be left.
    """
    known = state.faults
    if known is None or node not in known.members:
        return
    viable = set(known.viable) - {node}
    if not viable:
        raise InvalidArgumentError(f"no viable node would be left without node {node}")
    members = tuple(each for each in known.members if each != node)
    failed = tuple(each for each in known.failed if each != node)
    _become(known, Configuration(known.epoch, known.sequence + 1, members, failed))


def is_listed(state: State, node: int) -> bool:
    """Tell whether a node is listed as failed."""
    return state.faults is not None and node in state.faults.failed


def is_full(state: State, node: int) -> bool:
    """Tell whether there is no room for a node in a configuration."""
    members = state.faults.members if state.faults else ()
    return node not in members and len(members) >= MEMBERS_MAX


def listable(state: State, nodes: Iterable[int]) -> bool:
    """Tell whether these may be listed: each stream keeps a viable replica.

    A stream of which nobody is left stands still anyway, and does not keep the others
    from going on.
    """
    known = state.faults
    if known is None:
        return False
    gone = {*known.failed, *nodes}
    viable = set(known.viable) - gone
    if not viable:
        return False
    return all(
        not (left := set(stream.holders) - gone) or left & viable
        for stream in state.streams.values()
    )


def holds(state: State, stream: StreamState, holders: Collection[int]) -> bool:
    """Tell whether an epoch with these holders keeps a viable one, if there is any."""
    known = state.faults
    if known is None:
        return True
    viable = set(known.viable)
    return bool(viable & set(holders)) or not viable & set(stream.holders)
