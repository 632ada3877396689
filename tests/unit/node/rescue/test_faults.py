"""What a node does with a configuration that it is told to record."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from braidlog.errors import InvalidArgumentError, LogError, TooLargeError
from braidlog.faultlog.configuration import MEMBERS_MAX
from braidlog.node.rescue.fault_log import FaultLog
from braidlog.node.rescue.faults import FaultRecorder
from braidlog.wire.messages import Faults, Recorded

MANY = tuple(range(1, MEMBERS_MAX + 2))


async def test_a_configuration_that_no_cluster_has_is_refused_to_its_sender(
    tmp_path: Path,
) -> None:
    recorded: asyncio.Queue[Recorded] = asyncio.Queue()
    failed: list[LogError] = []
    log = FaultLog.open(tmp_path, "c", 1)
    keeper = FaultRecorder(log, recorded=recorded.put_nowait, failed=failed.append)
    for bad, error in (
        (Faults(0, (1 << 63) - 1, (1,), (), True), InvalidArgumentError),
        (Faults(1, 0, (2, 1), (), True), InvalidArgumentError),
        (Faults(1, 0, (1, 2), (3,), True), InvalidArgumentError),
        (Faults(1, 0, (1,), (1,), True), InvalidArgumentError),
        (Faults(1, 0, MANY, (), True), TooLargeError),
    ):
        with pytest.raises(error):
            keeper.take(bad)
    keeper.take(Faults(1, 0, (1, 2, 3), (), True))
    said = await recorded.get()
    assert (said.node, said.epoch, said.sequence, said.viable) == (1, 1, 0, True)
    assert not failed
    assert recorded.empty()
    await keeper.close()
