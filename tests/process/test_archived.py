"""Archivers killed at random moments: a short run of `tests.process.archived`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from process.archived import Carnage

ROUNDS = int(os.environ.get("BRAIDLOG_ROUNDS", "3"))


@pytest.mark.process
@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_archive_and_log_together_are_the_original(tmp_path: Path) -> None:
    tally = Carnage(tmp_path, seed=ROUNDS).run(ROUNDS)
    assert tally.rounds == ROUNDS
    assert tally.archived > 0, tally
