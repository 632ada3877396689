"""Pipelines inside a real Spark: the same tasks, the same results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from braidlog.errors import TrimmedError
from braidlog.pipelines import run
from unit.pipelines.works import Square, squares

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(180),
    # Sockets between Spark's processes are closed by the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_the_frame_in_spark(spark: Any, tmp_path: Path) -> None:
    """More tasks than a wave has; one fails at first, in a way that may pass."""
    tasks = [Square(n, str(tmp_path / "flag") if n == 3 else "") for n in range(20)]
    report = run(squares(tmp_path / "home", tasks), spark=spark)
    assert report.figures["total"] == sum(n**2 for n in range(20))
    assert (report.tasks, report.where) == (21, f"Spark {spark.version} at local[2,2]")


def test_an_error_of_a_worker_is_the_error(spark: Any, tmp_path: Path) -> None:
    job = squares(tmp_path, [Square(1), Square(2, "trimmed")])
    with pytest.raises(TrimmedError, match="it is gone") as caught:
        run(job, spark=spark)
    assert caught.value.first == 7
