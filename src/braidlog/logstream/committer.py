"""Applies commits: runs of cuts, and runs that another replica sends.

A run applies if it continues what is committed and its records are here. Anything else
means that something was missed: the replica is behind, its report says so, and the
repository sends the cuts behind the reported version again.

The records behind what is committed were all written in the epoch that this replica
entered last. A run of another epoch is therefore not about them.

*Invariants.* A cut of an epoch has a run only of what this replica, if it is in that
epoch, has reported durable. The version rises with every cut.
"""

from __future__ import annotations

from braidlog.errors import RemoteProtocolError
from braidlog.logstream import sequencer
from braidlog.logstream.core import Core
from braidlog.logstream.errors import fail
from braidlog.logstream.states import ReplicaState
from braidlog.wire.messages import LogCut, Run, StreamRun

__all__ = ["apply_run", "commit", "idle", "note_behind"]


def commit(core: Core, cut: LogCut) -> None:
    """Apply what a cut gave to this stream.

    Raises:
        RemoteProtocolError: the run names no epoch.
    """
    if core.stopped or cut.version <= core.version:
        return  # Told again: cuts are repeated until reports show them.
    for run in cut.runs:
        if run.stream == core.stream:
            _commit_run(core, cut, run)
            return
    given = sum(run.length for run in cut.runs)
    # The log ended before this cut where it ends here: no cut is missing in between.
    if cut.high_watermark - given == core.high_watermark:
        idle(core, cut.version, cut.high_watermark)
    else:
        # A cut between may have given something to this stream: to move on would take
        # its GLSNs for those of others.
        note_behind(core)


def _commit_run(core: Core, cut: LogCut, run: StreamRun) -> None:
    if run.epoch <= 0 or run.length <= 0 or run.glsn_begin <= 0:
        msg = f"version {cut.version} has {run}: no epoch, length or GLSN"
        raise RemoteProtocolError(msg)
    end = run.llsn_begin + run.length
    fits = run.llsn_begin <= core.committed <= end <= core.next
    if end > core.durable_end and run.epoch == core.epoch and core.serving:
        fail("a cut of what is not durable here")
    if not fits or (run.epoch != core.epoch and end > core.committed):
        # It begins behind what is committed, reaches beyond what is here, or is about
        # records of another epoch, which may differ from those at the same LLSNs.
        if end > core.committed:
            note_behind(core)
        return
    # A fetch may have brought the beginning of the run before the cut itself came.
    done = core.committed - run.llsn_begin
    rest = Run(core.committed, run.glsn_begin + done, run.length - done)
    if rest.length:
        apply_run(core, rest, cut.version, cut.high_watermark)
    else:
        idle(core, cut.version, cut.high_watermark)


def apply_run(core: Core, run: Run, version: int, high_watermark: int) -> None:
    """Commit a run; answer the appends in it."""
    core.commit(run, version, high_watermark)
    core.behind = False
    core.asked = 0
    sequencer.release(core, run)


def idle(core: Core, version: int, high_watermark: int) -> None:
    """Move on with the log, which gave nothing to this stream."""
    core.commit(Run(core.committed, core.glsn_end, 0), version, high_watermark)
    core.behind = False
    core.asked = 0


def note_behind(core: Core) -> None:
    """Note that a cut was missed; the next report asks for it."""
    if core.state is ReplicaState.LEARNING:
        # It copies anyway; there is something new to copy.
        core.fetching.not_before = core.now
    elif not core.behind:
        core.behind = True
        core.asked = 0
        core.ask_at = core.now + core.limits.poll_interval
        core.out.report_due = True
