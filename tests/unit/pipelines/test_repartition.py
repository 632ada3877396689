"""The same records in another log: each once, keys in their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import braidlog
from braidlog.client.connection.routing import stream_index
from braidlog.errors import InvalidArgumentError, LogFullError
from braidlog.pipelines import audit, compact
from braidlog.pipelines import repartition_job as module
from braidlog.pipelines.repartition_job import Destination, producer_of, repartition
from braidlog.sources.origin import Origin

COUNT = 2000


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("orders") / "data"
    with braidlog.open(path, segment_bytes=64 << 10) as node:
        log = node.create_log("orders")
        for n in range(1, COUNT + 1):
            key = None if n % 11 == 0 else b"key %d" % (n % 37)
            log.submit(b"%d" % n, key=key, timestamp=n, headers=[("n", b"%d" % n)])
    return path


def contents(path: Path) -> list[tuple[Any, ...]]:
    with braidlog.open(path, read_only=True) as node:
        return [each.as_tuple()[1:] for each in node.log("copy").read()]


def test_a_directory_gets_a_copy(orders: Path, tmp_path: Path) -> None:
    report = repartition(
        Origin("orders", path=str(orders)),
        Destination("copy", path=str(tmp_path / "data")),
        tmp_path / "out",
        workers=1,
        bytes_per_task=20_000,
    )
    with braidlog.open(orders, read_only=True) as node:
        expected = [each.as_tuple()[1:] for each in node.log("orders").read()]
    assert contents(tmp_path / "data") == expected
    assert report.figures["records_appended"] == COUNT
    assert report.published["records"] == [COUNT]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "data",
        "manifest.json",
        "report.json",
    ]


def test_interrupted_in_the_middle_each_record_is_stored_once(
    orders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended = braidlog.Log.append_arrow
    calls = 0

    def failing(self: Any, data: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 2:
            return appended(self, data, **keywords)
        some = [data.read_next_batch() for _ in range(1 + calls)]
        appended(self, pa.Table.from_batches(some), **keywords)
        raise LogFullError("stored, and yet")

    monkeypatch.setattr(braidlog.Log, "append_arrow", failing)
    monkeypatch.setattr(module, "_APPEND_BYTES", 8_000)

    def attempt() -> Any:
        return repartition(
            Origin("orders", path=str(orders)),
            Destination("copy", path=str(tmp_path / "data")),
            tmp_path / "out",
            workers=1,
        )

    for _ in range(2):
        with pytest.raises(LogFullError):
            attempt()
    report = attempt()
    assert 0 < report.figures["records_appended"] < COUNT
    assert report.resumed == 1
    assert [row[2] for row in contents(tmp_path / "data")] == [
        b"%d" % n for n in range(1, COUNT + 1)
    ]
    assert attempt().unchanged


@pytest.mark.parametrize("parts", [1, 2, 7, 64])
def test_producers_are_at_home_in_their_streams(parts: int) -> None:
    found = [producer_of("identity", part, parts) for part in range(parts)]
    homes = [stream_index(each.to_bytes(8, "little"), parts) for each in found]
    assert homes == list(range(parts))
    assert found == [producer_of("identity", part, parts) for part in range(parts)]


def test_what_is_refused() -> None:
    refused: list[dict[str, Any]] = [
        {},
        {"path": "a", "cluster": "b"},
        {"path": "a", "streams": 2},
        {"cluster": "a", "streams": 0},
    ]
    for given in refused:
        with pytest.raises(InvalidArgumentError):
            Destination("copy", **given)


def test_of_an_empty_log_nothing_is_made(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "data") as node:
        node.create_log("orders")
    origin = Origin("orders", path=str(tmp_path / "data"))
    into = Destination("copy", path=str(tmp_path / "copy"))
    made = repartition(origin, into, tmp_path / "a", workers=1)
    assert made.published["records"] == []
    assert compact(origin, tmp_path / "b", workers=1).published["keys"] == 0
    assert audit(origin, tmp_path / "c", workers=1).published["findings"] == []
    assert contents(tmp_path / "copy") == []
