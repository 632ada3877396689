"""What `top` makes of two looks at a cluster."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from braidlog.cli.cluster.sample import Sample, Sampler, Statuses, status_urls
from braidlog.cli.cluster.top import after, frame
from braidlog.cli.terminal.fit import fitted
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
        "cluster": "c",
        "ready": True,
        "why": "",
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


def test_what_something_else_answers_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A status of another program, or of a node of another cluster."""
    answers = [
        {"node": "prometheus"},
        {"node": 1, "ready": True},
        {"application": "other"},
        ["node"],
        status(1, 5, 5),
    ]
    urls = [f"http://h:{number}/status" for number in range(len(answers))]
    given = dict(zip(urls, answers, strict=True))

    def answer(url: str, timeout: float) -> io.BytesIO:
        return io.BytesIO(json.dumps(given[url]).encode())

    monkeypatch.setattr("urllib.request.urlopen", answer)
    assert Statuses(urls).ask() == ({1: status(1, 5, 5)}, ())
    foreign = {2: status(2, 901, 50) | {"cluster": "other"}}
    rows = looked(Sample(1.0, metadata(100, 1), foreign))
    assert rows["nodes"][1]["wal_bytes"] is None
    assert rows["streams"][0]["lag"] == {}


def shown(look: dict[str, Any], width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), highlight=False)
    lines = console.render_lines(fitted(look, console, frame), pad=False)
    return ["".join(part.text for part in line) for line in lines]


def crowd(streams: int, sick: int) -> dict[str, Any]:
    rows = looked(Sample(1.0, metadata(100, 1)), Sample(2.0, metadata(200, 2)))
    rows["logs"] = [rows["logs"][0] | {"log": "l" * 255}] * 5
    row = rows["streams"][0] | {"state": "ok", "log": "l" * 255}
    rows["streams"] = [row | {"stream": 1000 + number} for number in range(streams)]
    rows["streams"][sick] |= {"state": "unavailable"}
    return {"time": 0, **rows}


@pytest.mark.parametrize(
    ("width", "height"), [(32, 40), (40, 24), (60, 20), (80, 24), (100, 30), (400, 50)]
)
def test_a_terminal_shows_what_is_wrong_whatever_its_size(
    width: int, height: int
) -> None:
    lines = shown(crowd(500, sick=499), width, height)
    assert len(lines) <= height
    assert all(len(line.rstrip()) <= width for line in lines)
    [sick] = [line for line in lines if line.split()[:1] == ["1499"]]
    assert ("unavailable" if width >= 40 else "una") in sick
    text = " ".join(" ".join(lines).split())
    assert "not shown here: " in text
    assert " streams" in text


def test_a_terminal_that_is_too_small_for_anything() -> None:
    for width, height in ((1, 1), (20, 5)):
        shown(crowd(9, sick=3), width, height)


def test_all_is_shown_where_it_fits() -> None:
    look = crowd(5, sick=3)
    lines = shown(look, 300, 60)
    assert not any("not shown" in line for line in lines)
    heads = " ".join(lines)
    for name in ("votes", "cuts/s", "braid", "connections", "committed"):
        assert name in heads


def test_every_state_of_a_node_can_be_shown() -> None:
    look = crowd(1, sick=0)
    for state in ("up", "down", "draining", "readmitting"):
        look["nodes"][0] |= {"state": state, "why": "it has no room"}
        text = " ".join(shown(look, 160, 60))
        assert state in text
        assert "node 1: it has no room" in text


def test_what_was_is_not_shown_as_what_is() -> None:
    before = crowd(1, sick=0) | {"time": 1_000_000, "health": "ok"}
    said = [{"node": 2, "ready": False, "why": "no leader is known"}]
    look = {
        "time": 9_000_000,
        "error": "no node answered",
        "health": "unavailable",
        "leader": None,
        "said": said,
        "hosts": [],
    }
    later = after(after(before, look), look | {"time": 11_000_000})
    text = "\n".join(shown(later, 160, 60))
    assert "c  unavailable  leader none  1970-01-01T00:00:11Z" in text
    assert "as it was at 1970-01-01T00:00:01Z:" in text
    assert "node 2: no leader is known" in text
    assert "as it was" not in "\n".join(shown(after(later, before), 160, 60))
    assert "no node answered" in "\n".join(shown(after({}, look), 160, 60))
