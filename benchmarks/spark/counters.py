"""The application that is replayed: amounts are added to counters, in partitions."""

import random
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.spark.plan import Plan
from braidlog.app import Application, Context
from braidlog.app.errors import BusyError

NAME = "benchmarks.spark.counters:counters"
PARTITIONS = 8
_COUNTERS = 10_000
_ADD = (
    "INSERT INTO counter VALUES (?1, ?2)"
    " ON CONFLICT DO UPDATE SET total = total + ?2 RETURNING total"
)

counters = Application(
    "counters",
    partitions=PARTITIONS,
    schema="CREATE TABLE counter(id INTEGER PRIMARY KEY, total INTEGER NOT NULL)",
)


@counters.procedure(key="counter")
def add(ctx: Context, counter: int, amount: int) -> int:
    """Add to one counter."""
    total: int = ctx.execute(_ADD, (counter, amount))[0][0]
    return total


def calls(plan: Plan) -> list[tuple[int, int]]:
    """Return the arguments of all commands."""
    numbers = random.Random(plan.seed)
    return [
        (numbers.randrange(_COUNTERS), numbers.randrange(-100, 100))
        for _ in range(plan.commands)
    ]


def make_log(plan: Plan, path: Path) -> None:
    """Write a log of such commands."""
    with counters.open(path) as host:
        for arguments in calls(plan):
            while True:
                with suppress(BusyError):
                    host.submit("add", *arguments)
                    break
                time.sleep(0.001)
        host.call("add", 0, 0)


def make_table(plan: Plan, path: Path) -> None:
    """Write the arguments alone, decoded, as Parquet."""
    ids, amounts = zip(*calls(plan), (0, 0), strict=True)
    pq.write_table(pa.table({"id": list(ids), "amount": list(amounts)}), path)
