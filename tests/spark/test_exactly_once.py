"""A query whose driver is killed; `tests.spark.exactly_once` kills much more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark import exactly_once
from spark.exactly_once import PER_ROUND

pytestmark = [
    pytest.mark.spark,
    pytest.mark.process,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_each_record_once_and_in_order(spark: Any, tmp_path: Path) -> None:
    """Killed inside a batch, with everything below it; another driver goes on."""
    exactly_once.prepare(tmp_path)
    exactly_once.kill_in_a_batch(tmp_path)
    stored = exactly_once.committed(tmp_path)
    query = exactly_once.copying(spark, tmp_path, exactly_once.undisturbed)
    query.trigger(availableNow=True).start().awaitTermination()
    batches = exactly_once.verify(tmp_path, PER_ROUND, speculates=False)
    assert 0 < stored < batches
