"""Short ways to say who recorded what."""

from __future__ import annotations

import re
from collections.abc import Mapping

from braidlog.faultlog import (
    Configuration,
    FaultRecord,
    Verdict,
    decide,
)

NAMES = "ABCD"


def record(
    node: int = 1,
    sequence: int = 0,
    failed: tuple[int, ...] = (),
    *,
    epoch: int = 1,
    members: tuple[int, ...] = (1, 2, 3),
    viable: bool = True,
    cluster: str = "green",
    **place: object,
) -> FaultRecord:
    configuration = Configuration(epoch, sequence, members, failed)
    return FaultRecord(cluster, node, configuration, viable, **place)  # type: ignore[arg-type]


def records(story: str, members: tuple[int, ...] = (1, 2, 3)) -> dict[int, FaultRecord]:
    """Read `A,C:1B B:0*`: nodes, sequence (`e2.0`: with epoch), failed, not viable."""
    found = {}
    for part in story.split():
        nodes, said = part.split(":")
        match = re.fullmatch(r"(?:e(\d+)\.)?(\d+)([A-D]*)(\*?)", said)
        assert match, part
        epoch, sequence, failed, star = match.groups()
        for name in nodes.split(","):
            node = NAMES.index(name) + 1
            found[node] = record(
                node,
                int(sequence),
                tuple(NAMES.index(f) + 1 for f in failed),
                epoch=int(epoch or 1),
                members=members,
                viable=not star and name not in failed,
            )
    return found


def decided(
    story: str,
    *,
    members: tuple[int, ...] = (1, 2, 3),
    streams: Mapping[int, tuple[int, ...]] | None = None,
) -> Verdict:
    return decide(records(story, members), streams)
