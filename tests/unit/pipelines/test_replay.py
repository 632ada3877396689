"""Replay in tasks: the state hashes of the embedded one, however it is cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.app.errors import UnknownProcedureError
from braidlog.app.log.source import LOG_NAME
from braidlog.app.replay.audit import look_at
from braidlog.app.replay.inputs import commands_of
from braidlog.app.replay.run import Replay
from braidlog.app.replay.run import replay as embedded
from braidlog.errors import (
    BeyondEndError,
    CorruptionError,
    InvalidArgumentError,
    NotFoundError,
    NotReadyError,
)
from braidlog.pipelines import Report, replay_job
from braidlog.pipelines.manifest import read_manifest
from braidlog.pipelines.replay_job import replay
from braidlog.sources.origin import Origin
from process.replayed import PARTITIONS, fill, near, wide

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("banks")
    for application in (near, wide):
        with application.open(path / application.name) as host:
            fill(host, 400)
    return path


def log_of(bank: Path) -> Origin:
    return Origin(LOG_NAME, path=str(bank / "log"))


@pytest.mark.parametrize(("name", "tasks"), [("near", 1), ("near", 7), ("wide", 7)])
@pytest.mark.parametrize("until", [None, 250])
def test_the_hashes_are_those_of_the_embedded_replay(
    banks: Path, tmp_path: Path, name: str, tasks: int, until: int | None
) -> None:
    application = {"near": near, "wide": wide}[name]
    source = commands_of(banks / name)
    expected = embedded(application, source, tmp_path / "expected", until=until)
    source.close()
    report = replay(
        f"process.replayed:{name}",
        log_of(banks / name),
        tmp_path / "out",
        until=until,
        tasks=tasks,
        workers=1,
        bytes_per_task=20_000,
    )
    hashes = report.published["hashes"]
    assert {int(n): bytes.fromhex(h) for n, h in hashes.items()} == expected.hashes
    assert report.published["position"] == expected.position
    assert report.figures["commands"] == expected.commands
    assert report.figures["outcomes_compared"] >= expected.compared > 0
    # The databases that the manifest names are that state.
    for number, state in read_manifest(tmp_path / "out")["states"].items():
        [seen] = look_at(tmp_path / "out" / state, [int(number)])
        assert seen.hash == expected.hashes[int(number)]
    states = set(report.published["states"].values())
    assert len(states) == (min(tasks, PARTITIONS) if name == "near" else 1)


def test_interrupted_in_the_middle_it_goes_on(
    banks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the second stage, and of what it made nothing is made again."""
    sync, synced = Replay.sync, 0

    def failing(self: Replay) -> None:
        nonlocal synced
        synced += 1
        sync(self)
        if synced == 3:
            raise NotReadyError("the worker is gone")

    monkeypatch.setattr(Replay, "sync", failing)

    def attempt() -> Report:
        return replay(
            "process.replayed:near",
            log_of(banks / "near"),
            tmp_path / "out",
            tasks=5,
            workers=1,
            bytes_per_task=20_000,
        )

    with pytest.raises(NotReadyError):
        attempt()
    report = attempt()
    assert report.tasks - report.resumed == 3
    hashes = report.published["hashes"]
    source = commands_of(banks / "near")
    expected = embedded(near, source, tmp_path / "expected")
    source.close()
    assert {int(n): bytes.fromhex(h) for n, h in hashes.items()} == expected.hashes


def test_commands_that_nobody_executed_are_missed(
    banks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_job, "groups_of", lambda groups, tasks: groups[1:])
    with pytest.raises(CorruptionError, match=r"commands, but \d+ were executed"):
        replay(
            "process.replayed:near",
            log_of(banks / "near"),
            tmp_path / "out",
            tasks=5,
            workers=1,
        )


def test_what_is_refused(banks: Path, tmp_path: Path) -> None:
    origin = log_of(banks / "near")
    with pytest.raises(InvalidArgumentError, match="does not name an application"):
        replay("near", origin, tmp_path / "a", workers=1)
    with pytest.raises(NotFoundError, match="no application 'far'"):
        replay("process.replayed:far", origin, tmp_path / "b", workers=1)
    with pytest.raises(BeyondEndError, match="before the requested position 9999999"):
        replay("process.replayed:near", origin, tmp_path / "c", until=9999999)
    with pytest.raises(UnknownProcedureError):
        replay("unit.pipelines.works:EMPTY", origin, tmp_path / "d", workers=1)
    with pytest.raises(InvalidArgumentError, match="at least 1, not 0"):
        replay("process.replayed:near", origin, tmp_path / "e", tasks=0)
