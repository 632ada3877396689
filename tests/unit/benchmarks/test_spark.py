"""What the measurements of Spark compare is the same, without any Spark."""

from __future__ import annotations

from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from benchmarks.spark import logs, usage
from benchmarks.spark.plan import Plan, quick
from benchmarks.spark.questions import QUESTIONS, compaction
from benchmarks.spark.questions.latency import _last_batch
from benchmarks.spark.usage import Spent, peaks, spent_between, timed

import braidlog
from braidlog.pipelines import Origin


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return quick(Plan(tmp_path_factory.mktemp("bench")))


def test_both_formats_hold_the_same_records(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_FILE_BYTES", 1000 * 132)
    path = logs.log_of(plan, 3500, 100)
    parquet = logs.parquet_of(plan, 3500, 100)
    with braidlog.open(path, read_only=True) as node:
        stored = node.log(logs.LOG).to_arrow(columns=list(logs.COLUMNS))
    assert len(list(parquet.iterdir())) == 4
    assert pq.read_table(parquet).equals(stored)
    assert stored["position"].to_pylist() == list(range(1, 3501))


def test_everybody_finds_the_same_latest_records(plan: Plan, tmp_path: Path) -> None:
    path, parquet = logs.log_of(plan, 3500, 100), logs.parquet_of(plan, 3500, 100)
    table = pq.read_table(parquet)
    keys, positions = table["key"].to_pylist(), table["position"].to_pylist()
    last = dict(zip(keys, positions, strict=True))
    expected = (len(last), sum(last.values()))
    assert logs.latest_of(parquet) == expected
    origin = Origin(logs.LOG, path=str(path))
    compaction._ours(origin, {"workers": 1}, tmp_path / "ours")
    compaction._duckdb(str(parquet / "*.parquet"))(tmp_path / "duckdb")
    compaction._polars(str(parquet / "*.parquet"))(tmp_path / "polars")
    for who in ("ours", "duckdb", "polars"):
        assert logs.result_of(tmp_path / who) == expected


def test_every_row_compares_contestants_that_there_are(plan: Plan) -> None:
    for question in QUESTIONS:
        names = {each.name for each in question.contestants(plan)}
        for row in question.comparisons(plan):
            compared = {row.ours, *row.peers} | ({row.floor} if row.floor else set())
            assert compared <= names, row.workload


def test_the_newest_batch_of_a_sink_of_files(tmp_path: Path) -> None:
    assert _last_batch(tmp_path / "nothing") == -1
    for name in ("8", "9.compact", "10", ".11.crc", ".12.tmp"):
        (tmp_path / name).touch()
    assert _last_batch(tmp_path) == 10


def test_processor_time_of_processes_that_end_meanwhile() -> None:
    before = {
        1: Spent(parent=0, own=5.0, reaped=1.0),
        2: Spent(parent=1, own=3.0, reaped=0.5),
        3: Spent(parent=1, own=2.0, reaped=0.0),
        4: Spent(parent=3, own=7.0, reaped=0.0),
    }
    # 2 ended and was waited for after 1 s more; 3 and 4 took their times with them.
    after = {
        1: Spent(parent=0, own=5.25, reaped=5.5),
        5: Spent(parent=1, own=0.5, reaped=0.0),
    }
    assert spent_between(before, after | {3: before[3], 4: before[4]}) == 1.75
    assert spent_between(before, after) == 0.75


def test_processor_time_and_memory_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests may have started a Java below this process.
    monkeypatch.setattr(usage, "_family", lambda: [psutil.Process()])
    with peaks(spark=False) as seen:
        figures = timed(lambda: sum(1 for _ in range(200_000)))
    assert figures["us_per_record"] == pytest.approx(1e6 / figures["per_second"])
    assert figures["per_cpu_second"] > 0
    assert "jvm_mib" not in seen.figures()
