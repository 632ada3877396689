"""Commands about streams: epochs, learners, moves.

*Theory of operation.* An epoch begins with the entry that ends the one before: `start`
is what is committed there, and no cut of the old epoch applies from then on. All
replicas of the old epoch hold everything before `start` if they ever entered it; a
replica that was named and never came does not. So the state remembers `holders`, and an
epoch has at least one of them: a leader says who entered, and a cut says so of all.

*Invariants.* Epochs rise by one. Replicas of an epoch were replicas of the one before,
or learners that had nearly everything. `holders` are replicas, at least one.
"""

from __future__ import annotations

from braidlog.errors import FencedError, InvalidArgumentError, NotFoundError
from braidlog.metarepo.machine import faults
from braidlog.metarepo.machine.errors import check
from braidlog.metarepo.machine.nodes import require_node
from braidlog.metarepo.machine.state import EPOCHS_MAX, REPLICAS_MAX, State, StreamState
from braidlog.wire.commands import (
    AddLearner,
    DropLearner,
    MoveReplica,
    Reconfigure,
    Seal,
    Unseal,
)
from braidlog.wire.messages import StreamStatus
from braidlog.wire.results import Done, Epoch


def require_stream(state: State, stream: int) -> StreamState:
    """Return a stream that must exist.

    Raises:
        NotFoundError: it does not.
        InvalidArgumentError: it is a shard.
    """
    found = state.streams.get(stream)
    if found is None and stream in state.shards:
        msg = f"stream {stream} is a shard, with which this cannot be done"
        raise InvalidArgumentError(msg)
    if found is None:
        raise NotFoundError(f"stream {stream} does not exist")
    return found


def _expected_stream(
    state: State, command: AddLearner | DropLearner | MoveReplica | Seal | Unseal
) -> StreamState:
    """Return the stream of a command that was decided for its epoch.

    Raises:
        NotFoundError: it does not exist.
        FencedError: it is in another epoch.
    """
    stream = require_stream(state, command.stream)
    if command.expected not in (None, stream.epoch):
        msg = (
            f"stream {stream.stream} is in epoch {stream.epoch}, not "
            f"{command.expected}: it was changed meanwhile. Look, then decide again"
        )
        raise FencedError(msg, given=command.expected or 0, current=stream.epoch)
    return stream


def fewest_replicas(state: State, stream: StreamState) -> int:
    """Return how many replicas the next epoch of a stream needs.

    A stream of which a rescue found fewer than its log asks for goes on with them.
    """
    return min(state.logs[stream.log].min_replicas, len(stream.replicas))


def reconfigure(state: State, index: int, command: Reconfigure) -> Epoch:
    """Apply `Reconfigure`."""
    stream = require_stream(state, command.stream)
    if command.expected != stream.epoch:
        msg = f"stream {stream.stream} is in epoch {stream.epoch} by now"
        raise FencedError(msg, given=command.expected, current=stream.epoch)
    holders = _holders(stream, command)
    _require_replicas(state, stream, command)
    if not holders:
        raise InvalidArgumentError(
            f"none of the nodes {list(command.replicas)} is known to hold all "
            "committed records"
        )
    if not faults.holds(state, stream, holders):
        raise InvalidArgumentError(
            f"none of the nodes {list(holders)} is viable, while other nodes "
            "hold everything"
        )
    _require_not_removed(state, stream, command.status)
    begin(state, index, stream, command.status)
    stream.replicas, stream.learners = command.replicas, command.learners
    stream.holders = holders
    _settle_move(stream)
    return Epoch(stream.stream, stream.epoch, stream.start)


def _holders(stream: StreamState, command: Reconfigure) -> tuple[int, ...]:
    entered = set(command.entered) & set(stream.replicas)
    return tuple(
        node for node in command.replicas if node in {*stream.holders, *entered}
    )


def _require_replicas(state: State, stream: StreamState, command: Reconfigure) -> None:
    named = [*command.replicas, *command.learners]
    if len(set(named)) != len(named) or not command.replicas:
        msg = f"replicas {command.replicas} and learners {command.learners}"
        raise InvalidArgumentError(msg)
    if len(command.replicas) > REPLICAS_MAX or len(command.learners) > REPLICAS_MAX:
        raise InvalidArgumentError(f"{len(named)} replicas and learners")
    for node in named:
        require_node(state, node)
    learned = set(command.learned) & set(stream.learners)
    strange = set(command.replicas) - set(stream.replicas) - learned
    if strange:
        raise InvalidArgumentError(
            f"nodes {sorted(strange)} are neither replicas of the stream nor "
            "learners that have caught up"
        )
    fewest = fewest_replicas(state, stream)
    if len(command.replicas) < fewest and not command.forced:
        raise InvalidArgumentError(
            f"the stream would have {len(command.replicas)} replicas, but at "
            f"least {fewest} are needed"
        )


def begin(state: State, index: int, stream: StreamState, status: StreamStatus) -> None:
    """End the epoch, and begin the next one where the commits are."""
    check(stream.start <= stream.committed, "an epoch began behind what is committed")
    log = state.logs[stream.log]
    ended = (stream.epoch, stream.start)
    stream.epochs = (*stream.epochs, ended)[-EPOCHS_MAX:]
    stream.epoch += 1
    stream.start = stream.committed
    stream.status = status
    stream.version, stream.high_watermark = log.version, log.high_watermark
    stream.changed = state.revision = index


def _settle_move(stream: StreamState) -> None:
    """Forget a move that is done or cannot be."""
    if stream.move is None:
        return
    source, target = stream.move
    there = {*stream.replicas, *stream.learners}
    if source not in stream.replicas or target not in there:
        stream.move = None


def seal(state: State, index: int, command: Seal) -> Epoch:
    """Apply `Seal`."""
    return _set_status(state, index, command, StreamStatus.SEALED)


def unseal(state: State, index: int, command: Unseal) -> Epoch:
    """Apply `Unseal`."""
    return _set_status(state, index, command, StreamStatus.RUNNING)


def _set_status(
    state: State, index: int, command: Seal | Unseal, status: StreamStatus
) -> Epoch:
    stream = _expected_stream(state, command)
    _require_not_removed(state, stream, status)
    if stream.status is not status:
        begin(state, index, stream, status)
    return Epoch(stream.stream, stream.epoch, stream.start)


def _require_not_removed(
    state: State, stream: StreamState, status: StreamStatus
) -> None:
    spread = state.logs[stream.log].spread
    removed = spread is not None and any(n == stream.stream for n, _ in spread.removed)
    if removed and status is not StreamStatus.SEALED:
        raise InvalidArgumentError(
            f"stream {stream.stream} was removed: it is sealed for good, and is read "
            "until its last record is trimmed"
        )


def add_learner(state: State, index: int, command: AddLearner) -> Done:
    """Apply `AddLearner`."""
    stream = _expected_stream(state, command)
    _add(state, index, stream, command.node)
    return Done()


def _add(state: State, index: int, stream: StreamState, node: int) -> None:
    require_node(state, node)
    if node in stream.replicas:
        msg = f"node {node} has a replica of stream {stream.stream} already"
        raise InvalidArgumentError(msg)
    if node in stream.learners:
        return
    if len(stream.learners) >= REPLICAS_MAX:
        msg = f"stream {stream.stream} has {REPLICAS_MAX} learners, the maximum"
        raise InvalidArgumentError(msg)
    stream.learners = (*stream.learners, node)
    stream.changed = state.revision = index


def drop_learner(state: State, index: int, command: DropLearner) -> Done:
    """Apply `DropLearner`."""
    stream = _expected_stream(state, command)
    if command.node in stream.learners:
        kept = tuple(node for node in stream.learners if node != command.node)
        stream.learners = kept
        stream.changed = state.revision = index
        _settle_move(stream)
    return Done()


def move(state: State, index: int, command: MoveReplica) -> Done:
    """Apply `MoveReplica`."""
    stream = _expected_stream(state, command)
    wanted = command.source, command.target
    if stream.move == wanted:
        return Done()
    if stream.move is not None:
        raise InvalidArgumentError(
            f"stream {stream.stream} is being moved from node {stream.move[0]} "
            f"to node {stream.move[1]} already: wait until that is done"
        )
    if command.source not in stream.replicas:
        msg = f"node {command.source} has no replica of stream {stream.stream}"
        raise InvalidArgumentError(msg)
    if require_node(state, command.target).draining:
        msg = f"node {command.target} is being drained, so it takes no replicas"
        raise InvalidArgumentError(msg)
    _add(state, index, stream, command.target)
    stream.move = wanted
    state.revision = index
    return Done()
