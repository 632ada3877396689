"""A query from log to log, killed in rounds: see `tests.spark.exactly_once`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from braidlog.errors import UnavailableError
from braidlog.spark import ensure_java
from spark.exactly_once import run

ROUNDS = int(os.environ.get("BRAIDLOG_ROUNDS", "2"))


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.soak
@pytest.mark.timeout(240 + 120 * ROUNDS)
def test_each_record_once_and_in_order(tmp_path: Path) -> None:
    try:
        ensure_java()
    except UnavailableError as error:
        pytest.skip(str(error))
    report = run(tmp_path, ROUNDS, seed=7)
    assert report.batches > 0
    assert report.done["drivers killed"] + report.done["workers killed"] > 0
