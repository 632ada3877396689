"""A directory that has a bit of everything an embedded log writes."""

import shutil
from pathlib import Path

import braidlog

SEGMENT_BYTES = 64 << 10
DAY_US = 86_400_000_000


def write(directory: Path, *, crashed: Path | None = None) -> None:
    """Fill `directory`; `crashed` gets what a crash just before the end would leave."""
    with braidlog.open(
        directory, segment_bytes=SEGMENT_BYTES, wal_bytes_max=40 * SEGMENT_BYTES
    ) as node:
        _fill(node)
        if crashed is not None:
            shutil.copytree(directory, crashed)


def write_nulls(directory: Path) -> None:
    """Fill `directory` with records of which some have null values."""
    with braidlog.open(
        directory, segment_bytes=SEGMENT_BYTES, wal_bytes_max=40 * SEGMENT_BYTES
    ) as node:
        log = node.create_log("nulls")
        log.append(b"before", timestamp=1)
        log.append(None, key=b"k", timestamp=2)
        log.append(b"", key=b"k", timestamp=3, headers=[("a", None), ("b", b"")])
        for compression in ("none", "zstd", "lz4"):
            many = node.create_log(compression, compression=compression)
            many.append_many(
                [None if n % 3 else b"the same words" for n in range(100)],
                keys=[b"%d" % (n % 9) for n in range(100)],
                timestamps=list(range(100)),
                headers=[
                    [("even", None), ("n", b"%d" % n)] if n % 2 else None
                    for n in range(100)
                ],
            )
        log.append_many([None, None], timestamps=7)


def _fill(node: braidlog.Store) -> None:
    slow = node.create_log("slow", retention_ms=7 * 86_400_000)
    slow.append(b"first", key=b"k", timestamp=DAY_US)
    slow.append_many([b"second", b"", b"fourth"], timestamps=[3, 2, DAY_US])
    plain = node.create_log("plain")
    gone = node.create_log("gone")
    for number in range(40):
        gone.append(b"x" * 3000, timestamp=number)
        plain.append(
            b"value %d" % number,
            key=None if number % 3 else b"key %d" % (number % 5),
            timestamp=1_700_000_000_000_000 + number,
            headers=[("trace", b"%d" % number), ("naïve", b"\xff")]
            if number % 4 == 0
            else None,
        )
    node.delete_log("gone")
    _compress(node)
    _produce(plain)
    plain.trim(12)
    # Segments of a dead log and a little of a live one: the cleaner copies that.
    filler = node.create_log("filler-\N{GREEK SMALL LETTER LAMDA}")
    for _ in range(40):
        filler.append(b"f" * 4000, timestamp=5)
    filler.trim(filler.end - 1)
    node._backend.store.clean(2, 0.9)
    for number in range(40):
        filler.append(b"%04d" % number * 1000, timestamp=number)
    # What follows is in the newest segment, as frames of its own.
    short = node.create_log("short-lived")
    short.append(b"soon gone", timestamp=1)
    node.delete_log("short-lived")
    slow.set_options(retention_bytes=1 << 20)
    plain.cursor("billing", pin=True).commit(30)
    plain.cursor("audit", lease=3600.0).commit(45)
    plain.cursor("left").delete()
    plain.append(b"last", timestamp=DAY_US)
    plain.trim(13)


def _compress(node: braidlog.Store) -> None:
    for name in ("zstd", "lz4"):
        log = node.create_log(name, compression=name)
        log.append_many(
            [b"the same words again and again %d" % (n // 7) for n in range(300)],
            keys=[None if n % 2 else b"even" for n in range(300)],
            timestamps=list(range(300)),
        )


def _produce(log: braidlog.Log) -> None:
    old, new = braidlog.Producer(7), braidlog.Producer(7, epoch=2)
    log.append(b"old", producer=old, sequence=1, timestamp=1)
    log.append_many([b"new"] * 3, producer=new, sequence=1, timestamps=2)
    log.append(b"between", timestamp=3)
    log.append(b"again", producer=new, sequence=4, timestamp=4)
