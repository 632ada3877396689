"""Nothing that was acknowledged is lost when writers are killed; see `sigkill`."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from process.sigkill import Carnage

KILLS = int(os.environ.get("BRAIDLOG_KILLS", "12"))
SEED = int(os.environ.get("BRAIDLOG_SEED", "0")) or random.randrange(1, 1_000_000)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(60 + 10 * KILLS)
def test_killed_writers_lose_nothing(tmp_path: Path) -> None:
    print(f"BRAIDLOG_SEED={SEED}")  # noqa: T201, RUF100
    tally = Carnage(tmp_path / "data", SEED).run(KILLS)
    print(tally)  # noqa: T201, RUF100
    assert tally.kills == KILLS
    assert tally.acknowledged > 0
    assert tally.followed > 0
