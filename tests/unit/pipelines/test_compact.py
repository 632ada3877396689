"""The latest record of each key, whatever the work was cut into."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import braidlog
from braidlog.errors import (
    AlreadyExistsError,
    BeyondEndError,
    CorruptionError,
    InvalidArgumentError,
    UnavailableError,
)
from braidlog.pipelines import compact_job, shuffle
from braidlog.pipelines import latest as latest_module
from braidlog.pipelines.compact_job import Tombstones, compact
from braidlog.pipelines.job import Attempt, File, Job, Result
from braidlog.pipelines.latest import Fetch, Whole, fetch, latest
from braidlog.pipelines.manifest import read_manifest, verify
from braidlog.pipelines.shuffle_file import ShuffleFile
from braidlog.sources.origin import Origin

Row = tuple[int, bytes, bytes]
Appended = tuple[bytes | None, bytes | None]


def fill(path: Path, count: int, seed: int = 1) -> list[Appended]:
    """Append records of few keys, some gone, some without a key; return them."""
    draw = random.Random(seed)
    rows: list[Appended] = [
        (
            None if draw.random() < 0.05 else b"key %d" % (draw.random() ** 3 * 60),
            draw.choice([None, b"", *[b"value %d" % number * 5] * 6]),
        )
        for number in range(count)
    ]
    with braidlog.open(path, segment_bytes=64 << 10) as node:
        log = node.create_log("orders")
        for begin in range(0, count, 97):
            some = rows[begin : begin + 97]
            log.append_many([v for _, v in some], keys=[k for k, _ in some])
    return rows


def model(rows: list[Appended], until: int | None = None) -> list[Row]:
    """What a dictionary says."""
    latest: dict[bytes, tuple[int, bytes | None]] = {}
    for position, (key, value) in enumerate(rows[:until], 1):
        if key is not None:
            latest[key] = (position, value)
    return sorted(
        (at, key, value) for key, (at, value) in latest.items() if value is not None
    )


def found(output: Path) -> list[Row]:
    rows: list[Row] = []
    for entry in read_manifest(output)["files"]:
        file = File(**entry)
        verify(output, file)
        table = pq.read_table(output / file.path)
        keys = table["key"].to_pylist()
        assert keys == sorted(keys)
        rows += zip(
            table["position"].to_pylist(), keys, table["value"].to_pylist(), strict=True
        )
    return sorted(rows)


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    path = tmp_path_factory.mktemp("orders") / "data"
    return path, fill(path, 4000)  # type: ignore[return-value]


@pytest.mark.parametrize("until", [None, 1, 1234, 4000])
def test_it_is_what_a_dictionary_says(
    orders: tuple[Path, list[Row]], tmp_path: Path, until: int | None
) -> None:
    path, rows = orders
    origin = Origin("orders", path=str(path))
    report = compact(origin, tmp_path, until=until, workers=1, bytes_per_task=30_000)
    expected = model(rows, until)  # type: ignore[arg-type]
    assert found(tmp_path) == expected
    published = report.published
    last = until or len(rows)
    assert (published["begin"], published["end"]) == (1, last + 1)
    assert published["keys"] == report.figures["keys"] == len(expected)
    assert report.figures["records_read"] == last
    assert published["proved"] == [f"each position from 1 to {last} was read once"]
    assert report.tasks > (5 if until is None else 1)


def test_records_are_moved_once_or_read_again(
    orders: tuple[Path, list[Row]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many ranges what counts is fetched; whoever dies meanwhile goes on there."""
    path, rows = orders
    origin, size = Origin("orders", path=str(path)), 30_000
    with monkeypatch.context() as patch:
        patch.setattr(compact_job, "_RANGES_AT_ONCE", 1 << 20)
        moved = compact(origin, tmp_path / "moved", workers=1, bytes_per_task=size)

    def fail(origin: Origin, task: Fetch, attempt: Attempt) -> Result:
        if task.range == 1:
            raise UnavailableError("later")
        return fetch(origin, task, attempt)

    with monkeypatch.context() as patch:
        patch.setattr(compact_job, "fetch", fail)
        with pytest.raises(UnavailableError, match="later"):
            compact(origin, tmp_path / "fetched", workers=1, bytes_per_task=size)
    fetched = compact(origin, tmp_path / "fetched", workers=1, bytes_per_task=size)
    parts = len(fetched.published["files"])
    ranges = (fetched.tasks - 2 * parts) // 2
    # Collected, chosen, and one fetched.
    assert (fetched.resumed, moved.tasks) == (ranges + parts + 1, ranges + parts)
    assert found(tmp_path / "fetched") == found(tmp_path / "moved") == model(rows)  # type: ignore[arg-type]
    assert fetched.published["proved"] == moved.published["proved"]
    keys = {key for key, _ in rows if key is not None}  # type: ignore[misc]
    # Tombstones too: a value says what they are.
    assert fetched.figures["records_fetched"] == len(keys)
    assert fetched.figures["without_key"] == moved.figures["without_key"] > 0
    assert "records_fetched" not in moved.figures
    assert fetched.figures["records_read"] == moved.figures["records_read"]


def test_a_log_without_keys_has_no_latest_records(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "data", segment_bytes=64 << 10) as node:
        log = node.create_log("orders")
        for _ in range(20):
            log.append_many([b"value" * 20] * 50)
    origin = Origin("orders", path=str(tmp_path / "data"))
    report = compact(origin, tmp_path / "out", workers=1, bytes_per_task=20_000)
    assert report.figures["without_key"] == 1000
    assert (report.published["rows"], found(tmp_path / "out")) == ([0], [])


def test_what_was_chosen_is_fetched_or_the_task_fails(
    orders: tuple[Path, list[Row]], tmp_path: Path
) -> None:
    """A position that is not in the log is no record less."""
    chosen = shuffle.ShuffleWriter(
        Attempt(0, "choose", tmp_path, tmp_path), 1, split=shuffle.split_at
    )
    chosen.add(pa.record_batch({"position": [3, 4001], "part": [0, 0]}))
    chosen.finish()
    job = Job("test", {}, tmp_path, (), lambda _: {}, lambda: None)
    job.scratch.mkdir(parents=True)
    listed = shuffle.write_list(
        job, "choose", [Result({}, tuple(chosen.files), {"spans": chosen.spans})]
    )
    task = Fetch(0, listed, Whole(1, 4001, "", 1))
    with pytest.raises(CorruptionError, match="1 of 2 chosen records"):
        fetch(
            Origin("orders", path=str(orders[0])),
            task,
            Attempt(0, "fetch", tmp_path, tmp_path),
        )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.one_of(st.none(), st.binary(max_size=2)), max_size=20), max_size=4
    ),
    st.integers(0, 5),
)
def test_the_last_of_each_key_stays(
    chunks: list[list[bytes | None]], skipped: int
) -> None:
    """Whatever the chunks are, and where they are slices of larger ones."""
    column = pa.chunked_array(chunks, pa.binary())
    table = pa.table({"key": column, "position": range(len(column))}).slice(skipped)
    numbered = enumerate(column.to_pylist()[skipped:], skipped)
    last = {key: position for position, key in numbered if key is not None}
    kept = latest(table)
    assert kept["position"].to_pylist() == sorted(last.values())
    assert dict(zip(*map(pa.ChunkedArray.to_pylist, kept.columns), strict=True)) == last


def test_a_part_is_merged_in_steps(
    orders: tuple[Path, list[Row]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latest_module, "HELD_BYTES", 1000)
    path, rows = orders
    origin = Origin("orders", path=str(path))
    compact(origin, tmp_path, workers=1, bytes_per_task=30_000)
    assert found(tmp_path) == model(rows)  # type: ignore[arg-type]


def test_what_a_task_holds_is_bounded(tmp_path: Path) -> None:
    """It is shrunk as long as that helps, and written where it does not."""
    held = 20_000

    def written(keys: Callable[[int], bytes]) -> list[int]:
        attempt = Attempt(0, "collect", tmp_path, tmp_path)
        into = shuffle.ShuffleWriter(attempt, 3, held_bytes=held, shrink=latest)
        for begin in range(1, 4001, 40):
            positions = range(begin, begin + 40)
            into.add(
                pa.record_batch(
                    {
                        "position": pa.array(positions, pa.int64()),
                        "key": pa.array([keys(at) for at in positions], pa.binary()),
                        "value": pa.array([b"v" * 20] * 40, pa.binary()),
                    }
                )
            )
        into.finish()
        [file] = into.files
        with ShuffleFile(tmp_path / file.path) as output:
            of_chunk = output.entries(0, 3).reshape(3, output.chunks).T
            sizes = [
                sum(output.decode(entry).nbytes for entry in entries if entry["bytes"])
                for entries in of_chunk
            ]
        (tmp_path / file.path).unlink()
        return sizes

    [last] = written(lambda _: b"one")
    assert last < 1000
    many = written(lambda at: b"%d" % at)
    assert len(many) > 5
    assert max(many) < held + 4000


def test_what_a_tombstone_is(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "data") as node:
        log = node.create_log("orders")
        log.append(b'{"op":"put"}', key=b"a")
        log.append(b'{"op":"delete"}', key=b"b")
        log.append(b"", key=b"c")
        log.append(b"x", key=b"d", headers=[("gone", b"")])
        log.append(None, key=b"e")
        log.append(b"y", key=b"f", headers=[("other", b"1"), ("gone", None)])
    origin = Origin("orders", path=str(tmp_path / "data"))
    for number, (kind, text, keys) in enumerate(
        [
            ("null", "", "abcdf"),
            ("empty", "", "abdf"),
            ("none", "", "abcdef"),
            ("pattern", '"op":"del', "acdf"),
            ("header", "gone", "abc"),
        ]
    ):
        output = tmp_path / str(number)
        compact(origin, output, tombstones=Tombstones(kind, text), workers=1)
        rows = found(output)
        assert [key for _, key, _ in rows] == [key.encode() for key in keys]
        values = {key: value for _, key, value in rows}
        assert values.get(b"e") is None
        assert values.get(b"c", b"") == b""
    assert Tombstones() == Tombstones("null")
    for kind, text in [("other", ""), ("empty", "x"), ("header", ""), ("pattern", "(")]:
        with pytest.raises(InvalidArgumentError):
            Tombstones(kind, text)


def test_done_once_it_stays_as_it_is(tmp_path: Path) -> None:
    fill(tmp_path / "data", 300)
    origin = Origin("orders", path=str(tmp_path / "data"))
    first = compact(origin, tmp_path / "out", workers=1)
    with braidlog.open(tmp_path / "data") as node:
        node.log("orders").append(b"more", key=b"more")
    again = compact(origin, tmp_path / "out", workers=1)
    assert (again.unchanged, again.published) == (True, first.published)
    with pytest.raises(AlreadyExistsError, match="results of another job"):
        compact(origin, tmp_path / "out", until=301, workers=1)
    with pytest.raises(BeyondEndError, match="ends at 301, before the requested"):
        compact(origin, tmp_path / "later", until=302, workers=1)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=12)), min_size=1, max_size=50),
    st.integers(1, 9),
)
def test_keys_are_spread_as_clusters_do(keys: list[bytes | None], parts: int) -> None:
    from braidlog.client.connection.routing import stream_index

    batch = pa.record_batch(
        {
            "position": pa.array(range(7, 7 + len(keys)), pa.int64()),
            "key": pa.array(keys, pa.binary()),
        }
    )
    expected: list[list[int]] = [[] for _ in range(parts)]
    for position, key in enumerate(keys, 7):
        part = position % parts if key is None else stream_index(key, parts)
        expected[part].append(position)
    # Also where the batch is a slice of a larger one.
    padded = pa.concat_batches([batch, batch]).slice(0, len(keys))
    for each in (batch, padded):
        split = shuffle.split(each, parts)
        assert [part.column("position").to_pylist() for part in split] == expected
