"""Every question about clusters, in printing order."""

from typing import Any

from benchmarks.cluster.questions import appends, failover, idle, reading, tail
from benchmarks.cluster.questions.clients import Clients
from benchmarks.cluster.questions.streams import Streams

QUESTIONS: tuple[Any, ...] = (
    idle,  # Before there is anything to do for logs that others left.
    appends.ONE_AT_A_TIME,
    appends.OUTSTANDING_16,
    appends.OUTSTANDING_64,
    Clients(processes=4, tasks=64),
    appends.BATCHES,
    appends.LARGE,
    appends.LARGE_BATCHES,
    Streams(),
    reading,
    tail,
    failover,
)
