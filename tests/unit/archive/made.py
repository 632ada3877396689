"""Archives for tests: of records that were written down, and of open logs."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import braidlog
from braidlog.archive.layout import ArchivedFile, Manifest
from braidlog.archive.place import Place
from braidlog.archive.publishing import next_generation, publish
from braidlog.archive.reading import newest
from braidlog.archive.rows import COLUMNS
from braidlog.archive.writing import SCHEMA, write_file

LOG_ID = "0123456789abcdef" * 2


def rows(begin: int, count: int, **columns: Iterable[Any]) -> pa.RecordBatch:
    """Return records of stream 1 that say where they are."""
    places = range(begin, begin + count)
    cells: dict[str, Iterable[Any]] = {
        "position": places,
        "stream": [1] * count,
        "llsn": places,
        "timestamp": [1000 * place for place in places],
        "key": [None if place % 3 == 0 else b"k%d" % (place % 5) for place in places],
        "value": [b"value %d" % place for place in places],
        "headers": [[("h", b"%d" % place)] * (place % 3) for place in places],
    } | columns
    arrays = [pa.array(list(cells[name]), kind) for name, kind in COLUMNS.items()]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def files(place: Place, *edges: int) -> list[ArchivedFile]:
    """Write a file for each range between two edges."""
    return [
        write_file(place, begin, end, [rows(begin, end - begin)], secrets.token_hex(4))
        for begin, end in itertools.pairwise(edges)
    ]


def add(
    place: Place,
    new: Iterable[ArchivedFile],
    *,
    log: str = "log",
    log_id: str = LOG_ID,
    job: str = "job",
) -> Manifest:
    """Publish the next generation with these files."""
    manifest = next_generation(
        newest(place), log=log, log_id=log_id, job=job, files=list(new)
    )
    return publish(place, manifest, secrets.token_hex(4))


def placed(log: Any, begin: int, end: int) -> Iterator[pa.RecordBatch]:
    """Give an embedded log's records with all columns that an archive has."""
    for batch in log.batches(begin, end):
        count = batch.num_rows
        yield batch.append_column(
            "stream", pa.repeat(pa.scalar(1, pa.int64()), count)
        ).append_column("llsn", batch["position"])


def archive_log(log: braidlog.Log, where: Path | str, *edges: int) -> Manifest:
    """Archive ranges of an embedded log."""
    place = Place.of(where)
    new = [
        write_file(place, begin, end, placed(log, begin, end), secrets.token_hex(4))
        for begin, end in itertools.pairwise(edges)
    ]
    return add(place, new, log=log.name, log_id=log.id)


def archive_table(table: pa.Table, log_id: str, where: Path) -> Manifest:
    """Archive records as a log gives them, as if they were of one stream."""
    place = Place.of(where)
    first, count = table["position"][0].as_py(), table.num_rows
    whole = table.append_column("stream", pa.repeat(pa.scalar(1, pa.int64()), count))
    whole = whole.append_column("llsn", whole["position"]).combine_chunks()
    file = write_file(place, first, first + count, whole.to_batches(), "a")
    return add(place, [file], log_id=log_id)
