"""Every question about Spark, in printing order."""

from benchmarks.contest import Question
from benchmarks.spark.plan import Plan
from benchmarks.spark.questions import (
    compaction,
    latency,
    memory,
    replays,
    scan,
    sink,
)

QUESTIONS: tuple[Question[Plan], ...] = (
    scan,
    sink,
    latency,
    compaction,
    replays,
    memory,
)
