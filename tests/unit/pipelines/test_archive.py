"""The pipeline `archive`: what it changes, and when it changes nothing."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog import Log
from braidlog.archive import open_archive, verify
from braidlog.archive.publishing import publish
from braidlog.errors import (
    AlreadyExistsError,
    ArchiveDamagedError,
    InvalidArgumentError,
    LockedError,
    NotFoundError,
    TrimmedError,
)
from braidlog.pipelines import archive_job as pipeline
from braidlog.pipelines.archive_job import archive
from braidlog.pipelines.job import Report
from braidlog.sources.origin import Origin

SMALL: dict[str, Any] = {"bytes_per_file": 4 << 10, "workers": 1}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with braidlog.open(tmp_path / "data", segment_bytes=64 << 10) as node:
        log = node.create_log("log")
        log.append_many([os.urandom(100) for _ in range(300)])
        yield log


def run(log: Log, home: Path, **options: Any) -> Report:
    origin = Origin("log", path=str(log._store.path))
    return archive(origin, home, log=log, **SMALL | options)


def tree(home: Path) -> dict[str, bytes]:
    files = (path for path in home.rglob("*") if path.is_file())
    return {str(path.relative_to(home)): path.read_bytes() for path in files}


def test_what_is_new_is_added_and_nothing_else_changes(
    log: Log, tmp_path: Path
) -> None:
    home, before = tmp_path / "a", list(log.read())
    report = run(log, home)
    assert (report.figures["records"], report.unchanged) == (300, False)
    assert report.tasks > 5
    assert (report.published["cursor"], report.published["end"]) == (301, 301)
    assert log.options.archive == str(home)
    there, touched = tree(home), log.cursors()[0].touched
    again = run(log, home)
    assert (again.unchanged, again.tasks, tree(home)) == (True, 0, there)
    assert log.cursors()[0].touched == touched
    log.append_many([b"more"] * 50)
    before = list(log.read())
    assert run(log, home, until=320).published["end"] == 321
    assert run(log, home, until=310).unchanged
    assert run(log, home, trim=True).published["first"] == 351
    assert run(log, home, until=310).unchanged
    assert list(log.read(include_archive=True)) == before
    assert open_archive(home).manifest.generation == 3


def test_pins_of_others_hold_what_is_archived(log: Log, tmp_path: Path) -> None:
    log.set_cursor("reader", 40, pin=True)
    assert run(log, tmp_path / "a", trim=True, lease=60.0).published["first"] == 40
    cursor = next(each for each in log.cursors() if each.name == "archive")
    assert (cursor.position, cursor.pin, cursor.lease) == (301, True, 60.0)
    assert run(log, tmp_path / "a").unchanged
    # A lease that somebody gave the pin stays.
    log.append(b"more")
    run(log, tmp_path / "a")
    assert next(c for c in log.cursors() if c.name == "archive").lease == 60.0


def test_a_cursor_that_is_gone_or_another_one_is_set_anew(
    log: Log, tmp_path: Path
) -> None:
    run(log, tmp_path / "a")
    log.cursor("archive").delete()
    assert run(log, tmp_path / "a").unchanged
    assert run(log, tmp_path / "a", cursor="another").unchanged
    places = {each.name: (each.position, each.pin) for each in log.cursors()}
    assert places == {"archive": (301, True), "another": (301, True)}


class Stopped(BaseException):
    """The run ends here."""


@pytest.mark.parametrize("step", ["publish", "pinned", "verify"])
def test_an_interrupted_run_is_finished_by_the_next(
    step: str, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, before, calls = tmp_path / "a", list(log.read()), [0]
    original = getattr(pipeline, step)

    def stopping(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        # The first pin is set before any work.
        if calls[0] > (step == "pinned"):
            raise Stopped
        return original(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, step, stopping)
        with pytest.raises(Stopped):
            run(log, home, trim=True)
    assert log.first == 1
    log.append_many([b"meanwhile"] * 20)
    before = list(log.read())
    report = run(log, home, trim=True)
    if step == "publish":
        assert report.resumed > 5  # What was written is not written again.
    assert (log.first, open_archive(home).end) == (321, 321)
    assert list(log.read(include_archive=True)) == before
    assert not (home / ".job").exists()
    listed = {file.path for file in open_archive(home).manifest.files}
    assert {name for name in tree(home) if name.startswith("data")} == listed


def test_nothing_is_trimmed_that_cannot_be_read_back(log: Log, tmp_path: Path) -> None:
    run(log, tmp_path)
    path = tmp_path / open_archive(tmp_path).manifest.files[2].path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArchiveDamagedError, match="nothing was trimmed") as caught:
        run(log, tmp_path, trim=True)
    assert (caught.value.path, log.first) == (str(path), 1)
    assert len(verify(open_archive(tmp_path)).damage) == 1


def test_what_cannot_be_archived_is_refused(log: Log, tmp_path: Path) -> None:
    home = tmp_path / "a"
    run(log, home, until=100)
    origin = Origin("log", path=str(log._store.path))
    log.append(b"x")
    with pytest.raises(LockedError):
        archive(origin, home, **SMALL)
    with pytest.raises(NotFoundError):
        archive(Origin("other", path=origin.path), home, **SMALL)
    with pytest.raises(InvalidArgumentError, match="directories of stopped nodes"):
        archive(Origin("log", raw=(origin.path,)), home, **SMALL)
    log.trim(200, ignore_pins=True)
    with pytest.raises(TrimmedError, match=r"101 to 199 .* were trimmed") as caught:
        run(log, home)
    assert caught.value.first == 200
    assert run(log, tmp_path / "b").published["begin"] == 200
    with braidlog.open(tmp_path / "other") as node:
        node.create_log("log").append(b"x")
        with pytest.raises(InvalidArgumentError, match="a different log"):
            run(node.log("log"), home)


def test_a_directory_without_a_writer_is_opened_for_a_moment(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "data") as node:
        node.create_log("log").append_many([b"x"] * 10)
    origin, home = Origin("log", path=str(tmp_path / "data")), tmp_path / "a"
    assert archive(origin, home, workers=2).published["end"] == 11
    with braidlog.open(tmp_path / "data") as node:
        assert node.log("log").options.archive == str(home)
        assert [cursor.position for cursor in node.log("log").cursors()] == [11]


def test_two_runs_at_a_time_archive_once(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, original = tmp_path / "a", publish
    run(log, home, until=10)

    def late(*arguments: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(pipeline, "publish", original)
            run(log, home, until=20)
        return original(*arguments)

    monkeypatch.setattr(pipeline, "publish", late)
    with pytest.raises(AlreadyExistsError, match="Run it again"):
        run(log, home)
    monkeypatch.setattr(pipeline, "publish", original)
    run(log, home)
    assert open_archive(home).end == 301
    assert verify(open_archive(home)).sound


def test_an_empty_log_has_no_archive(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "data") as node:
        log = node.create_log("log")
        report = run(log, tmp_path / "a")
        assert (report.unchanged, report.published) == (True, {})
        log.append(b"x")
        log.trim(2, ignore_pins=True)
        log.append(b"y")
        log.cursors()[0].delete()
        assert run(log, tmp_path / "a").published["begin"] == 2
        assert dataclasses.asdict(open_archive(tmp_path / "a").manifest)["log"] == "log"
