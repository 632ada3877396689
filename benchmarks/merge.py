"""How fast raw directories are merged: ``python -m benchmarks.merge``.

Writes the directories of one or three nodes, then merges them, in turn with the floor:
reading the same files into memory. All is processor time of this process, so the page
cache stands for a disk that is fast enough. Rows are MB of WAL files a second and core.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks import data, machine
from braidlog import _native
from braidlog.logstream.storage import CommitContext
from braidlog.node.replication.replica_store import ReplicaStore
from braidlog.store.merge import RawDirectory, RawMerge
from braidlog.store.node_store import NodeStore

_TARGET: Final = 500.0
_STREAMS: Final = (1, 2, 3, 4)
_LOG: Final = b"L" * 16
_CHUNK: Final = 1 << 20


def write(path: Path, size: int, records: int, record_bytes: int, seed: int) -> None:
    """Write a directory of about `size` bytes: batches of `records` records."""
    node = NodeStore(path, entropy=seed, segment_bytes=64 << 20, wal_bytes_max=8 << 30)
    stores = [ReplicaStore.create(node, number) for number in _STREAMS]
    for store in stores:
        store.share_order(_LOG)
    value = data.value(seed, record_bytes)
    batch = _native.encode_batch([value] * records, timestamps=1)
    cuts = max(1, size // (len(batch) * len(stores)))
    for cut in range(cuts):
        glsn, llsn = cut * records * len(stores) + 1, cut * records + 1
        high = glsn + records * len(stores) - 1
        for store in stores:
            store.append(0, [batch])
        for at, store in enumerate(stores):
            begin = glsn + at * records
            store.commit(0, CommitContext(cut + 1, begin, llsn, records, high))
    node.sync()
    node.close()


def merge(paths: list[Path]) -> int:
    """Merge directories; return the bytes of files that were read."""
    sources = []
    for path in paths:
        directory = RawDirectory(path)
        logs = directory.logs()
        sources.append((directory, {log.stream: int(log.name[7:]) for log in logs}))
    with RawMerge(sources) as merged:
        for directory, _ in sources:
            merged.own(directory)
        merged.drain()
        return sum(source.bytes for source in merged.figures().sources)


def floor(paths: list[Path]) -> int:
    """Read the same files into memory."""
    buffer, read = bytearray(_CHUNK), 0
    for path in paths:
        for slot in sorted((path / "wal").glob("slot-*.wal")):
            with slot.open("rb", buffering=0) as file:
                while count := file.readinto(buffer):
                    read += count
    return read


def rate(call: Callable[[list[Path]], int], paths: list[Path]) -> float:
    """Return MB a second of processor time."""
    begin = time.process_time()
    size = call(paths)
    return size / 1e6 / (time.process_time() - begin)


def main() -> int:
    """Measure; exit with 1 if the target is missed and `--check` is given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.merge")
    parser.add_argument("--size-mib", type=int, default=256, help="of a directory")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="file system to use")
    parser.add_argument("--check", action="store_true", help="exit with 1 on a miss")
    arguments = parser.parse_args()
    table = Table("directories", "batch", "merge MB/s", "floor MB/s", "of the floor")
    missed = False
    with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
        for records, record_bytes in ((1, 4096), (100, 128), (256, 1024)):
            paths = [Path(scratch) / f"{records}-{node}" for node in (1, 2, 3)]
            size = arguments.size_mib << 20
            for path in paths:
                write(path, size, records, record_bytes, arguments.seed)
            for count in (1, 3):
                some = paths[:count]
                pairs = [
                    (rate(merge, some), rate(floor, some))
                    for _ in range(arguments.rounds)
                ]
                merged = statistics.median(pair[0] for pair in pairs)
                read = statistics.median(pair[1] for pair in pairs)
                missed |= merged < _TARGET
                batch = f"{records} x {record_bytes}"
                ratio = f"{merged / read:.0%}"
                table.add_row(str(count), batch, f"{merged:.0f}", f"{read:.0f}", ratio)
    console = Console()
    console.print(machine.describe(Path.cwd(), f"seed {arguments.seed}"))
    console.print(table)
    return 1 if arguments.check and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
