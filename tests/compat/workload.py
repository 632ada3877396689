"""A directory that has a bit of everything an embedded log writes."""

import shutil
from pathlib import Path
from typing import Any

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


def write_tables(directory: Path, *, crashed: Path | None = None) -> None:
    """Make a directory of two logs whose tables came, changed and went."""
    with braidlog.open(directory, segment_bytes=SEGMENT_BYTES) as node:
        orders = node.create_log("orders")
        other = node.create_log("other")
        orders.append_many([b"%d" % n for n in range(20)], timestamps=[1] * 20)
        orders.trim(4)
        log, start = int(orders.id, 16), orders.first
        store = node._backend.store
        options = b'{"history":0}'

        def create(first: int, name: str, *fields: str) -> tuple[Any, ...]:
            indexes = [
                (first + 2 + n, f"by {field}", field.encode())
                for n, field in enumerate(fields)
            ]
            return ("create", first, name, log, start, first + 1, options, indexes)

        store.change_tables([create(100, "stock", "json:/city"), create(200, "gone")])
        late = (100, 300, "late", b"json:/price:float", 10)
        store.change_tables([("rename", 200, "renamed"), ("build", *late)])
        given_up = (100, 301, "given up", b"value", 10)
        store.change_tables([("build", *given_up), ("activate", 100, 300, 12)])
        store.change_tables([("abort", 100, 301, 12), ("drop", 200)])
        # So that a preamble has tables, too.
        other.append_many([b"o" * 1000] * 100, timestamps=[2] * 100)
        store.change_tables(
            [
                ("replace", 100, 400, 7, 401, [402, 403]),
                create(500, "stock of 2", "value", "header:city"),
                ("unindex", 500, 502),
                ("build", 500, 504, "half", b"value", 9),
                ("options", 500, b'{"history":9}'),
            ]
        )
        store.move_table_pin(500, 11)
        # What follows the preamble has one of each.
        again = (400, 600, "again", b"value", 9)
        store.change_tables([create(700, "short-lived"), ("build", *again)])
        store.change_tables([("abort", 400, 600, 21), ("rename", 700, "soon gone")])
        store.change_tables([("build", 400, 601, "used", b"header:x", 9)])
        store.change_tables([("activate", 400, 601, 21), ("drop", 700)])
        if crashed is not None:
            shutil.copytree(directory, crashed)


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
