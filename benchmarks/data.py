"""The values written: random bytes under the run's seed, so that nothing compresses."""

import random
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from benchmarks.plan import MIB


def value(seed: int, record_bytes: int) -> bytes:
    """Return one value."""
    return random.Random(seed).randbytes(record_bytes)


def groups(
    seed: int, count: int, record_bytes: int, group: int
) -> Iterator[list[bytes]]:
    """Yield `count` values in lists of `group`."""
    rng = random.Random(seed)
    for begin in range(0, count, group):
        block = rng.randbytes(min(group, count - begin) * record_bytes)
        ends = range(record_bytes, len(block) + 1, record_bytes)
        yield [block[end - record_bytes : end] for end in ends]


def lists(seed: int, count: int, record_bytes: int) -> list[list[bytes]]:
    """Return `count` lists of values, 1 MiB each."""
    group = MIB // record_bytes
    return list(groups(seed, count * group, record_bytes, group))


def batches(seed: int, count: int, record_bytes: int) -> list[pa.RecordBatch]:
    """Return `count` Arrow batches of values, 1 MiB each."""
    return [
        pa.record_batch({"value": pa.array(values, pa.binary())})
        for values in lists(seed, count, record_bytes)
    ]


def fill(
    append: Callable[[Sequence[bytes]], object],
    seed: int,
    count: int,
    record_bytes: int,
    group: int,
) -> None:
    """Append `count` values in lists of `group`."""
    for values in groups(seed, count, record_bytes, group):
        append(values)


def positions(seed: int, count: int, end: int) -> list[int]:
    """Return `count` random positions from 1 up to, but not, `end`."""
    rng = random.Random(seed)
    return [rng.randrange(1, end) for _ in range(count)]
