"""The disks of all nodes once the cluster rests, read as those of a dead one.

Bulk replay puts the streams of a log in order in one pass, in memory that the writers
bound: nodes hold what a reader cannot place yet within their budget. So the files have
to give the log, all of it, in its order, and without more memory than was promised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from braidlog import _native
from braidlog.errors import LogError
from braidlog.store.merge import Figures, RawDirectory, RawMerge
from braidlog.store.node_store import STREAM_PREFIX
from sim.errors import ViolationError

if TYPE_CHECKING:
    from sim.applications.ledger import Record
    from sim.cluster.watch import Watch

__all__ = ["ORDER_BYTES_MAX", "check_raw", "images"]

ORDER_BYTES_MAX: Final = 5000
"""What nodes promise: the largest entry fits, what waits for a slow stream does not."""


def images(watch: Watch) -> dict[str, _native.MemoryDisk]:
    """Return the disks of the nodes as they are now, with the last commits on them.

    An acknowledgement does not wait for those, and the repository that knows them is
    not asked here.
    """
    found = {}
    for live in watch.living():
        live.store.sync()
        found[live.name] = watch.disk_of(live).native.crash("keep")
    return found


def check_raw(
    found: Mapping[str, _native.MemoryDisk],
    records: Mapping[int, Record],
    positions: range,
    scratch: Path,
) -> Figures:
    """Merge the files of all nodes, and compare the log with what hosts executed.

    ``positions`` are those that it had when the images were taken.

    Raises:
        ViolationError: it is not that, or took more memory than nodes promise.
    """
    with ExitStack() as stack:
        try:
            opened = [
                _opened(disk, scratch / name, stack) for name, disk in found.items()
            ]
            sources = [(directory, _streams(directory)) for directory in opened]
            merge = stack.enter_context(
                RawMerge(sources, begin=positions.start, on_hole="fail")
            )
            _compare(merge, records, positions)
        except LogError as error:
            text = str(error).replace(f"{scratch}/", "")
            raise ViolationError(f"the files of the nodes: {text}") from error
        figures = merge.figures()
    peak = max(source.pending_bytes_peak for source in figures.sources)
    if peak > ORDER_BYTES_MAX:
        raise ViolationError(f"a merge held {peak} bytes, {ORDER_BYTES_MAX} promised")
    return figures


def _opened(disk: _native.MemoryDisk, path: Path, stack: ExitStack) -> RawDirectory:
    for name, _ in disk.files():
        file = path / name.removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(disk.read(name))
    directory = RawDirectory(path / "node", order_bytes_max=ORDER_BYTES_MAX)
    return stack.enter_context(directory)


def _streams(directory: RawDirectory) -> dict[int, int]:
    return {
        row.stream: int(row.name.removeprefix(STREAM_PREFIX))
        for row in directory.logs()
        if row.name.startswith(STREAM_PREFIX)
    }


def _compare(merge: RawMerge, records: Mapping[int, Record], positions: range) -> None:
    expected = positions.start
    for position, value in _values(merge):
        if position == positions.stop:
            break  # What came later was not read by any host yet.
        if position != expected or records[position].value != value:
            raise ViolationError(f"the merge gives {position}, {expected} comes next")
        expected += 1
    if expected != positions.stop:
        raise ViolationError(f"the merge ends behind {expected - 1} of {positions}")


def _values(merge: RawMerge) -> Iterator[tuple[int, bytes]]:
    for rows in merge.encoded():
        for each in rows:
            batch = list(_native.Batch(each.batch).records(each.llsn))
            for at in range(each.count):
                yield each.position + at, batch[each.first + at].value
