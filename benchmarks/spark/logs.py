"""What is read and written: a log, and the same records as Parquet.

Keys are eight random bytes, of which each comes as often as the plan says; values are
random, so that nothing compresses. Logs that several questions read are made once.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import braidlog
from benchmarks.spark.plan import Plan

LOG = "bench"
COLUMNS = ("position", "timestamp", "key", "value")
"""What both formats hold; the headers of these records are empty."""

_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_BATCH_BYTES = 1 << 20
_FILE_BYTES = 64 << 20


def batches(
    seed: int, count: int, record_bytes: int, keys: int
) -> Iterator[pa.RecordBatch]:
    """Yield so many records, about 1 MiB at a time."""
    rng = np.random.default_rng(seed)
    rows = max(1, _BATCH_BYTES // record_bytes)
    for begin in range(0, count, rows):
        some = min(rows, count - begin)
        numbers = rng.integers(0, keys, some).astype(">i8")
        arrays = [
            _binary(numbers.tobytes(), 8),
            _binary(rng.bytes(some * record_bytes), record_bytes),
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _binary(data: bytes, width: int) -> Any:
    offsets = np.arange(0, len(data) + 1, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(data) // width, buffers)


def keys_of(plan: Plan, count: int) -> int:
    """Return how many different keys so many records have, about."""
    return max(1, count // plan.records_per_key)


def log_of(plan: Plan, count: int, record_bytes: int) -> Path:
    """Return the data directory with a log of so many records; made once."""
    path = plan.directory / "logs" / f"{count}x{record_bytes}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = batches(plan.seed, count, record_bytes, keys_of(plan, count))
        reader = pa.RecordBatchReader.from_batches(_SCHEMA, made)
        with braidlog.open(path) as node:
            node.create_log(LOG).append_arrow(reader)
    return path


def parquet_of(plan: Plan, count: int, record_bytes: int) -> Path:
    """Return a directory with the records of that log as Parquet; made once.

    Files of about the bytes that a task reads of a log, with the compression that Spark
    takes if it is told nothing.
    """
    path = plan.directory / "parquet" / f"{count}x{record_bytes}"
    if not path.exists():
        path.mkdir(parents=True)
        rows = max(1, _FILE_BYTES // (record_bytes + 32))
        with braidlog.open(log_of(plan, count, record_bytes), read_only=True) as node:
            log = node.log(LOG)
            for begin in range(1, count + 1, rows):
                end = min(begin + rows, count + 1)
                table = log.to_arrow(begin, end, columns=list(COLUMNS))
                name = path / f"part-{begin:012}.parquet"
                pq.write_table(table, name, compression="snappy", use_dictionary=False)
    return path


@cache
def latest_of(parquet: Path) -> tuple[int, int]:
    """Return how many keys there are, and the sum of the last position of each.

    So everybody's result can be checked, see `result_of`.
    """
    found = pq.read_table(parquet, columns=["key", "position"])
    last = found.group_by("key").aggregate([("position", "max")])["position_max"]
    return len(last), int(pc.sum(last).as_py())


def result_of(output: Path) -> tuple[int, int]:
    """Return how many records the Parquet files below a directory have, and the sum."""
    files = [str(path) for path in output.rglob("*.parquet")]
    positions = ds.dataset(files).to_table(columns=["position"])["position"]
    return len(positions), int(pc.sum(positions).as_py())
