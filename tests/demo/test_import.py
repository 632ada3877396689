"""The importing process and the one that kills it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from examples.demo import importer, supervisor
from examples.demo.events import Event, encode, producer_of
from examples.demo.files import survey, write_events
from examples.demo.options import LOG, DemoError
from examples.demo.replay import Replay
from examples.demo.supervisor import Mark, marks, run_import

import braidlog


def make_events(count: int) -> list[Event]:
    """Three sources that take turns, in runs of many lengths."""
    sequences = [0, 0, 0]
    events = []
    for n in range(count):
        source = (n // (n % 7 + 1)) % 3
        entry = None if n % 5 == 4 else (f"blob{n}", "100644")
        events.append(
            Event(n, f"s{source}", sequences[source], "c", "a", f"p{n % 50}", entry)
        )
        sequences[source] += 1
    return events


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    list(write_events(path, make_events(5000)))
    return path


def replay_of(data: Path) -> Replay:
    replay = Replay()
    with braidlog.open(data, read_only=True) as node:
        for record in node.log(LOG).read():
            replay.feed([(record.position, record.timestamp, record.key, record.value)])
    return replay


@pytest.mark.parametrize(
    ("events", "kills", "expected"),
    [
        (100, 0, []),
        (100, 1, [Mark(50, 75)]),
        (90, 2, [Mark(30, 45), Mark(60, 75)]),
        (1, 1, [Mark(0, 0)]),
        (2, 3, [Mark(0, 0), Mark(1, 1), Mark(1, 1)]),
    ],
)
def test_marks_lie_before_the_end(
    events: int, kills: int, expected: list[Mark]
) -> None:
    assert marks(events, kills) == expected


def test_holds_and_goes_on_where_the_log_stopped(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    arguments = ["--data", str(data), "--input", str(source)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.StringIO())
        importer.main([*arguments, "--hold-at", "1234"])
    with braidlog.open(data) as node:
        assert node.log(LOG).end == 1235
    importer.main(arguments)
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [r["stored"] for r in reports if r["event"] == "ready"] == [0, 1234]
    assert reports[-1] == {"event": "done", "stored": 5000}
    assert 8 <= reports[-2]["resent"] <= 100
    replay = replay_of(data)
    assert (replay.records, replay.lost, replay.doubled) == (5000, 0, 0)
    assert replay.digest == survey(source).digest


@pytest.mark.process
@pytest.mark.timeout(180)
def test_kills_lose_and_double_nothing(tmp_path: Path, source: Path) -> None:
    data, seen = tmp_path / "data", list[int]()
    outcome = run_import(data, source, 5000, 3, seen.append)
    assert len(outcome.kills) == 3
    assert all(kill.found >= kill.acknowledged for kill in outcome.kills)
    assert [1250 <= outcome.kills[0].found < 2500, seen[-1] == 5000] == [True, True]
    assert outcome.resent >= 24
    replay = replay_of(data)
    assert (replay.records, replay.lost, replay.doubled) == (5000, 0, 0)
    assert replay.mismatched == 0
    assert replay.digest == survey(source).digest


@pytest.mark.process
@pytest.mark.timeout(180)
def test_a_failing_process_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(encode(make_events(1)[0]) + b"\nnonsense\n")
    with pytest.raises(DemoError, match=r"ended with code 1: .*JSONDecodeError"):
        run_import(tmp_path / "data", path, 2, 0, lambda count: None)


def test_an_acknowledged_event_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="LOST: 5 events were acknowledged"):
        supervisor._reopen(tmp_path / "data", supervisor._Run(pid=1, acknowledged=5))


def test_producers_are_stable_and_apart() -> None:
    first, second = producer_of("a"), producer_of("b")
    assert first == producer_of("a")
    assert first.id != second.id
