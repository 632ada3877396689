"""Copies from other replicas what is missed here: records and their commits.

What is needed follows from the state, so nothing has to be remembered but the one fetch
that may be on its way:

    learner                         what is committed, for ever
    member, not in its epoch yet    what is committed, up to where the epoch starts
    backup with a gap               what the primary has, committed or not
    member that missed cuts         what is committed, after reports asked in vain

Records and their commits are written one behind the other, so a crash keeps the records
at least as long as their commits. A source that was trimmed says where it begins; then
the copy starts over from there.

*Invariants.* A member that is in its epoch takes answers of that epoch only: those of a
later one could disagree with its uncommitted tail. Only true records are committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from braidlog.errors import LogError, StoreFailedError
from braidlog.logstream import backup, committer, sequencer
from braidlog.logstream.batch import number
from braidlog.logstream.core import Core
from braidlog.logstream.errors import check
from braidlog.logstream.states import ReplicaState
from braidlog.logstream.storage import Batch
from braidlog.wire.messages import Entries, Fetch, Run, StreamConfig

__all__ = ["entries", "pump", "tick"]


@dataclass(frozen=True, slots=True)
class Want:
    """What is missed, and who may have it."""

    begin: int
    committed_only: bool
    sources: tuple[int, ...]


def _wanted(core: Core) -> Want | None:
    config = core.config
    if config is None or core.stopped:
        return None
    # Cuts are asked of the repository first, by reports: they cost less than a fetch,
    # and only old ones are not there any more.
    asked = core.asked >= core.limits.asks_max
    if core.state is ReplicaState.LEARNING:
        return _committed(core, config)
    if core.is_catching_up:
        missing = core.next < config.start
        return _committed(core, config) if missing or asked else None
    if core.heard_end > core.next and not core.is_primary:
        # Only the primary has the order of what is not committed.
        return Want(core.next, committed_only=False, sources=config.replicas[:1])
    return _committed(core, config) if core.behind and asked else None


def _committed(core: Core, config: StreamConfig) -> Want:
    everybody = config.replicas + config.learners
    others = tuple(node for node in everybody if node != core.node)
    return Want(core.committed, committed_only=True, sources=others)


def pump(core: Core) -> None:
    """Send a fetch if one is needed and none is on its way."""
    fetching = core.fetching
    if fetching.peer or core.now < fetching.not_before:
        return
    if core.heard_end <= core.next and not core.behind and core.serving:
        return  # As after nearly every input.
    want = _wanted(core)
    if want is None or not want.sources:
        return
    fetching.number += 1
    fetching.peer = want.sources[fetching.turn % len(want.sources)]
    fetching.begin = want.begin
    fetching.committed_only = want.committed_only
    fetching.deadline = core.now + core.limits.fetch_timeout
    message = Fetch(
        core.stream,
        core.epoch,
        fetching.number,
        want.begin,
        core.limits.fetch_bytes_max,
        want.committed_only,
    )
    core.send(fetching.peer, message)


def tick(core: Core) -> None:
    """Give up a fetch that was not answered; ask for missed cuts again."""
    fetching = core.fetching
    if fetching.peer and core.now >= fetching.deadline:
        fetching.peer = 0
        fetching.turn += 1
    if (core.behind or core.is_catching_up) and core.now >= core.ask_at:
        core.ask_at = core.now + core.limits.poll_interval
        core.asked += 1
        core.out.report_due = True


def entries(core: Core, peer: int, message: Entries, batches: Sequence[Batch]) -> None:
    """Take the answer to the fetch that is on its way.

    Raises:
        RemoteProtocolError: the batches are not what the message says.
    """
    fetching = core.fetching
    expected = (fetching.peer, fetching.number)
    if core.stopped or not fetching.peer or (peer, message.number) != expected:
        return  # Given up before, or of a former epoch.
    fetching.peer = 0
    fetching.not_before = core.now + core.limits.poll_interval
    fetching.turn += 1
    if _take(core, message, batches):
        # There may be more where this came from. Else another source has its turn,
        # after a pause, or two that have nothing would be asked without end.
        fetching.not_before = core.now
        fetching.turn -= 1


def _take(core: Core, message: Entries, batches: Sequence[Batch]) -> bool:
    """Write what the answer brings; tell whether it brought anything."""
    if core.entered and core.is_member and message.epoch != core.epoch:
        return False
    if message.llsn_begin > core.fetching.begin:
        # The source was trimmed beyond what is needed here.
        return _start_over(core, message, b"".join(batches))
    numbered = number(message.llsn_begin, message.sizes, batches)
    committed = _committed_end(core, message)
    end = committed if core.fetching.committed_only else message.end
    before = (core.next, core.latest)
    backup.place(core, [each for each in numbered if each[1] <= end])
    _commit(core, message, min(committed, core.next))
    return (core.next, core.latest) != before


def _committed_end(core: Core, message: Entries) -> int:
    if core.is_catching_up and core.config is not None:
        # What lies behind is of the new epoch, which is entered first.
        return min(message.committed, core.config.start)
    return message.committed


def _start_over(core: Core, message: Entries, producers: Batch) -> bool:
    """Begin anew where the source begins: what lies before was trimmed.

    Instead of batches the answer has the producer windows of what was.
    """
    begin, config = message.llsn_begin, core.config
    if message.runs or message.llsn_begin <= core.committed:
        # It contradicts itself, or would take back what is committed here.
        return False
    if core.state is not ReplicaState.LEARNING:
        if config is None or not core.is_catching_up or begin > config.start:
            # In its epoch a member has promised what it would drop.
            return False
        if core.next == config.start > begin:
            # Only commits are missing, and this may be the last copy of the records
            # behind `begin`: they stay.
            return _pass_over(core, message)
    try:
        core.restart(begin, producers)
    except StoreFailedError:
        raise
    except LogError as error:
        core.refused = error
        return False
    sequencer.give_up(core, 0, core.epoch, unknown=True)
    core.trim = max(core.trim, message.trim)
    return True


def _pass_over(core: Core, message: Entries) -> bool:
    """Commit what everybody else has trimmed, and trim it.

    Nobody knows the GLSNs of these records any more. They were given behind the last
    one here and before the trim, so as many from there on are free, and no reader is
    given one of them: they are below the trim.
    """
    begin, first = message.llsn_begin, core.glsn_end or 1
    length = begin - core.committed
    if first + length > message.trim:
        return False  # Some of them would be readable, at positions of others.
    sequencer.give_up(core, 0, core.epoch, unknown=True)
    run = Run(core.committed, first, length)
    committer.apply_run(core, run, core.version, first + length - 1)
    core.trim = max(core.trim, message.trim)
    return True


def _commit(core: Core, message: Entries, end: int) -> None:
    """Commit the runs of the answer up to `end`, as far as they continue ours.

    The version of the source is that of its last run. Until that run is complete here
    ours stays: it promises that nothing before is missing.
    """
    if core.serving:
        check(end <= core.durable_end, "others committed what is not durable here")
    for run in message.runs:
        piece = _clip(run, core.committed, end)
        if piece is None:
            continue
        if piece.llsn_begin != core.committed:
            return  # A hole in the answer: what lies behind it cannot be placed.
        last = piece.llsn_begin + piece.length == message.committed
        version, mark = core.version, piece.glsn_begin + piece.length - 1
        if last:
            version = max(version, message.version)
            mark = max(mark, message.high_watermark)
        committer.apply_run(core, piece, version, mark)
    newer = message.version > core.version
    if newer and core.committed == message.committed:
        committer.idle(core, message.version, message.high_watermark)


def _clip(run: Run, begin: int, end: int) -> Run | None:
    """Return the part of a run in `begin..end`, or None."""
    first = max(run.llsn_begin, begin)
    length = min(run.llsn_begin + run.length, end) - first
    if length <= 0:
        return None
    return Run(first, run.glsn_begin + first - run.llsn_begin, length)
