"""Every question about clusters, in printing order."""

from benchmarks.cluster.questions import (
    batches,
    large,
    one_at_a_time,
    outstanding,
    reading,
)

QUESTIONS = (one_at_a_time, outstanding, batches, large, reading)
