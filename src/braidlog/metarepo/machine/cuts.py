"""The command that commits: rules of a cut, and the history of cuts.

A cut is proposed by a leader that may have been overtaken: it can be in the log before,
behind or instead of what it was computed from. So all of it is checked against the
state, and it is taken whole or not at all.

*Invariants.* Version after version, GLSN after GLSN, LLSN after LLSN, without a gap; a
stream gets nothing but in the epoch that the cut was computed for.
"""

from __future__ import annotations

from braidlog.errors import FencedError, InvalidArgumentError
from braidlog.metarepo.machine.errors import fail
from braidlog.metarepo.machine.logs import require_log
from braidlog.metarepo.machine.state import (
    HISTORY_CUTS_MAX,
    HISTORY_CUTS_MIN,
    LogState,
    State,
)
from braidlog.metarepo.machine.streams import require_stream
from braidlog.wire.commands import Cut
from braidlog.wire.messages import LogCut, StreamStatus
from braidlog.wire.results import Committed


def cut(state: State, index: int, command: Cut) -> Committed:
    """Apply `Cut`."""
    if not command.cuts:
        raise InvalidArgumentError("an empty cut")
    several = len(command.cuts) > 1
    if several and len({each.log for each in command.cuts}) != len(command.cuts):
        raise InvalidArgumentError("a log is cut twice")
    for each in command.cuts:
        _require_cut(state, each)
    for each in command.cuts:
        _commit(state, each)
    for log, version in command.forget:
        if log in state.logs:
            _forget(state.logs[log], version)
    return Committed()


def _require_cut(state: State, made: LogCut) -> None:
    log = state.logs.get(made.log) or require_log(state, made.log)
    if made.version != log.version + 1:
        msg = f"cut {made.version} does not follow {log.version}"
        raise FencedError(msg, given=made.version, current=log.version)
    if not made.runs:
        raise InvalidArgumentError("a cut that gives nothing")
    glsn, before = log.high_watermark + 1, 0
    for run in made.runs:
        stream = state.streams.get(run.stream) or require_stream(state, run.stream)
        if run.epoch != stream.epoch or stream.status is not StreamStatus.RUNNING:
            msg = f"stream {run.stream}: {stream.status.name} in epoch {stream.epoch}"
            raise FencedError(msg, given=run.epoch, current=stream.epoch)
        if run.llsn_begin != stream.committed:
            msg = f"stream {run.stream} is committed to {stream.committed}"
            raise FencedError(msg, given=run.llsn_begin, current=stream.committed)
        if run.length < 1:
            msg = f"stream {run.stream} gets {run.length} records"
            raise InvalidArgumentError(msg)
        if stream.log != log.log or run.stream <= before:
            msg = f"stream {run.stream} is not the next of the log"
            raise InvalidArgumentError(msg)
        if run.glsn_begin != glsn:
            msg = f"run at {run.glsn_begin} instead of {glsn}"
            raise FencedError(msg, given=run.glsn_begin, current=glsn)
        glsn, before = glsn + run.length, run.stream
    if made.high_watermark != glsn - 1:
        msg = f"the cut ends at {glsn - 1}, not at {made.high_watermark}"
        raise InvalidArgumentError(msg)


def _commit(state: State, made: LogCut) -> None:
    log = state.logs[made.log]
    for run in made.runs:
        stream = state.streams[run.stream]
        stream.committed += run.length
        stream.last_version = made.version
        stream.holders = stream.replicas
    log.version, log.high_watermark = made.version, made.high_watermark
    log.history.append(made)
    if len(log.history) > HISTORY_CUTS_MAX:
        del log.history[: len(log.history) - HISTORY_CUTS_MAX]
    if log.history[0].version + len(log.history) - 1 != log.version:
        fail("cut is lost")


def _forget(log: LogState, version: int) -> None:
    """Drop cuts up to a version, but for the last few."""
    begin = log.version - len(log.history) + 1
    behind = min(version, log.version - HISTORY_CUTS_MIN) + 1 - begin
    if behind > 0:
        del log.history[:behind]


def cuts_since(
    state: State, log: bytes, version: int, count: int
) -> tuple[LogCut, ...] | None:
    """Return the cuts that follow a version, or None if the first one is forgotten."""
    found = state.logs.get(log)
    if found is None or version >= found.version:
        return ()
    begin = found.version - len(found.history) + 1
    if version + 1 < begin:
        return None
    at = version + 1 - begin
    return tuple(found.history[at : at + count])
