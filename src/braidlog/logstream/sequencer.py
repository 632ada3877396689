"""The primary: gives positions, writes, replicates, answers.

A batch gets the next LLSNs, is written here and sent to all backups at once. It is
answered when it is committed. A repeat of a producer's batch gets no new position: it
is answered with the first one, when that is committed and not before.

*Invariants.* Only a replica that has durably entered the epoch as its first gives
positions. A request is answered once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from braidlog.errors import (
    InvalidArgumentError,
    LogError,
    NotPrimaryError,
    NotReadyError,
    OlderNodesError,
    SealedError,
    SequenceExpiredError,
    StoreFailedError,
)
from braidlog.logstream.core import Core, Waiter
from braidlog.logstream.effects import Request
from braidlog.logstream.errors import fail
from braidlog.logstream.states import ReplicaState
from braidlog.logstream.storage import Batch, Placed
from braidlog.wire.features import needed
from braidlog.wire.messages import Appended, Replicate, Run, StreamStatus

__all__ = ["append", "give_up", "probe", "release", "repeated"]

Item: TypeAlias = tuple[Request, Batch]


def append(
    core: Core, group: Sequence[tuple[Request, int, Batch]], *, repeat: bool
) -> None:
    """Place the batches of a group: (request, epoch, batch)."""
    admitted: list[Item] = []
    size = core.waiting_bytes
    # Nothing changes in between, and all that came together say the same epoch.
    epochs = {epoch for _, epoch, _ in group}
    refusals = {epoch: _refusal(core, epoch) for epoch in epochs}
    for request, epoch, batch in group:
        refusal = (
            refusals[epoch] or _unknown(core, batch) or _overflow(core, size, batch)
        )
        if refusal is not None:
            core.answer(request, refusal)
            continue
        admitted.append((request, batch))
        size += len(batch)
    if admitted:
        _replicate(core, _place(core, admitted, repeat=repeat))


def _refusal(core: Core, epoch: int) -> LogError | None:
    config = core.config
    if config is None or core.stopped or core.state is ReplicaState.LEARNING:
        primary = config.replicas[0] if config else 0
        if primary in (0, core.node):
            return NotReadyError(
                f"the replica of stream {core.stream} on this node takes no appends "
                f"now (state {core.state.name.lower()})"
            )
        return _not_primary(core, primary)
    if config.status is StreamStatus.SEALED:
        return SealedError(f"stream {core.stream} is sealed", epoch=config.epoch)
    if not core.is_primary:
        return _not_primary(core, config.replicas[0])
    if core.state is not ReplicaState.RUNNING:
        return NotReadyError(
            f"the replica of stream {core.stream} on this node takes no appends "
            f"now (state {core.state.name.lower()})"
        )
    if epoch not in (0, config.epoch):
        msg = (
            f"stream {core.stream} is in epoch {config.epoch}, but the append "
            f"was for epoch {epoch}"
        )
        return SealedError(msg, epoch=config.epoch)
    return None


def _not_primary(core: Core, primary: int) -> LogError:
    epoch = core.config.epoch if core.config else 0
    msg = f"node {core.node} is not the primary of stream {core.stream}"
    return NotPrimaryError(msg, primary=primary, epoch=epoch)


def _unknown(core: Core, batch: Batch) -> LogError | None:
    needs = needed(batch)
    if not needs or not needs & ~core.features:
        return None
    # A backup that cannot store it would never report it, and the stream stood still.
    msg = (
        "the append has null values, and some node of the cluster may be of a version "
        "without them"
    )
    return OlderNodesError(msg)


def _overflow(core: Core, waiting: int, batch: Batch) -> LogError | None:
    limit = core.limits.uncommitted_bytes_max
    if waiting and waiting + len(batch) > limit:
        msg = f"{waiting} bytes of stream {core.stream} wait for commits, at most"
        return NotReadyError(f"{msg} {limit} may")
    return None


def _place(
    core: Core, items: Sequence[Item], *, repeat: bool
) -> list[tuple[Placed, Batch]]:
    """Write what can be written; return what is new."""
    batches = [batch for _, batch in items]
    try:
        placed = core.storage.append(core.epoch, batches, repeat=repeat)
    except StoreFailedError:
        raise
    except LogError as error:
        if len(items) == 1:
            core.answer(items[0][0], error)
            return []
        # One bad batch must not refuse the others: nothing was written, so each alone.
        return [new for item in items for new in _place(core, [item], repeat=repeat)]
    if len(placed) != len(items):
        fail("the storage lost a batch of a group")
    before = core.next
    core.wrote()
    new = []
    for (request, batch), place in zip(items, placed, strict=True):
        if place.new:
            if place.llsn != before:
                fail("the storage left an LLSN out")
            before += place.count
            new.append((place, batch))
        _wait(core, request, place, batch)
    if before != core.next:
        fail("the storage placed more than it says")
    return new


def _wait(core: Core, request: Request, place: Placed, batch: Batch) -> None:
    if place.new:
        core.wait(request, place.llsn, place.count, len(batch))
    else:
        repeated(core, request, place.llsn, place.count)


def repeated(core: Core, request: Request, llsn: int, count: int) -> None:
    """Answer a batch that was stored before, when it is committed."""
    waiter = Waiter(request, llsn, count)
    if waiter.end <= core.committed:
        _answer_stored(core, waiter)
    else:
        core.repeats.append(waiter)


def _answer_stored(core: Core, waiter: Waiter) -> None:
    runs = core.storage.runs(waiter.llsn, waiter.end)
    if not runs or runs[0].llsn_begin != waiter.llsn:
        msg = f"the record at LLSN {waiter.llsn} of stream {core.stream} was trimmed"
        core.answer(waiter.request, SequenceExpiredError(msg))
        return
    _answer(core, waiter, runs[0])


def _answer(core: Core, waiter: Waiter, run: Run) -> None:
    if waiter.llsn < run.llsn_begin or waiter.end > run.llsn_begin + run.length:
        # A client may repeat in one batch what it sent in several, and only each of
        # those is in one cut as a whole.
        msg = (
            f"the {waiter.count} records at LLSN {waiter.llsn} of stream {core.stream} "
            "were stored by several appends; retry each with the records that it had"
        )
        core.answer(waiter.request, InvalidArgumentError(msg))
        return
    glsn = run.glsn_begin + waiter.llsn - run.llsn_begin
    appended = Appended(waiter.llsn, glsn, waiter.count, core.version)
    core.answer(waiter.request, appended)


def _replicate(core: Core, placed: Sequence[tuple[Placed, Batch]]) -> None:
    if not placed or core.config is None:
        return
    batches = [batch for _, batch in placed]
    sizes = tuple(len(batch) for batch in batches)
    message = Replicate(core.stream, core.epoch, placed[0][0].llsn, sizes)
    for node in core.config.replicas[1:]:
        core.send(node, message, batches)


def release(core: Core, run: Run) -> None:
    """Answer the appends that a run committed."""
    released = core.release(run.llsn_begin, run.glsn_begin, run.length)
    for request, llsn, glsn, count in released:
        core.answer(request, Appended(llsn, glsn, count, core.version))
    if not core.repeats:
        return
    ready = [waiter for waiter in core.repeats if waiter.end <= core.committed]
    if ready:
        core.repeats = [w for w in core.repeats if w.end > core.committed]
        for waiter in ready:
            _answer(core, waiter, run)


def give_up(core: Core, llsn: int, epoch: int, *, unknown: bool) -> None:
    """Refuse the appends from `llsn` on, because their epoch is over."""
    gone = core.give_up(llsn)
    gone += [waiter.request for waiter in core.repeats if waiter.llsn >= llsn]
    core.repeats = [waiter for waiter in core.repeats if waiter.llsn < llsn]
    for request in gone:
        msg = f"epoch {epoch} of stream {core.stream} ended before the append"
        error = SealedError(f"{msg} was committed", epoch=epoch, unknown=unknown)
        core.answer(request, error)


def probe(core: Core) -> None:
    """Remind the backups of how far the primary is, if commits are overdue.

    A message that was lost would be missed only with the next one otherwise.
    """
    if not core.waiting or core.now < core.probe_at or core.config is None:
        return
    if core.state is ReplicaState.RUNNING:
        core.probe_at = core.now + core.limits.probe_interval
        message = Replicate(core.stream, core.epoch, core.next, ())
        for node in core.config.replicas[1:]:
            core.send(node, message)
