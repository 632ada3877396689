"""What a repair could not save: declared holes, and who reads up to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import braidlog
from braidlog.errors import InvalidArgumentError, LostRecordsError
from braidlog.store import inspect
from braidlog.store.merge import RawDirectory, RawMerge
from unit.cli.conftest import Cli

RECORDS = 40
HOLE = range(11, 16)
LEFT = [position for position in range(1, RECORDS + 1) if position not in HOLE]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Eight batches of five records, of which the third is damaged, repaired."""
    data, copy = tmp_path / "damaged", tmp_path / "data"
    with braidlog.open(data, segment_bytes=1 << 20) as node:
        log = node.create_log("orders")
        for first in range(0, RECORDS, 5):
            values = [b"%d" % n for n in range(first, first + 5)]
            log.append_many(values, timestamps=first)
        log.cursor("reader").commit(13)
    # A checkpoint would be believed.
    (data / "CHECKPOINT").unlink(missing_ok=True)
    rows = [row for row in inspect.frames(data, 1, log="orders") if row.kind == "batch"]
    with next((data / "wal").glob("*.wal")).open("r+b") as file:
        file.seek(rows[2].offset + rows[2].length - 20)
        file.write(b"\xff" * 8)
    done = inspect.repair(data, copy)
    [loss] = done.plan.losses
    assert (loss.first, loss.end) == (HOLE.start, HOLE.stop)
    return copy


def positions(records: Any) -> list[int]:
    return [record.position for record in records]


@pytest.mark.parametrize("read_only", [False, True])
def test_both_sides_are_there_and_the_hole_raises(data: Path, read_only: bool) -> None:
    with braidlog.open(data, read_only=read_only) as node:
        log = node.log("orders")
        assert (log.first, log.end, len(log)) == (1, RECORDS + 1, RECORDS)
        assert [log[position].position for position in LEFT] == LEFT
        for position in HOLE:
            with pytest.raises(LostRecordsError, match="11 to 16") as caught:
                log.get(position)
            assert (caught.value.first, caught.value.end) == (HOLE.start, HOLE.stop)
        assert log.cursor("reader").position == 13
        assert log.find(10) == HOLE.stop  # That of the hole is no time of a record.


def until_lost(chunks: Iterable[list[int]]) -> tuple[list[int], LostRecordsError]:
    """Return the positions that come before a hole, and what is raised there."""
    found: list[int] = []
    try:
        for chunk in chunks:
            found += chunk
    except LostRecordsError as error:
        return found, error
    pytest.fail("nothing was raised")


def one_by_one(records: Iterable[Any]) -> Iterator[list[int]]:
    return ([record.position] for record in records)


def of_arrow(batches: Iterable[Any]) -> Iterator[list[int]]:
    return (pa.record_batch(each).column("position").to_pylist() for each in batches)


def test_readers_get_what_comes_before_and_go_on_behind(data: Path) -> None:
    with braidlog.open(data, read_only=True) as node:
        log = node.log("orders")
        found, error = until_lost(one_by_one(log.read()))
        assert found == LEFT[:10]
        assert positions(log.read(error.end)) == LEFT[10:]
        assert positions(log.read(skip_holes=True)) == LEFT
        assert positions(log.read(13, 18, skip_holes=True)) == [16, 17]
        assert positions(log.read(skip_holes=True, limit=12)) == LEFT[:12]
        assert positions(log.read(skip_holes=True, key=b"none")) == []
        found, _ = until_lost(one_by_one(log.subscribe(timeout=0)))
        assert found == LEFT[:10]
        assert positions(log.subscribe(timeout=0, skip_holes=True)) == LEFT


def test_arrow(data: Path) -> None:
    with braidlog.open(data) as node:
        log = node.log("orders")
        found, _ = until_lost(of_arrow(log.batches()))
        assert found == LEFT[:10]
        with pytest.raises(LostRecordsError):
            log.to_arrow()
        table = log.to_arrow(skip_holes=True)
        assert table.column("position").to_pylist() == LEFT
        log.append(b"next")
        batches = list(log.batches(skip_holes=True))
        assert sum(batch.num_rows for batch in batches) == len(LEFT) + 1
        with pytest.raises(InvalidArgumentError, match="separately"):
            log.read(include_archive=True, skip_holes=True)


async def test_asyncio(data: Path) -> None:
    async with braidlog.open_async(data) as node:
        log = await node.log("orders")
        records = log.read()
        for position in range(1, HOLE.start):
            assert (await anext(records)).position == position
        with pytest.raises(LostRecordsError):
            await anext(records)
        found = [r.position async for r in log.read(skip_holes=True)]
        assert found == LEFT
        follow = log.subscribe(timeout=0, skip_holes=True)
        assert [r.position async for r in follow] == LEFT
        table = await log.to_arrow(skip_holes=True)
        assert table.num_rows == len(LEFT)


def test_the_first_timestamp_is_that_of_the_first_record_left(data: Path) -> None:
    with braidlog.open(data) as node:
        log = node.log("orders")
        assert log.first_timestamp() == 0
        log.trim(12)
        assert log.first_timestamp() == log.get(HOLE.stop).timestamp == 15


def test_appends_go_on_and_the_hole_stays(data: Path) -> None:
    with braidlog.open(data) as node:
        log = node.log("orders")
        assert log.append(b"next") == RECORDS + 1
        log.trim(12)
        with pytest.raises(LostRecordsError):
            list(log.read())
        assert log.trim(HOLE.stop) == HOLE.stop
        assert positions(log.read()) == [*LEFT[10:], RECORDS + 1]


def test_files_say_it(data: Path) -> None:
    report = inspect.verify(data)
    assert report.findings == []
    assert [note.problem for note in report.notes if "hole" in note.problem] == [
        'log "orders": positions 11..16 are a declared hole'
    ]
    assert (data / "IDENTITY").read_bytes()[4] == 2
    note = json.loads((data / "SALVAGED").read_text())
    assert note["keep"] == "all"
    assert [(loss["first"], loss["end"]) for loss in note["losses"]] == [(11, 16)]


def test_the_command_line(data: Path, tmp_path: Path) -> None:
    cli = Cli(data)
    result = cli.run("read", "orders", code=5)
    assert len(result.stdout.splitlines()) == 10
    assert "declared hole" in result.stderr
    assert "--skip-holes" in result.stderr
    result = cli.run("read", "orders", "--skip-holes")
    assert len(result.stdout.splitlines()) == len(LEFT)
    for name in ("out.jsonl", "out.parquet"):
        out = tmp_path / name
        cli.run("export", "orders", str(out), code=5)
        assert not out.exists()
        result = cli.run("export", "orders", str(out), "--skip-holes")
        assert f"exported {len(LEFT)} records" in result.stdout
    cli.run("verify")


def test_raw_directories_are_read_up_to_it(data: Path) -> None:
    with RawDirectory(data) as directory:
        [row] = directory.logs()
        with RawMerge([(directory, {row.stream: 1})]) as merged:
            found, error = until_lost(of_arrow(merged))
    assert found == LEFT[:10]
    assert (error.first, error.end) == (HOLE.start, HOLE.stop)
