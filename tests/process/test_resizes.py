"""Hosts that are killed while their partitions change; see `killed_host`."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from process.killed_host import Killed

KILLS = int(os.environ.get("BRAIDLOG_KILLS", "5"))
SEED = int(os.environ.get("BRAIDLOG_SEED", "0")) or random.randrange(1, 1_000_000)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(60 + 20 * KILLS)
@pytest.mark.parametrize("keyed", [False, True])
def test_a_host_that_is_killed_while_its_partitions_change(
    tmp_path: Path, keyed: bool
) -> None:
    print(f"BRAIDLOG_SEED={SEED}")  # noqa: T201, RUF100
    tally = Killed(tmp_path / "data", SEED, keyed, resizing=True).run(KILLS)
    print(tally)  # noqa: T201, RUF100
    assert tally.kills == KILLS
    assert tally.acknowledged > 0
    assert tally.unknown > 0
    assert tally.partitions
