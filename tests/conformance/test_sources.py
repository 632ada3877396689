"""Every source of a log says the same of it, and gives the same.

The logs differ in how many streams they have. What is expected is written down here:
position, time, key and value of each record. Streams and LLSNs are those that a source
gives, checked against its cuts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.errors import (
    BeyondEndError,
    InvalidArgumentError,
    NotFoundError,
    TrimmedError,
)
from braidlog.pipelines.archive_job import archive
from braidlog.sources import dead as dead_directories
from braidlog.sources.dead import DeadSource
from braidlog.sources.origin import Origin
from braidlog.sources.plan import Bounds, plan
from braidlog.sources.source import ALL_STREAMS, LogSource
from braidlog.testing.cluster import LocalCluster

COUNT = 300
LOG = "source"
ALL = ["position", "stream", "llsn", "timestamp", "key", "value", "headers"]

Row = tuple[int, int, bytes | None, bytes]
"""Position, time, key, value."""


def expected(begin: int = 1, end: int = COUNT + 1) -> list[Row]:
    return [
        (n, 1000 * n, None if n % 3 else b"k%d" % (n % 5), b"value %d" % n * (n % 9))
        for n in range(begin, end)
    ]


def fill(log: Any) -> None:
    rows = expected()
    for begin in range(0, COUNT, 20):
        some = rows[begin : begin + 20]
        for _, time, key, value in some[:10]:
            log.append(value, key=key, timestamp=time)
        for _, time, key, value in some[10:]:
            log.append_many([value], keys=[key], timestamps=[time])


@dataclass(frozen=True)
class Kind:
    """How to open it, where it begins, and whether its identity is known."""

    open: Callable[[], LogSource]
    first: int = 1
    identity: bool = True


def _directory(home: Path) -> Kind:
    with braidlog.open(home / "data") as node:
        fill(node.create_log(LOG))
    return Kind(Origin(LOG, path=str(home / "data")).open)


def _trimmed(home: Path) -> Kind:
    kind = _directory(home)
    with braidlog.open(home / "data") as node:
        node.log(LOG).trim(101)
    return replace(kind, first=101)


def _archived(home: Path, *, trim: bool) -> Kind:
    _directory(home)
    origin = Origin(LOG, path=str(home / "data"), include_archive=True)
    plain = replace(origin, include_archive=False)
    archive(plain, home / "a", until=170, bytes_per_file=1_000, trim=trim, workers=1)
    return Kind(origin.open)


def _dead(home: Path, *, compare: bool) -> Kind:
    _directory(home)
    origin = Origin(LOG, raw=(str(home / "data"),))
    return Kind(lambda: origin.open(compare=compare), identity=False)


def _cluster(cluster: LocalCluster) -> Origin:
    with braidlog.connect(cluster.seeds) as client:
        if LOG in client.logs():
            client.delete_log(LOG)
        fill(client.create_log(LOG, streams=3))
    return Origin(LOG, cluster=cluster.seeds)


def _clustered(cluster: LocalCluster, home: Path, *, archived: bool) -> Kind:
    origin = _cluster(cluster)
    if archived:
        archive(
            origin, home / "a", until=170, bytes_per_file=1_000, trim=True, workers=1
        )
    return Kind(replace(origin, include_archive=archived).open)


def _died(home: Path, *, compare: bool) -> Kind:
    """Three nodes, of which each was stopped with all that it had."""
    with LocalCluster(3, directory=home) as cluster:
        _cluster(cluster)
        raw = tuple(str(cluster.data(node)) for node in cluster.nodes)
    origin = Origin(LOG, raw=raw)
    return Kind(lambda: origin.open(compare=compare), identity=False)


KINDS: dict[str, Callable[[Path, Callable[[], LocalCluster]], Kind]] = {
    "directory": lambda home, _: _directory(home),
    "trimmed directory": lambda home, _: _trimmed(home),
    "archived directory": lambda home, _: _archived(home, trim=True),
    "archived, all still there": lambda home, _: _archived(home, trim=False),
    "dead directory": lambda home, _: _dead(home, compare=False),
    "dead directory, compared": lambda home, _: _dead(home, compare=True),
    "cluster": lambda home, seeds: _clustered(seeds(), home, archived=False),
    "archived cluster": lambda home, seeds: _clustered(seeds(), home, archived=True),
    "dead cluster": lambda home, _: _died(home, compare=False),
    "dead cluster, compared": lambda home, _: _died(home, compare=True),
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[pytest.mark.process] * ("cluster" in name))
        for name in KINDS
    ],
)
def kind(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Kind:
    home = tmp_path_factory.mktemp("source")
    return KINDS[request.param](home, lambda: request.getfixturevalue("cluster"))


@pytest.fixture
def source(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogSource]:
    # Some KB are read in ranges too.
    monkeypatch.setattr(dead_directories, "_BYTES_MIN", 1)
    with kind.open() as opened:
        yield opened


def rows_of(batches: Iterator[Any]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def plain(rows: list[dict[str, Any]]) -> list[Row]:
    return [
        (
            row["position"],
            int(row["timestamp"].timestamp() * 1_000_000),
            row["key"],
            row["value"],
        )
        for row in rows
    ]


def test_positions_come_in_order_and_once(kind: Kind, source: LogSource) -> None:
    first = kind.first
    for begin, end in [(first, COUNT + 1), (160, 181), (COUNT, COUNT + 1)]:
        found = rows_of(source.batches(begin, end, columns=ALL))
        assert plain(found) == expected(begin, end)
        assert list(found[0]) == ALL


def test_streams_hold_each_position_once(kind: Kind, source: LogSource) -> None:
    look = source.look()
    lows, highs = look.cut(look.first), look.cut(look.end)
    found = []
    for stream, low in lows.items():
        mine = rows_of(source.batches(low, highs[stream], columns=ALL, stream=stream))
        assert [row["llsn"] for row in mine] == list(range(low, highs[stream]))
        assert {row["stream"] for row in mine} <= {stream}
        found += mine
    found.sort(key=lambda row: row["position"])
    assert plain(found) == expected(kind.first)


def test_a_cut_says_where_positions_lie(kind: Kind, source: LogSource) -> None:
    look = source.look()
    assert (look.first, look.end) == (kind.first, COUNT + 1)
    rows = rows_of(source.batches(look.first, look.end, columns=["stream", "llsn"]))
    ends = look.cut(look.end)
    for position in range(look.first, look.end, 7):
        behind = rows[position - look.first :]
        cut = dict(ends)
        for row in reversed(behind):
            cut[row["stream"]] = row["llsn"]
        assert look.cut(position) == cut


def test_columns_come_as_asked_for(source: LogSource) -> None:
    for columns in (["llsn"], ["value", "position"], ["key", "stream"]):
        [batch, *_] = source.batches(150, 152, columns=columns)
        assert batch.schema.names == columns


def test_extents_cover_what_lies_between_cuts(source: LogSource) -> None:
    look = source.look()
    lows, highs = look.cut(look.first), look.cut(look.end)
    extents = look.extents(lows, highs)
    for stream, low in lows.items():
        spans = plan(extents[stream], Bounds(low, highs[stream]), 300)
        assert (spans[0].begin, spans[-1].end) == (low, highs[stream])
        assert len(spans) > 1
    for parts in (1, 16):
        spans = plan(
            look.by_position(look.first, look.end, parts),
            Bounds(look.first, look.end),
            300,
        )
        assert (spans[0].begin, spans[-1].end) == (look.first, look.end)
        assert len(spans) > 3


def test_ranges_are_cut_up_to_the_end(kind: Kind, source: LogSource) -> None:
    ranges = source.ranges(None, 300)
    assert (ranges[0].begin, ranges[-1].end) == (kind.first, COUNT + 1)
    assert all(one.end == two.begin for one, two in itertools.pairwise(ranges))
    assert len(ranges) > 3
    assert source.ranges(200, 300)[-1].end == 201
    assert source.ranges(200, 300, ahead=50)[-1].end == 251
    with pytest.raises(BeyondEndError):
        source.ranges(COUNT + 1, 300)


def test_records_are_the_rows(kind: Kind, source: LogSource) -> None:
    found = [(r.position, r.timestamp, r.key, r.value) for r in source.records(None)]
    assert found == expected(kind.first)
    some = [record.position for record in source.records(160, 181)]
    assert some == list(range(160, 181))
    assert not list(source.records(COUNT + 1))


def test_what_no_time_asks_for_may_be_left_out(kind: Kind, source: LogSource) -> None:
    found = source.batches(
        kind.first, COUNT + 1, columns=ALL, since=120_000, until=190_000
    )
    assert set(plain(rows_of(found))) >= set(expected(120, 190))


def test_what_was_trimmed_is_an_error(kind: Kind, source: LogSource) -> None:
    if kind.first == 1:
        assert source.ranges(1, 300)[0].begin == 1
        return
    with pytest.raises(TrimmedError) as raised:
        source.ranges(kind.first - 1, 300)
    assert raised.value.first == kind.first
    with pytest.raises(TrimmedError):
        list(source.batches(kind.first - 1, COUNT, columns=["value"]))
    with pytest.raises(TrimmedError):
        list(source.records(kind.first - 1))


def test_the_identity_is_that_of_the_log(kind: Kind, source: LogSource) -> None:
    assert bool(source.id) == kind.identity
    assert source.look().id == source.id
    assert not source.gaps


def test_archives_are_those_of_the_log(kind: Kind, source: LogSource) -> None:
    refused = NotFoundError if kind.identity else InvalidArgumentError
    with pytest.raises(refused):
        source.archive("/nowhere/at/all")


def test_closing_twice_is_fine(kind: Kind) -> None:
    source = kind.open()
    source.close()
    source.close()


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "data") as node:
        node.create_log("other")
    path = str(tmp_path / "data")
    with pytest.raises(NotFoundError, match=LOG):
        Origin(LOG, path=path).open()
    for compare in (True, False):
        with pytest.raises(NotFoundError, match=LOG):
            DeadSource([path], LOG, compare=compare).look()


def test_no_stream_is_the_number_of_all() -> None:
    assert ALL_STREAMS == 0
