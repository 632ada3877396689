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
    if core.durable_end > core.next:
        fail("something is durable that is not there")
    return StreamReport(
        core.stream,
        core.durable_epoch,
        core.durable_version,
        core.committed,
        core.durable_end,
        core.state,
        core.damaged,
    )


def due(core: Core) -> StreamReport | None:
    """Return the report if it has to go out now."""
    if not core.out.report_due and not core.is_unsaid(core.state):
        return None
    core.out.report_due = False
    core.say(core.state)
    return report(core)
