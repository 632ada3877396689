"""Configurations: how a replica leaves one epoch and enters the next.

The records behind what is committed here were written in the epoch that was entered
last. That epoch ended where the next one in the history starts: what lies behind never
was and is dropped; what lies before is committed, even if its commits are still missed.
So after that every record here is true, and the replica fetches the rest up to where
the new epoch starts, writes the epoch, and is in it when that is durable.

A disk may have no room for any of these writes. Each comes before what is remembered of
it, so a configuration or a trim that found no room is as good as not heard: it comes
again, or is tried again.

A replica that was started is in no epoch, not even the one that it wrote last: what it
did behind the last sync is forgotten, and a primary would give positions twice.

*Invariants.* Epochs rise. A member enters an epoch when its log ends, and is committed,
exactly where the epoch starts. Nothing committed is dropped.
"""

from __future__ import annotations

from itertools import pairwise

from braidlog.errors import RemoteProtocolError
from braidlog.logstream import committer, sequencer
from braidlog.logstream.core import Core, Fetching
from braidlog.logstream.errors import check
from braidlog.logstream.states import ReplicaState
from braidlog.wire.messages import StreamConfig, StreamStatus

__all__ = ["advance", "configure", "drop", "invalidate"]


def configure(core: Core, config: StreamConfig) -> None:
    """Become what the configuration says, unless it is old.

    Raises:
        RemoteProtocolError: the configuration contradicts itself.
    """
    _verify(core, config)
    if core.dropped or core.state is ReplicaState.FAILED or _is_old(core, config):
        return
    core.features = config.features
    if core.config is not None and core.config.epoch == config.epoch:
        # Repeated, because the report that this node is in the epoch was not heard yet.
        # Nothing of an epoch changes but the trim, and what all nodes know.
        _require_same(core.config, config)
        core.trim = max(core.trim, config.trim)
        return
    core.trim = max(core.trim, config.trim)
    if core.node in config.replicas:
        if core.state is not ReplicaState.INVALID:
            # An invalid one cannot promise what a member does: it waits until the
            # repository, which hears of it, makes it a learner.
            _become_member(core, config)
    elif core.node in config.learners:
        _become_learner(core, config)
    else:
        end = _end_of_epoch(core, config)
        if end is not None:
            # Of appends that wait it is known which are stored: the others may be
            # repeated elsewhere.
            sequencer.give_up(core, end, core.epoch, unknown=False)
        drop(core)


def _verify(core: Core, config: StreamConfig) -> None:
    history = (*config.epochs, (config.epoch, config.start))
    rising = all(
        low[0] < high[0] and low[1] <= high[1] for low, high in pairwise(history)
    )
    everybody = config.replicas + config.learners
    if config.stream != core.stream or not config.replicas or config.start < 1:
        msg = f"{config} is no configuration of stream {core.stream}"
        raise RemoteProtocolError(msg)
    if not rising or len(set(everybody)) != len(everybody):
        msg = f"{config} has epochs that do not rise, or a node twice"
        raise RemoteProtocolError(msg)


def _require_same(known: StreamConfig, config: StreamConfig) -> None:
    """Refuse a second epoch of the same number: there are two repositories."""
    for field in ("start", "status", "replicas"):
        is_, was = getattr(config, field), getattr(known, field)
        if is_ != was:
            msg = f"epoch {known.epoch} of stream {known.stream} has {field} {was}"
            raise RemoteProtocolError(f"{msg} here, and {is_} there")


def _is_old(core: Core, config: StreamConfig) -> bool:
    if core.config is not None:
        # A learner copies what later epochs committed, too. A configuration that
        # starts below that came late.
        later = core.high_watermark > config.high_watermark
        passed = core.committed > config.start and later
        follows = core.state is ReplicaState.LEARNING and passed
        newer = config.epoch > core.config.epoch
        return config.epoch < core.config.epoch or (newer and follows)
    # A learner gives and promises no position, so it may go on in its epoch.
    learner = core.node in config.learners
    return config.epoch < core.epoch or (config.epoch == core.epoch and not learner)


def _end_of_epoch(core: Core, config: StreamConfig) -> int | None:
    """Return where the epoch ended that was entered last; None: it is forgotten."""
    history = (*config.epochs, (config.epoch, config.start))
    later = [first for epoch, first in history if epoch > core.epoch]
    if not later:
        # No epoch came after it: everything written in it may still be committed.
        return core.next
    if core.epoch == 0:
        # Never in an epoch: nothing behind what is committed was promised to anybody.
        return core.committed
    # A history that begins later does not say where this epoch ended; with nothing
    # uncommitted here there is nothing to be dropped either.
    reaches = core.next == core.committed or history[0][0] <= core.epoch
    return min(later[0], core.next) if reaches else None


def _leave(core: Core, config: StreamConfig, epoch: int, end: int | None) -> None:
    """Answer the appends that the end of an epoch refuses; forget its messages."""
    if end is None:
        # Nobody knows any more which of them were committed.
        sequencer.give_up(core, 0, epoch, unknown=True)
    else:
        sequencer.give_up(core, end, epoch, unknown=False)
    core.config = config
    core.entered = False
    # What the primary of the former epoch announced may never come; that of this one
    # may have been faster than the configuration.
    epoch, end = core.announced
    core.heard_end = end if epoch == config.epoch else 0
    core.behind = False
    core.asked = 0
    core.ask_at = core.now + core.limits.poll_interval
    # An answer to a fetch of the former epoch has another number, and is not taken.
    core.fetching = Fetching(number=core.fetching.number, turn=core.node)
    core.out.report_due = True


def _become_member(core: Core, config: StreamConfig) -> None:
    end = _end_of_epoch(core, config)
    if end is None or config.start < core.committed:
        # Its tail cannot be judged, or it has committed more than the stream had: it
        # is of another history. Nothing here is dropped on its own authority.
        _leave(core, config, core.epoch, end)
        invalidate(core)
        return
    # A copy may hold what later epochs committed than the one it entered last.
    # Dropped before the epoch is entered: a member vouches for all that it has.
    core.rollback(max(end, core.committed))
    _leave(core, config, core.epoch, end)
    core.state = ReplicaState.CATCHING_UP


def _become_learner(core: Core, config: StreamConfig) -> None:
    end, ended = _end_of_epoch(core, config), core.epoch
    # A learner that goes on in its epoch has what was committed since it started.
    newer = config.epoch > core.epoch
    beyond = newer and config.start < core.committed
    if core.state is ReplicaState.INVALID or core.damaged or beyond:
        # What is here is not true, or cannot be read: others have it, so begin anew.
        core.restart(1)
    else:
        # The committed part is true and need not be copied again.
        core.rollback(core.committed if end is None else max(end, core.committed))
    if newer:
        # Written before anything is copied: after a restart the copy must not be taken
        # for what the former epoch left.
        core.storage.enter(config.epoch)
        core.wrote()
    _leave(core, config, ended, end)
    core.entered = True
    core.state = ReplicaState.LEARNING


def advance(core: Core) -> None:
    """Do what has become possible: trim, enter the epoch, serve in it."""
    config = core.config
    if config is None or core.stopped:
        return
    # First what frees room, which the rest may need.
    if core.trim > 1 and core.low < core.committed:
        _trim(core)
    if core.state is not ReplicaState.CATCHING_UP:
        return
    if not core.entered and core.committed == config.start:
        # Exactly there: with less it would lack committed records, and it cannot have
        # committed more.
        _enter(core, config)
    # An epoch that a crash could take back is not served: in it a primary gives
    # positions that the next start would give again.
    if core.entered and core.durable_epoch == config.epoch:
        sealed = config.status is StreamStatus.SEALED
        core.state = ReplicaState.SEALED if sealed else ReplicaState.RUNNING


def _enter(core: Core, config: StreamConfig) -> None:
    check(core.next == config.start, "an epoch begins behind an uncommitted record")
    check(config.epoch > core.epoch, "the epoch falls")
    check(not core.waiting, "an append of an older epoch waits")
    if config.version > core.version:
        # The cuts in between gave nothing to this stream, or it would not start here.
        committer.idle(core, config.version, config.high_watermark)
    core.storage.enter(config.epoch)
    core.wrote()
    core.entered = True
    core.behind = False


def _trim(core: Core) -> None:
    glsn = min(core.trim, core.glsn_end)
    if core.trimmed < glsn:
        llsn = core.storage.llsn_of(glsn)
        check(llsn <= core.committed, "a trim of what is not committed")
        if llsn > core.low:
            core.storage.trim(llsn)
            core.wrote()
        core.trimmed = glsn


def invalidate(core: Core) -> None:
    """Serve nothing more until a configuration makes this replica a learner."""
    sequencer.give_up(core, 0, core.epoch, unknown=True)
    core.state = ReplicaState.INVALID
    core.out.report_due = True


def drop(core: Core) -> None:
    """Stop: the replica belongs to the stream no more."""
    sequencer.give_up(core, 0, core.epoch, unknown=True)
    core.dropped = True
