"""Nothing counts that the process which publishes did not see itself.

A worker on another machine, or in a container, may write where nobody else looks. Here
it does, or its files are other ones than it said; then nothing is listed, no cursor
moves, nothing is trimmed, and the same call finishes the job when the path is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.archive import open_archive, verify
from braidlog.archive.reading import newest
from braidlog.errors import ArchiveDamagedError, NotSharedError
from braidlog.pipelines import (
    Attempt,
    Destination,
    Origin,
    Report,
    Result,
    audit,
    compact,
    execution,
    reindex,
    repartition,
)
from braidlog.pipelines.archive_job import archive
from braidlog.pipelines.manifest import MANIFEST
from unit.pipelines.elsewhere import Bent, Namespaces, namespaces_or_skip

COUNT = 300


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with braidlog.open(tmp_path / "data", segment_bytes=64 << 10) as node:
        log = node.create_log("orders")
        for n in range(COUNT):
            log.submit(b"%d" % n * 120, key=b"key %d" % (n % 37))
    return tmp_path / "data"


def origin_of(data: Path) -> Origin:
    return Origin("orders", path=str(data))


def archived(data: Path, home: Path) -> Report:
    return archive(origin_of(data), home, bytes_per_file=16 << 10, workers=1)


def compacted(data: Path, home: Path) -> Report:
    return compact(origin_of(data), home, bytes_per_task=16 << 10, workers=1)


def copied(data: Path, home: Path) -> Report:
    to = Destination("copy", path=str(home.with_name("copy")))
    return repartition(origin_of(data), to, home, bytes_per_task=16 << 10, workers=1)


def audited(data: Path, home: Path) -> Report:
    return audit(origin_of(data), home, bytes_per_task=16 << 10, workers=1)


Pipeline = Callable[[Path, Path], Report]
PIPELINES = (archived, compacted, copied, audited)


def lost(path: Path) -> None:
    path.unlink()


def shorter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def other(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])


def carried_out_by(monkeypatch: pytest.MonkeyPatch, runner: Any) -> None:
    monkeypatch.setattr(execution, "runner_of", lambda *_: runner)


def untouched(data: Path, home: Path) -> None:
    """Nothing is listed, and what the cursor pins is all of the log."""
    assert not (home / MANIFEST).exists()
    assert not list(home.glob("_manifests/*"))
    with braidlog.open(data, read_only=True) as node:
        log = node.log("orders")
        assert (log.first, log.end) == (1, COUNT + 1)
        assert {each.position for each in log.cursors()} <= {1}
        assert log.options.archive is None


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_files_that_are_not_what_a_worker_says(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline
) -> None:
    home = tmp_path / "out"
    bent: list[Path] = []
    damages = {
        lost: "does not exist here",
        shorter: "bytes here instead of",
        other: "differs here",
    }
    for damage, problem in damages.items():

        def once(attempt: Attempt, result: Result) -> Result:
            for file in result.files[:1]:
                bent.append(attempt.home / file.path)
                damage(bent[-1])  # noqa: B023
            return result

        with monkeypatch.context() as patched:
            carried_out_by(patched, Bent(once))
            with pytest.raises(NotSharedError, match=problem) as caught:
                pipeline(data, home)
        assert (caught.value.path, caught.value.worker) == (str(bent[-1]), "far")
        assert "cluster=" in str(caught.value)
        untouched(data, home)
    report = pipeline(data, home)
    assert report.published["proved"]


def test_a_side_file_that_nobody_else_sees(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = min((data / "wal").glob("*.idx"))
    content = side.read_bytes()
    side.unlink()

    def elsewhere(_: Attempt, result: Result) -> Result:
        if result.figures.get("side_files_written"):
            side.unlink()
        return result

    with monkeypatch.context() as patched:
        carried_out_by(patched, Bent(elsewhere))
        with pytest.raises(NotSharedError, match="does not exist here"):
            reindex([data], tmp_path / "out")
    reindex([data], tmp_path / "out", workers=1)
    assert side.read_bytes() == content


def test_records_that_were_appended_to_another_directory(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, copy = tmp_path / "out", tmp_path / "copy"

    def elsewhere(_: Attempt, result: Result) -> Result:
        if "log" not in result.facts:
            return result
        identity, end = result.facts["log"]
        return replace(result, facts={**result.facts, "log": [identity, end + 1]})

    carried_out_by(monkeypatch, Bent(elsewhere))
    with pytest.raises(NotSharedError, match="instead of at 302"):
        copied(data, home)
    untouched(data, home)
    assert copy.exists()


def test_a_generation_that_another_process_published(
    data: Path, tmp_path: Path
) -> None:
    """Killed before its cursor moved; here its files are not what it lists."""
    home = tmp_path / "out"
    archived(data, home)
    with braidlog.open(data) as node:
        node.log("orders").set_cursor("archive", 1, pin=True)
    found = newest(open_archive(home).place)
    assert found is not None
    path = home / found.files[-1].path
    whole = path.read_bytes()
    for damage in (lost, shorter, other):
        damage(path)
        with pytest.raises(ArchiveDamagedError, match="the cursor was not moved"):
            archived(data, home)
        with braidlog.open(data, read_only=True) as node:
            [cursor] = node.log("orders").cursors()
            assert cursor.position == 1
        path.write_bytes(whole)
    assert archived(data, home).published["end"] == COUNT + 1
    with braidlog.open(data, read_only=True) as node:
        [cursor] = node.log("orders").cursors()
        assert cursor.position == COUNT + 1


@pytest.fixture
def hiding(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Lets every second task run where a path leads to an empty directory."""
    namespaces_or_skip()
    started: list[Namespaces] = []

    def hide(path: Path) -> None:
        started.append(Namespaces(path))
        carried_out_by(monkeypatch, started[-1])

    yield hide
    for runner in started:
        runner.close()


@pytest.mark.timeout(120)
def test_a_worker_whose_files_nobody_else_sees(
    data: Path,
    tmp_path: Path,
    hiding: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two workers in different mount namespaces: one writes where nobody looks."""
    home = tmp_path / "out"
    (home / "data").mkdir(parents=True)
    hiding(home / "data")
    with pytest.raises(NotSharedError, match="does not exist here"):
        archived(data, home)
    untouched(data, home)
    monkeypatch.undo()
    assert archived(data, home).published["end"] == COUNT + 1
    assert verify(open_archive(home)).sound


@pytest.mark.timeout(120)
@pytest.mark.parametrize("hidden", ["out", "data"])
def test_a_worker_that_does_not_see_a_directory_says_so_at_once(
    data: Path, tmp_path: Path, hiding: Callable[[Path], None], hidden: str
) -> None:
    (tmp_path / "out").mkdir()
    hiding(tmp_path / hidden)
    for number, pipeline in enumerate(PIPELINES):
        home = tmp_path / "out" / str(number)
        with pytest.raises(NotSharedError, match="does not see") as caught:
            pipeline(data, home)
        assert caught.value.path == str(data if hidden == "data" else home)
        assert caught.value.worker in str(caught.value)
        untouched(data, home)
