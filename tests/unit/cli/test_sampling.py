"""What `top` makes of two looks at a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.cli.sampling import Sample, Sampler, Statuses, status_urls
from braidlog.cli.top import frame
from braidlog.errors import InvalidArgumentError
from braidlog.wire.messages import (
    LogInfo,
    Metadata,
    NodeInfo,
    StreamInfo,
    StreamStatus,
)


def metadata(committed: int, version: int, log: bytes = b"1" * 16) -> Metadata:
    stream = StreamInfo(7, 3, StreamStatus.RUNNING, (2, 1), (3,), committed + 1)
    info = LogInfo(log, "orders", (stream,), version, committed, 1, 2, 1, b"", 0)
    nodes = tuple(
        NodeInfo(node, f"n{node}:7400", alive=True, voter=True) for node in (3, 1, 2)
    )
    return Metadata(5, 2, "c", nodes, (info,))


def status(node: int, end: int, appends: int, incarnation: int = 1) -> dict[str, Any]:
    return {
        "node": node,
        "incarnation": incarnation,
        "connections": 4,
        "replicas": [{"stream": 7, "end": end}, {"stream": 8, "end": 1}],
        "counters": {"appends": appends},
        "storage": {"segments": 2, "segment_bytes": 100},
    }


def looked(*samples: Sample) -> dict[str, Any]:
    sampler = Sampler()
    return [sampler.rows(sample) for sample in samples][-1]


def test_rates_count_between_two_looks() -> None:
    first = Sample(1.0, metadata(100, 10), {2: status(2, 101, 50)})
    second = Sample(3.0, metadata(300, 14), {2: status(2, 301, 60)})
    assert looked(first)["logs"][0]["records_per_second"] is None
    rows = looked(first, second)
    assert rows["logs"][0]["records_per_second"] == 100.0
    assert rows["logs"][0]["cuts_per_second"] == 2.0
    assert [node["node"] for node in rows["nodes"]] == [1, 2, 3]
    assert [node["appends_per_second"] for node in rows["nodes"]] == [None, 5.0, None]
    assert rows["nodes"][1]["wal_bytes"] == 200


def test_nothing_counts_across_a_restart_or_another_log_of_the_name() -> None:
    first = Sample(1.0, metadata(100, 10), {2: status(2, 101, 50)})
    again = {2: status(2, 101, 3, incarnation=2)}
    rows = looked(first, Sample(2.0, metadata(3, 1, b"2" * 16), again))
    assert rows["logs"][0]["records_per_second"] is None
    assert rows["nodes"][1]["appends_per_second"] is None


def test_lag_is_behind_the_furthest() -> None:
    statuses = {2: status(2, 120, 0), 1: status(1, 110, 0), 3: status(3, 90, 0)}
    rows = looked(Sample(1.0, metadata(100, 1), statuses))
    assert rows["streams"][0]["lag"] == {"2": 0, "1": 10, "3": 30}
    assert looked(Sample(1.0, metadata(100, 1)))["streams"][0]["lag"] == {}


def test_a_braid_is_what_each_look_found_and_bounded() -> None:
    samples = [Sample(float(n), metadata(n * n, n)) for n in range(60)]
    braid = looked(*samples)["streams"][0]["braid"]
    assert len(braid) == 32
    assert braid[-2:] == [115, 117]


def test_a_frame_while_nobody_leads() -> None:
    from rich.console import Console

    rows = {"time": 0, **looked(Sample(1.0, metadata(1, 1))), "error": "no leader"}
    console = Console(width=120, record=True, file=None)
    with console.capture() as captured:
        console.print(frame(rows))
        console.print(frame({"time": 0, "error": "no leader"}))
    assert captured.get().count("no leader") == 2


def test_addresses_of_statuses() -> None:
    assert status_urls(None) == ()
    assert status_urls("a:1, http://b:2/,") == (
        "http://a:1/status",
        "http://b:2/status",
    )
    for wrong in ("a", ":1", "a:b"):
        with pytest.raises(InvalidArgumentError, match="host:port"):
            status_urls(wrong)
    assert Statuses(["http://127.0.0.1:1/status"]).ask() == ({}, ())
