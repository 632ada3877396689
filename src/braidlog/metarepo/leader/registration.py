"""What the state does not know of the nodes although they said it.

*Theory of operation.* A node says what its version knows when it registers. Members of
earlier versions did not keep that, and the state of one that is upgraded lacks it. So a
leader compares the state with the reports, and logs a registration again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from braidlog.metarepo.leader.collector import NodeReport
from braidlog.metarepo.machine.state import State
from braidlog.wire.commands import Command, RegisterNode


def registrations_due(
    state: State, reports: Mapping[int, NodeReport], under_way: Collection[int]
) -> list[Command]:
    """Return registrations with the features that nodes report now."""
    return [
        RegisterNode(
            each.node, each.address, each.incarnation, each.identity, said.features
        )
        for each in state.nodes.values()
        if (said := reports.get(each.node)) is not None
        and said.incarnation == each.incarnation
        and said.features != each.features
        and each.node not in under_way
        and not each.readmitting
    ]
