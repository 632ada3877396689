"""What the order rule costs who appends: ``python -m benchmarks.order``.

A node's store takes appends and commits of the streams of one log, with and without
`share_order`, in turn, in one process. All is processor time, so that a disk and other
work count little; the directory is in memory unless another one is named. `even`: all
streams get the same. `behind`: one stream stores and is never committed, so that it
holds the others back, and the budget makes it leave the order.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks import data, machine
from braidlog import _native
from braidlog.logstream.storage import CommitContext
from braidlog.node.replication.replica_store import ReplicaStore
from braidlog.store.node_store import NodeStore

_LOG: Final = b"L" * 16
_MEMORY: Final = Path("/dev/shm")  # noqa: S108, RUF100


def load(
    path: Path, batch: bytes, streams: int, cuts: int, *, ordered: bool, behind: bool
) -> float:
    """Append and commit; return microseconds of processor time for one batch."""
    node = NodeStore(path, entropy=1, segment_bytes=64 << 20, wal_bytes_max=8 << 30)
    stores = [ReplicaStore.create(node, number) for number in range(1, streams + 1)]
    if ordered:
        for store in stores:
            store.share_order(_LOG)
    count = _native.Batch(batch).count
    committing = stores[1:] if behind else stores
    node.sync()
    begun = time.process_time()
    for cut in range(cuts):
        llsn = cut * count + 1
        glsn = cut * count * len(committing) + 1
        high = glsn + count * len(committing) - 1
        for store in stores:
            store.append(0, [batch])
        for at, store in enumerate(committing):
            begin = glsn + at * count
            store.commit(0, CommitContext(cut + 1, begin, llsn, count, high))
        if cut % 64 == 0:
            node.sync()
    node.sync()
    spent = time.process_time() - begun
    node.close()
    return spent / (cuts * streams) * 1e6


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.order")
    parser.add_argument("--batches", type=int, default=20_000, help="of one round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="file system to use")
    arguments = parser.parse_args()
    where = arguments.directory or (_MEMORY if _MEMORY.is_dir() else None)
    table = Table("streams", "batch", "", "without, us", "with, us", "cost, us", "more")
    for streams, records, record_bytes, behind in (
        *((4, 1, 100, False), (4, 100, 128, False), (64, 1, 100, False)),
        *((4, 100, 128, True), (64, 100, 128, True)),
    ):
        batch = _native.encode_batch(
            [data.value(arguments.seed, record_bytes)] * records, timestamps=1
        )
        cuts = max(1, arguments.batches // streams)
        pairs = []
        for number in range(arguments.rounds):
            found = {}
            for ordered in (False, True) if number % 2 else (True, False):
                with tempfile.TemporaryDirectory(dir=where) as scratch:
                    path = Path(scratch) / "node"
                    found[ordered] = load(
                        path, batch, streams, cuts, ordered=ordered, behind=behind
                    )
            pairs.append((found[False], found[True]))
        without, with_it = (
            statistics.median(column) for column in zip(*pairs, strict=True)
        )
        cost = statistics.median(pair[1] - pair[0] for pair in pairs)
        table.add_row(
            str(streams),
            f"{records} x {record_bytes}",
            "behind" if behind else "even",
            f"{without:.2f}",
            f"{with_it:.2f}",
            f"{cost:.2f}",
            f"{cost / without:.0%}",
        )
    console = Console()
    console.print(machine.describe(Path.cwd(), f"seed {arguments.seed}"))
    console.print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
