"""What is read of a log with an archive in front of it, as Spark reads it.

The source behind is a model of two streams that is trimmed while tasks run.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from braidlog.archive import Archive, open_archive
from braidlog.archive.place import Place as ArchivePlace
from braidlog.archive.rows import COLUMNS
from braidlog.archive.writing import write_file
from braidlog.errors import InvalidArgumentError, NotFoundError, TrimmedError
from braidlog.sources.archived import ArchivedSource
from braidlog.sources.chunks import rechunk
from braidlog.sources.origin import Origin
from braidlog.sources.plan import Extent
from braidlog.sources.source import ALL_STREAMS, LogSource, Look
from braidlog.spark.source.options import ReadOptions, parse
from braidlog.spark.source.reader import stored_rows
from braidlog.spark.source.schema import Column, Rows
from braidlog.spark.source.selection import EVERYTHING
from braidlog.spark.source.tasks import Order, plan_tasks
from unit.archive import made

OPTIONS = ReadOptions(Origin("log", path="d", include_archive=True))
END = 61
# Which stream a position is of, and its LLSN there: runs of uneven lengths.
STREAMS = {p: 1 if p % 7 in (0, 1, 5) or 20 < p < 30 else 2 for p in range(1, END)}
LLSNS = {
    p: sum(STREAMS[q] == STREAMS[p] for q in range(1, p + 1)) for p in range(1, END)
}


def rows(begin: int, end: int) -> pa.RecordBatch:
    places = range(begin, end)
    return made.rows(
        begin,
        end - begin,
        stream=[STREAMS[place] for place in places],
        llsn=[LLSNS[place] for place in places],
    )


class Log(LogSource, Look):
    """Positions ``first`` to `END`, in batches of four; a look, and the source."""

    id = made.LOG_ID
    name = "log"
    end = END

    def __init__(self, where: Path, first: int) -> None:
        self.where, self.first = where, first
        self.trims: list[int] = []
        self.closed = False

    def look(self) -> Log:
        found = Log(self.where, self.first)
        return found

    def cut(self, position: int) -> dict[int, int]:
        before = [STREAMS[p] for p in range(1, position)]
        return {stream: 1 + before.count(stream) for stream in (1, 2)}

    def extents(
        self, begin: Mapping[int, int], end: Mapping[int, int]
    ) -> dict[int, list[Extent]]:
        assert all(begin[s] >= at for s, at in self.cut(self.first).items())
        return {s: [Extent(begin[s], end[s], 100)] for s in begin if begin[s] < end[s]}

    def batches(
        self,
        begin: int,
        end: int,
        *,
        columns: Sequence[str],
        stream: int = ALL_STREAMS,
        since: int | None = None,
        until: int | None = None,
        turn: int = 0,
    ) -> Iterator[pa.RecordBatch]:
        for at in range(1, END, 4):
            batch = rows(at, min(END, at + 4))
            name = "position" if stream == ALL_STREAMS else "llsn"
            keep = [
                begin <= row[name] < end and stream in (ALL_STREAMS, row["stream"])
                for row in batch.to_pylist()
            ]
            kept = batch.filter(pa.array(keep)).select(list(columns))
            if kept.num_rows:
                if kept["position"][0].as_py() < self.first:
                    raise TrimmedError("trimmed", first=self.first)
                # A directory and a cluster give it in different widths.
                at = columns.index("stream")
                yield kept.set_column(at, "stream", kept["stream"].cast(pa.int32()))
            if self.trims:
                self.first = self.trims.pop(0)

    def records(self, begin: int | None, end: int | None = None) -> Iterator[Any]:
        raise NotImplementedError

    def archive(self, location: str | os.PathLike[str] | None) -> Archive:
        return open_archive(location or self.where)

    def close(self) -> None:
        self.closed = True


def archive_to(where: Path, *edges: int) -> None:
    place = ArchivePlace.of(where)
    for begin, end in itertools.pairwise(edges):
        made.add(place, [write_file(place, begin, end, [rows(begin, end)], "a")])


COLUMNS_ASKED = tuple(
    Column(name, COLUMNS[name]) for name in ("stream", "llsn", "position", "value")
)


def read_all(source: ArchivedSource, order: Order, size: int) -> list[dict[str, Any]]:
    wanted = Rows(COLUMNS_ASKED, EVERYTHING, OPTIONS)
    tasks = plan_tasks(source.look(), EVERYTHING, order, size)
    assert len(tasks) > 1
    # Joined as the reader joins them, which wants one schema.
    found = [b for task in tasks for b in rechunk(stored_rows(source, task, wanted))]
    return [row for batch in found for row in batch.to_pylist()]


@pytest.mark.parametrize("order", ["stream", "global"])
@pytest.mark.parametrize("first", [1, 13, 23, 40])
def test_each_record_comes_once_also_while_it_is_trimmed(
    order: Order, first: int, tmp_path: Path
) -> None:
    archive_to(tmp_path, 1, 11, 28, 45)
    log = Log(tmp_path, first)
    log.trims = [*range(first + 1, 45, 3)]
    source = ArchivedSource(log)
    found = read_all(source, order, 60)
    expected = rows(1, END).select([c.name for c in COLUMNS_ASKED]).to_pylist()
    if order == "stream":
        for stream in (1, 2):
            mine = [row["llsn"] for row in found if row["stream"] == stream]
            assert mine == sorted(mine)
        found.sort(key=lambda row: row["position"])
    assert found == expected


@pytest.mark.parametrize("position", [1, 2, 11, 12, 20, 28, 29, 33, 44, 45, 50, END])
def test_cuts_are_those_of_the_log_before_it_was_trimmed(
    position: int, tmp_path: Path
) -> None:
    archive_to(tmp_path, 1, 11, 28, 45)
    whole = Log(tmp_path, 1)
    look = ArchivedSource(Log(tmp_path, 40)).look()
    assert look.cut(position) == whole.cut(position)
    assert (look.first, look.end) == (1, END)


def test_a_gap_is_said_when_it_is_planned(tmp_path: Path) -> None:
    archive_to(tmp_path, 5, 20)
    with pytest.raises(TrimmedError, match="positions 20 to 29 are lost"):
        ArchivedSource(Log(tmp_path, 30)).look()
    assert ArchivedSource(Log(tmp_path, 20)).look().first == 5
    log = Log(tmp_path / "none", 30)
    with pytest.raises(NotFoundError):
        ArchivedSource(log)
    assert log.closed


def test_the_option_names_the_archive() -> None:
    given = {"log": "l", "path": "d"}
    assert parse(given).origin.include_archive is False
    assert parse(given | {"includeArchive": "TRUE"}).origin.include_archive is True
    found = parse(given | {"includeArchive": "s3://bucket/a"})
    assert found.origin.include_archive == "s3://bucket/a"
    with pytest.raises(InvalidArgumentError, match="raw"):
        parse({"log": "l", "raw": "d", "includeArchive": "true"})
    assert found.origin.absolute().include_archive == "s3://bucket/a"
