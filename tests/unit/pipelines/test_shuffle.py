"""Records between two stages: a part is read alone, and descriptors stay small."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import braidlog
from braidlog.app.log.source import LOG_NAME
from braidlog.client.arrow import log_schema
from braidlog.errors import CorruptionError
from braidlog.pipelines import compact_job, shuffle
from braidlog.pipelines.compact_job import compact
from braidlog.pipelines.job import Attempt, Job, Report, Result
from braidlog.pipelines.journal import JobJournal
from braidlog.pipelines.repartition_job import Destination, repartition
from braidlog.pipelines.replay_job import replay
from braidlog.pipelines.shuffle_file import ShuffleFile
from braidlog.sources.origin import Origin
from braidlog.sources.plan import Span, joined
from process.replayed import fill, near

SCHEMA = log_schema(["position", "value"])


def batch_of(rows: list[tuple[int, int]]) -> pa.RecordBatch:
    """Rows are (position, part)."""
    positions = pa.array([position for position, _ in rows], pa.int64())
    values = pa.array([b"%d" % position for position, _ in rows], pa.binary())
    batch = pa.RecordBatch.from_arrays([positions, values], schema=SCHEMA)
    numbers = pa.array([part for _, part in rows], pa.int32())
    return batch.append_column("part", numbers)


def written(home: Path, name: str, rows: list[tuple[int, int]], **how: Any) -> Any:
    attempt = Attempt(0, name, home, home)
    into = shuffle.ShuffleWriter(attempt, 3, split=shuffle.split_at, **how)
    for at in range(0, len(rows), 4):
        into.add(batch_of(rows[at : at + 4]))
    into.finish()
    return into


def listed(home: Path, *made: Any) -> str:
    job = Job("test", {}, home, (), lambda _: {}, lambda: None)
    job.scratch.mkdir(parents=True, exist_ok=True)
    results = [Result({}, tuple(m.files), {"spans": m.spans}) for m in made]
    return shuffle.write_list(job, "first", results)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=60),
    st.sampled_from([1, 200, 1 << 20]),
    st.integers(0, 60),
)
def test_each_part_is_read_alone_and_in_order(
    parts: list[int], held: int, cut: int
) -> None:
    rows = list(enumerate(parts, 1))
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        made = [
            written(home, "b", rows[cut:], held_bytes=held),
            written(home, "a", rows[:cut], held_bytes=held),
        ]
        where, read = listed(home, *made), 0
        for number in range(3):
            part = shuffle.ShuffleReader(home, where, number)
            found = [at for b in part.batches() for at in b["position"].to_pylist()]
            assert found == [at for at, part in rows if part == number]
            assert sum(each.counts[number] for each in made) == len(found)
            read += part.bytes_read
        assert read == sum(each.bytes_written for each in made)
        left = {path.suffix for path in home.iterdir() if path.is_file()}
        assert left == {".piece"}


def test_a_piece_holds_some_chunks_and_not_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle, "_CHUNKS_MAX", 3)
    rows = [(at, at % 3) for at in range(1, 41)]  # Ten chunks of four.
    made = written(tmp_path, "a", rows, held_bytes=1)
    assert made.spans == [(1, 13), (13, 25), (25, 37), (37, 41)]
    part = shuffle.ShuffleReader(tmp_path, listed(tmp_path, made), 1)
    found = [at for b in part.batches() for at in b["position"].to_pylist()]
    assert found == list(range(1, 41, 3))


def test_damage_is_found_where_it_is_read(tmp_path: Path) -> None:
    rows = [(at, at % 3) for at in range(1, 200)]
    made = written(tmp_path, "a", rows, held_bytes=500)
    where = listed(tmp_path, made)
    [file] = made.files
    path = tmp_path / file.path
    with ShuffleFile(path) as output:
        [*_, entry] = [e for e in output.entries(2) if e["bytes"]]
    data = bytearray(path.read_bytes())
    data[int(entry["begin"]) + int(entry["bytes"]) // 2] ^= 1
    path.write_bytes(data)
    list(shuffle.ShuffleReader(tmp_path, where, 1).batches())
    with pytest.raises(CorruptionError, match="run the job again") as caught:
        list(shuffle.ShuffleReader(tmp_path, where, 2).batches())
    assert (caught.value.path, caught.value.offset) == (str(path), entry["begin"])
    for cut in (len(data) - 1, 9, 0):
        path.write_bytes(data[:cut])
        with pytest.raises(CorruptionError, match="damaged"):
            list(shuffle.ShuffleReader(tmp_path, where, 1).batches())
    path.unlink()
    with pytest.raises(CorruptionError, match="is missing"):
        list(shuffle.ShuffleReader(tmp_path, where, 1).batches())
    (tmp_path / where).write_bytes(b"[")
    with pytest.raises(CorruptionError, match="cannot be read"):
        list(shuffle.ShuffleReader(tmp_path, where, 1).batches())


@given(st.integers(0, 50), st.integers(1, 20))
def test_neighbours_are_joined(count: int, most: int) -> None:
    ranges = [Span(at, at + 1, 10) for at in range(count)]
    found = joined(ranges, most)
    assert len(found) <= most
    assert [at for each in found for at in range(each.begin, each.end)] == [
        *range(count)
    ]
    assert all(each.bytes == 10 * (each.end - each.begin) for each in found)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs")
    with braidlog.open(path / "orders", segment_bytes=64 << 10) as node:
        log = node.create_log("orders")
        for n in range(2000):
            log.submit(b"%d" % n * 9, key=b"k%d" % (n % 301))
    with near.open(path / "bank") as host:
        fill(host, 300)
    return path


def run(name: str, logs: Path, output: Path, size: int, tasks: int = 3) -> Report:
    orders = Origin("orders", path=str(logs / "orders"))
    if name == "compact":
        return compact(orders, output, workers=1, bytes_per_task=size)
    if name == "repartition":
        into = Destination("copy", path=str(output) + "-copy")
        return repartition(orders, into, output, workers=1, bytes_per_task=size)
    return replay(
        "process.replayed:near",
        Origin(LOG_NAME, path=str(logs / "bank" / "log")),
        output,
        tasks=tasks,
        workers=1,
        bytes_per_task=size,
    )


@pytest.mark.parametrize("name", ["compact", "repartition", "replay"])
def test_descriptors_do_not_grow_with_the_number_of_pieces(
    name: str, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact_job, "_PART_BYTES", 20_000)
    plans: list[list[Any]] = []
    keep = JobJournal.write_tasks

    def write_tasks(self: JobJournal, stage: str, tasks: Any) -> None:
        if tasks:
            plans.append(tasks)
        keep(self, stage, tasks)

    monkeypatch.setattr(JobJournal, "write_tasks", write_tasks)
    for size in (4_000, 1 << 20):
        figures = run(name, logs, tmp_path / str(size), size).figures
        if name != "replay":
            # Each byte that a stage left was decoded by one task, once.
            assert figures["shuffle_bytes_read"] == figures["shuffle_bytes_written"] > 0
    # The first run of `compact` has two stages more between these.
    many, *between, second, one, same = plans
    assert len(between) == (2 if name == "compact" else 0)
    assert len(many) > 5 * len(one)
    assert len(second) == len(same)
    for tasks in (*between, [*second, *same]):
        sizes = [len(msgspec.json.encode(task)) for task in tasks]
        # The hash of the job has one length, positions and numbers nearly so.
        assert max(sizes) - min(sizes) < 40
        assert max(sizes) < 250


def test_a_command_is_decoded_by_the_task_that_executes_it(
    logs: Path, tmp_path: Path
) -> None:
    """What all tasks read is a constant, and not the log."""
    figures = [
        run("replay", logs, tmp_path / str(tasks), 20_000, tasks).figures
        for tasks in (1, 2, 7)
    ]
    [wrote] = {each["shuffle_bytes_written"] for each in figures}
    one, two, seven = (each["shuffle_bytes_read"] for each in figures)
    for_all = two - one
    assert seven - one == 6 * for_all
    # Each byte of a partition once.
    assert 0.8 * wrote < one - for_all < wrote
