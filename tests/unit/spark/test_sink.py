"""The sink without Spark: routing, staged files, and a real log under its protocol."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StructField, StructType

import braidlog
from braidlog import Producer
from braidlog.errors import (
    InvalidArgumentError,
    NotFoundError,
    TooLargeError,
)
from braidlog.spark.sink import run, targets
from braidlog.spark.sink.ledger import protocol
from braidlog.spark.sink.ledger.lost import LostFilesError
from braidlog.spark.sink.options import parse_sink
from braidlog.spark.sink.rows import SCHEMA, Router, timed
from braidlog.spark.sink.staging import LEFT_AFTER_S, Staging, TaskFiles
from braidlog.spark.sink.targets import target_of
from braidlog.spark.sink.writers import BatchWriter, Message, StreamWriter

rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=3)),
        st.binary(max_size=3),
        st.one_of(st.none(), st.sampled_from([11, 12, 13])),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(rows, st.integers(1, 3), st.integers(0, 5))
def test_rows_go_where_their_keys_lead(
    given_rows: list[Any], count: int, turn: int
) -> None:
    streams = (11, 12, 13)[:count]
    wanted: dict[int, list[Any]] = {stream: [] for stream in streams}
    keys, values, places = [list(c) for c in zip(*given_rows, strict=True)] or [[]] * 3
    places = [place if place in streams else None for place in places]
    for key, value, place in zip(keys, values, places, strict=True):
        hashed = streams[turn % count] if key is None else None
        by_key = streams[zlib.crc32(key or b"") % count]
        wanted[place or hashed or by_key].append((key, value))
    batch = pa.record_batch(
        {
            "value": pa.array(values, pa.binary()),
            "stream": pa.array(places, pa.int32()),
            "key": pa.array(keys, pa.binary()),
        }
    )
    router = Router(streams, turn=turn)
    found: dict[int, list[Any]] = {stream: [] for stream in streams}
    for stream, part in router.route(batch):
        assert part.schema == SCHEMA
        columns = zip(part["key"].to_pylist(), part["value"].to_pylist(), strict=True)
        found[stream] += columns
    if set(places) <= {None}:
        assert found == wanted
    else:
        # Rows with a stream come before those without: only they have an order.
        assert {s: Counter(each) for s, each in found.items()} == {
            s: Counter(each) for s, each in wanted.items()
        }


def test_a_row_that_is_no_record_is_named() -> None:
    router = Router((1, 2), turn=0)
    placed = pa.record_batch({"value": [b"a"], "stream": pa.array([7], pa.int32())})
    with pytest.raises(
        InvalidArgumentError, match="has the value 7, but the streams of the log are 1"
    ):
        list(router.route(placed))


def test_options() -> None:
    given_options = {"PATH": "data", "log": "x", "checkpointLocation": "c"}
    options = parse_sink(given_options)
    assert (options.origin.path, options.lock_wait_s) == (
        str(Path("data").absolute()),
        60.0,
    )
    assert options.staging == str(Path("data/staging").absolute())
    assert "secret" not in repr(parse_sink({**CLUSTER, "token": "secret"}))
    assert parse_sink(CLUSTER, {"BRAIDLOG_TOKEN": "t"}).origin.token == "t"
    for wrong, message in [
        ({}, "needs the option 'log'"),
        ({"log": "x", "path": "a", "cluster": "b"}, "one of 'path'"),
        ({"log": "x", "cluster": "b"}, "needs the option 'staging'"),
        ({"log": "x", "path": "a", "stagin": "b"}, "did you mean 'staging'"),
        ({"log": "x", "path": "a", "lockWait": "soon"}, "a number of seconds"),
    ]:
        with pytest.raises(InvalidArgumentError, match=message):
            parse_sink(wrong)


def test_writers_that_get_nothing(node: braidlog.Store, tmp_path: Path) -> None:
    """No partitions at all; and tasks that all failed, of which Spark says None."""
    node.close()
    where = {"path": str(tmp_path / "data"), "log": "out"}
    options = parse_sink(where)
    schema = StructType([StructField("value", BinaryType())])
    job = BatchWriter(options, schema, overwrite=False)
    staging = tmp_path / "data" / "staging"
    assert any(staging.iterdir())
    job.commit([])
    assert not any(staging.iterdir())
    query = StreamWriter(options, schema, overwrite=False)
    query.commit([], 0)
    query.abort([None, None], 1)
    with pytest.raises(InvalidArgumentError, match="identified by its checkpoint"):
        StreamWriter(parse_sink({**where, "job": "x"}), schema, overwrite=False)


def test_a_log_made_anew_gets_nothing_of_what_was_staged_before(
    node: braidlog.Store, tmp_path: Path
) -> None:
    node.close()
    where = {"path": str(tmp_path / "data"), "log": "out"}
    schema = StructType([StructField("value", BinaryType())])
    job = BatchWriter(parse_sink(where), schema, overwrite=False)
    message = Message(run.Staged(job._work, 0))
    with braidlog.open(tmp_path / "data") as again:
        again.delete_log("out")
        again.create_log("out")
    with pytest.raises(NotFoundError, match="a new log has its name"):
        job.commit([message])


CLUSTER = {"cluster": "host:1", "log": "x", "staging": "/shared"}


# -- storing -------------------------------------------------------------------------


class Stop(Exception):
    """A driver that is killed."""


class Attempts:
    """Tries to store batches of a query in a real log."""

    def __init__(self, target: Any, root: Path, stream: int) -> None:
        self.target, self.staging, self.stream = target, Staging(root), stream
        self.tries = 0

    def stage(self, batch: int, count: int) -> tuple[run.Work, list[run.Staged]]:
        self.tries += 1
        work = run.Work("query", batch, f"try{self.tries}")
        parts = []
        for partition in range(2):
            folder = self.staging.attempt(*_path(work))
            task = f"{partition}-{self.tries}"
            files = TaskFiles(folder, self.staging.root, task, make=True)
            numbers = range(count * partition // 2, count * (partition + 1) // 2)
            router = Router((self.stream,), turn=0)
            values = [b"%d.%d" % (batch, number) for number in numbers]
            for stream, part in router.route(pa.record_batch({"value": values})):
                files.add(stream, part)
            parts.append(run.Staged(work, partition, tuple(files.close()), 100))
        return work, parts[::-1]

    def store(self, batch: int, count: int) -> None:
        work, parts = self.stage(batch, count)
        run.store(self.target, self.staging, work, parts, once=False)

    def values(self, log: Any) -> list[bytes]:
        return [record.value for record in log.read()]

    def forget(self, log: Any) -> None:
        """Let so many others store that the log forgets who stored before."""
        for other in range(1, 257):
            log.append(b"other", producer=Producer(other), sequence=1)


def _path(work: run.Work) -> tuple[str, int, str]:
    return work.query, work.batch, work.attempt


def expected(batches: dict[int, int]) -> list[bytes]:
    return [b"%d.%d" % (batch, n) for batch in batches for n in range(batches[batch])]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[braidlog.Store]:
    with braidlog.open(tmp_path / "data", segment_bytes=1 << 20) as node:
        node.create_log("out")
        yield node


@pytest.fixture
def attempts(node: braidlog.Store, tmp_path: Path) -> Attempts:
    target = target_of(node, "out")
    return Attempts(target, tmp_path / "staging", node.log("out").describe().stream)


def files(attempts: Attempts) -> list[Path]:
    return [path for path in attempts.staging.root.rglob("*") if path.is_file()]


def test_batches_are_stored_once_and_in_order(
    node: braidlog.Store, attempts: Attempts
) -> None:
    for batch in (0, 1, 1, 0, 2):
        attempts.store(batch, 10)
    log = node.log("out")
    assert attempts.values(log) == expected({0: 10, 1: 10, 2: 10})
    assert files(attempts) == []


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("batch", [0, 1])
def test_a_killed_driver_is_finished_by_the_next(
    node: braidlog.Store,
    attempts: Attempts,
    monkeypatch: pytest.MonkeyPatch,
    *,
    batch: int,
    forgets: bool,
) -> None:
    """Killed inside the append of a batch, and others store a lot before it goes on."""
    log, target = node.log("out"), attempts.target.ingest
    for earlier in range(batch):
        attempts.store(earlier, 10)
    append_all = target.append_all

    def half(appends: Any) -> Any:
        for stream, (batches, producer, sequence) in appends.items():
            table = pa.Table.from_batches(batches, SCHEMA).slice(0, 4)
            append_all({stream: (table.to_batches(), producer, sequence)})
        raise Stop

    monkeypatch.setattr(target, "append_all", half)
    with pytest.raises(Stop):
        attempts.store(batch, 10)
    monkeypatch.undo()
    if forgets:
        attempts.forget(log)
    attempts.store(batch, 12)  # What was decided has 10.
    if forgets:
        attempts.forget(log)
    attempts.store(batch + 1, 10)
    found = [value for value in attempts.values(log) if value != b"other"]
    assert found == expected(dict.fromkeys(range(batch + 2), 10))
    assert files(attempts) == []


def test_a_driver_that_gives_up_leaves_what_counts(
    node: braidlog.Store, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(_: Any) -> Any:
        raise Stop

    monkeypatch.setattr(attempts.target.ingest, "append_all", nothing)
    decided, parts = attempts.stage(0, 10)
    with pytest.raises(Stop):
        run.store(attempts.target, attempts.staging, decided, parts, once=False)
    monkeypatch.undo()
    other, _ = attempts.stage(0, 10)
    run.give_up(attempts.target, attempts.staging, decided)
    run.give_up(attempts.target, attempts.staging, other)
    assert {decided.attempt} == {path.parent.name for path in files(attempts)}
    attempts.store(0, 5)
    assert attempts.values(node.log("out")) == expected({0: 10})
    assert files(attempts) == []


def test_a_staged_file_is_checked(attempts: Attempts) -> None:
    work, parts = attempts.stage(0, 10)
    one, two = (attempts.staging.root / part.files[0].path for part in parts)
    data = one.read_bytes()
    one.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    store = run.store
    with pytest.raises(
        LostFilesError, match="differs from what its task wrote"
    ) as lost:
        store(attempts.target, attempts.staging, work, parts, once=False)
    path = str(one.relative_to(attempts.staging.root))
    assert (lost.value.query, lost.value.batch) == ("query", 0)
    assert lost.value.files == (path,)
    one.write_bytes(data)
    store(attempts.target, attempts.staging, work, parts, once=False)
    again, parts = attempts.stage(1, 10)
    two = attempts.staging.root / parts[0].files[0].path
    two.unlink()
    with pytest.raises(NotFoundError, match="worker mount the same storage"):
        store(attempts.target, attempts.staging, again, parts, once=False)
    large = [run.Staged(again, 0, (), 1 << 30)]
    with pytest.raises(TooLargeError, match="the log accepts at most"):
        store(attempts.target, attempts.staging, again, large, once=False)


def lose_all(attempts: Attempts) -> None:
    for path in files(attempts):
        path.unlink()


def test_a_batch_that_lost_its_files_is_finished_by_the_same_run(
    node: braidlog.Store, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed with 3 of 10 records stored, and then the staged files are gone."""
    append_all = attempts.target.ingest.append_all

    def some(appends: Any) -> Any:
        for stream, (batches, producer, sequence) in appends.items():
            table = pa.Table.from_batches(batches, SCHEMA).slice(0, 3)
            append_all({stream: (table.to_batches(), producer, sequence)})
        raise Stop

    attempts.store(0, 4)
    monkeypatch.setattr(attempts.target.ingest, "append_all", some)
    with pytest.raises(Stop):
        attempts.store(1, 10)
    monkeypatch.undo()
    lose_all(attempts)
    for other in (12, 8):  # Which of them are stored nobody can tell.
        with pytest.raises(LostFilesError, match="2 with 10 records are lost"):
            attempts.store(1, other)
    with pytest.raises(LostFilesError, match="same batch again"):
        attempts.store(2, 10)
    assert attempts.values(node.log("out")) == [*expected({0: 4}), *first_of(1, 3)]
    attempts.store(1, 10)
    attempts.store(2, 2)
    assert attempts.values(node.log("out")) == expected({0: 4, 1: 10, 2: 2})


def first_of(batch: int, count: int) -> list[bytes]:
    return [b"%d.%d" % (batch, number) for number in range(count)]


@pytest.fixture
def _listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every batch be a large one, whose files are in a list."""
    monkeypatch.setattr(protocol, "FILES_INLINE", 1)


def stopped(attempts: Attempts, batch: int, count: int, stored: int) -> None:
    """Store the beginning of a batch; then the driver is killed."""
    target = attempts.target
    append_all = target.ingest.append_all

    def some(appends: Any) -> Any:
        for stream, (batches, producer, sequence) in appends.items():
            table = pa.Table.from_batches(batches, SCHEMA).slice(0, stored)
            append_all({stream: (table.to_batches(), producer, sequence)})
        raise Stop

    target.ingest.append_all = some
    with pytest.raises(Stop):
        attempts.store(batch, count)
    target.ingest.append_all = append_all


@pytest.mark.usefixtures("_listed")
def test_a_batch_whose_files_are_listed_is_finished_by_the_next(
    node: braidlog.Store, attempts: Attempts
) -> None:
    attempts.store(0, 4)
    stopped(attempts, 1, 10, stored=3)
    assert [path.suffix for path in sorted(files(attempts))].count(".files") == 1
    attempts.store(1, 12)  # What was decided has 10.
    attempts.store(2, 2)
    assert attempts.values(node.log("out")) == expected({0: 4, 1: 10, 2: 2})
    assert files(attempts) == []


@pytest.mark.usefixtures("_listed")
@pytest.mark.parametrize("damage", ["gone", "cut", "flipped"])
def test_a_list_that_is_lost_is_said_or_made_up_for(
    node: braidlog.Store, attempts: Attempts, damage: str
) -> None:
    stopped(attempts, 0, 10, stored=3)
    [path] = [each for each in files(attempts) if each.suffix == ".files"]
    data = path.read_bytes()
    path.write_bytes(data[:-1] if damage == "cut" else data[:9] + b"0" + data[10:])
    if damage == "gone":
        path.unlink()
    why = "is not there" if damage == "gone" else "differs from what its driver wrote"
    with pytest.raises(LostFilesError, match=f"the 2 files .* {why}") as lost:
        attempts.store(0, 12)
    assert lost.value.files == (str(path.relative_to(attempts.staging.root)),)
    assert attempts.values(node.log("out")) == first_of(0, 3)
    attempts.store(0, 10)
    assert attempts.values(node.log("out")) == expected({0: 10})
    assert files(attempts) == []


def test_a_batch_of_more_files_than_a_record_has_room_for(
    node: braidlog.Store, attempts: Attempts
) -> None:
    """90,000 staged files, of which all but two are the same one without records."""
    work, parts = attempts.stage(0, 10)
    folder = attempts.staging.attempt(*_path(work))
    task = TaskFiles(folder, attempts.staging.root, "2-9", make=True)
    task.add(attempts.stream, timed(pa.RecordBatch.from_pylist([], SCHEMA), 0))
    [empty] = task.close()
    parts.append(run.Staged(work, 2, (empty,) * 90_000))
    run.store(attempts.target, attempts.staging, work, parts, once=False)
    assert attempts.values(node.log("out")) == expected({0: 10})
    query = attempts.target.ledger.read().query("query")
    assert (query.batch, query.done, files(attempts)) == (0, True, [])


def test_a_task_that_is_late_leaves_nothing(attempts: Attempts) -> None:
    """One that writes when its job is given up, and one that begins then."""
    staging = attempts.staging
    work = run.Work("job", 0, "try")
    staging.begin(*_path(work))
    early, late = (
        TaskFiles(staging.attempt(*_path(work)), staging.root, task)
        for task in ("0-0", "0-1")
    )
    [(stream, rows)] = Router((attempts.stream,), turn=0).route(
        pa.record_batch({"value": [b"a"]})
    )
    early.add(stream, rows)
    run.give_up(attempts.target, staging, work)
    early.add(stream, rows)
    with pytest.raises(NotFoundError, match="the job was cancelled"):
        early.close()
    with pytest.raises(NotFoundError, match="the job was cancelled"):
        late.add(stream, rows)
    early.discard()
    late.discard()
    assert not any(staging.root.iterdir())


def test_what_a_driver_began_to_remove_goes_with_the_next_batch(
    attempts: Attempts,
) -> None:
    left, _ = attempts.stage(7, 4)
    folder = attempts.staging.attempt(*_path(left))
    folder.rename(folder.with_name(f"{folder.name}.gone-0"))
    attempts.store(0, 4)
    assert not any(attempts.staging.root.iterdir())


def test_what_dead_jobs_left_is_removed_a_week_later(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, _ = attempts.stage(7, 4)
    folder = attempts.staging.attempt(*_path(left))
    attempts.store(0, 4)
    assert folder.exists()
    old = folder.stat().st_mtime - LEFT_AFTER_S - 60
    os.utime(folder, (old, old))
    attempts.store(1, 4)
    assert not folder.exists()


def test_the_name_of_a_job_is_one_part_of_a_path(tmp_path: Path) -> None:
    staging = Staging(tmp_path)
    for name in ("..", ".", "a/b", "../../etc"):
        path = staging.attempt(name, 0, "a")
        assert path.resolve().is_relative_to(tmp_path.resolve())
        assert len(path.relative_to(tmp_path).parts) == 3


def test_a_directory_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    options = parse_sink({"path": str(tmp_path / "none"), "log": "x"})
    with pytest.raises(NotFoundError), targets.opened(options):
        pass
    assert not (tmp_path / "none").exists()
