"""Says what is durable here.

A report goes out at once if the end, the epoch or the state changed, or if something
was missed and has to be asked for. Versions and what is committed ride along: they only
decide what the repository has to keep.

*Invariants.* While a replica serves in an epoch, the reported end never falls. Nothing
is reported before it is durable.
"""

from __future__ import annotations

from braidlog.logstream.core import Core
from braidlog.logstream.errors import fail
from braidlog.wire.messages import StreamReport

__all__ = ["due", "report"]


def report(core: Core) -> StreamReport:
    """Return what is durable now."""
    mark = core.durable.mark
    if mark.end > core.next:
        fail("something is durable that is not there")
    return StreamReport(
        core.stream,
        mark.epoch,
        mark.version,
        core.committed,
        mark.end,
        core.state,
        core.damaged,
    )


def due(core: Core) -> StreamReport | None:
    """Return the report if it has to go out now."""
    mark, last = core.durable.mark, core.out.reported
    if (
        not core.out.report_due
        and last is not None
        and last.end == mark.end
        and last.epoch == mark.epoch
        and last.state == core.state
    ):
        return None
    current = report(core)
    core.out.report_due = False
    core.out.reported = current
    return current
