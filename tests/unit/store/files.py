"""A directory with segments, cursors and producers, and ways to damage it."""

from pathlib import Path

from braidlog import Producer
from braidlog.store.inspect import frames, segments
from braidlog.store.inspection_rows import Frame
from braidlog.store.store import open_store

SEGMENT_BYTES = 64 << 10


def fill(data: Path) -> None:
    """Write two logs over several small segments, and close."""
    with open_store(data, segment_bytes=SEGMENT_BYTES) as node:
        orders = node.create_log("orders")
        small = node.create_log("small", compression="zstd")
        for i in range(1, 101):
            orders.append(bytes([i]) * 3000, producer=Producer(7, 1), sequence=i)
            small.append(b"%d" % i * 200, key=b"k")
        orders.cursor("billing").commit(50)


def batches(data: Path, log: str) -> list[tuple[Path, Frame]]:
    """Every batch frame of a log, with the file that it is in."""
    found = []
    for segment in segments(data):
        if segment.number is not None:
            rows = frames(data, segment.number, log=log)
            found += [(Path(segment.path), row) for row in rows if row.kind == "batch"]
    return found


def flip(path: Path, offset: int) -> None:
    """Damage one byte."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


def damage(data: Path, log: str, position: int) -> None:
    """Damage the batch that holds a position."""
    for path, frame in batches(data, log):
        first, count = frame.first or 0, frame.count or 0
        if first <= position < first + count:
            flip(path, frame.offset + frame.length - 20)
            return
    raise LookupError(position)
