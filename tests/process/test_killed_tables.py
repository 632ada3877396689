"""Tables equal their logs after SIGKILL at any moment; see `killed_tables`."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from process.killed_tables import Carnage

KILLS = int(os.environ.get("BRAIDLOG_KILLS", "8"))
SEED = int(os.environ.get("BRAIDLOG_SEED", "0")) or random.randrange(1, 1_000_000)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(60 + 10 * KILLS)
def test_killed_writers_leave_tables_that_equal_their_log(tmp_path: Path) -> None:
    print(f"BRAIDLOG_SEED={SEED}")  # noqa: T201, RUF100
    tally = Carnage(tmp_path / "data", SEED).run(KILLS)
    print(tally)  # noqa: T201, RUF100
    assert tally.kills == KILLS
    assert tally.appended > 0


@pytest.mark.process
@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_two_hundred_kills(tmp_path: Path) -> None:
    print(f"BRAIDLOG_SEED={SEED}")  # noqa: T201, RUF100
    tally = Carnage(tmp_path / "data", SEED).run(200, seconds=1000)
    print(tally)  # noqa: T201, RUF100
    assert tally.kills > 50
    assert tally.building > 0
