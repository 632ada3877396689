"""Jobs: what is carried out, noted, published once, and gone on with."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from braidlog.errors import (
    AlreadyExistsError,
    CorruptionError,
    InvalidArgumentError,
    LockedError,
    NotReadyError,
)
from braidlog.handover import here
from braidlog.pipelines import Attempt, JobProgress, Result, run
from braidlog.pipelines.journal import JobJournal
from braidlog.pipelines.runners import SparkRunner, _in_worker
from unit.pipelines.works import Square, Total, squares, total

SUM = sum(number**2 for number in range(10))


def numbers(fails: Path | None = None) -> list[Square]:
    return [
        Square(n, str(fails) if fails is not None and n == 6 else "") for n in range(10)
    ]


def contents(home: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("workers", [1, 2])
def test_what_tasks_return_is_published_and_reported(
    tmp_path: Path, workers: int
) -> None:
    seen: list[JobProgress] = []
    report = run(squares(tmp_path, numbers()), workers=workers, progress=seen.append)
    assert (report.figures, report.tasks) == (
        {"squares": 10, "processes": 0, "total": SUM},
        11,
    )
    [file] = report.published["files"]
    assert (tmp_path / file["path"]).read_text() == str(SUM)
    assert seen[0] == JobProgress("square", 0, 10)
    assert seen[-1] == JobProgress("total", 1, 1)
    # Nothing else is left, and the report is kept.
    assert set(contents(tmp_path)) == {"manifest.json", "report.json", file["path"]}
    kept = json.loads((tmp_path / "report.json").read_text())
    assert kept["figures"] == report.figures


def test_an_optional_stage_without_tasks_is_left_out(tmp_path: Path) -> None:
    seen: list[JobProgress] = []
    job = squares(tmp_path, numbers())
    first, last = job.stages
    nothing = replace(first, name="nothing", plan=lambda _: [], optional=True)
    job = replace(job, stages=(first, nothing, last))
    report = run(job, workers=1, progress=seen.append)
    assert (report.figures["total"], report.tasks) == (SUM, 11)
    assert {each.stage for each in seen} == {"square", "total"}


def test_the_same_job_again_changes_nothing(tmp_path: Path) -> None:
    first = run(squares(tmp_path, numbers()), workers=1)
    before = contents(tmp_path)
    again = run(squares(tmp_path, numbers()), workers=1)
    assert (again.unchanged, again.tasks) == (True, 0)
    assert again.published == first.published
    assert contents(tmp_path) == before
    with pytest.raises(AlreadyExistsError, match=r"results of another job \('squares'"):
        run(squares(tmp_path, numbers(), other=True), workers=1)
    assert contents(tmp_path) == before


def test_an_interrupted_job_goes_on_with_its_own_tasks(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    home = tmp_path / "home"
    with pytest.raises(NotReadyError):
        run(squares(home, numbers(fails=flag)), workers=1)
    # Planned anew it would have no tasks; and one of the results was lost since.
    [notes] = (home / ".job").iterdir()
    lines = (notes / "square.results").read_text().splitlines()
    assert len(lines) == 6
    (home / json.loads(lines[2])["result"]["files"][0]["path"]).unlink()
    with (notes / "square.results").open("a") as file:
        file.write('{"task":9,"resu')  # The crash was in the middle of a line.
    job = squares(home, [], numbers=list(range(10)))
    report = run(job, workers=1)
    assert (report.tasks, report.resumed) == (11, 5)
    assert report.figures["total"] == SUM


def test_what_was_planned_from_lost_results_is_planned_again(tmp_path: Path) -> None:
    """The second stage names files of the first, which have other names by then."""
    home, flag = tmp_path / "home", tmp_path / "flag"

    def failing(task: Total, attempt: Attempt) -> Result:
        if not flag.exists():
            raise NotReadyError("not yet")
        return total(task, attempt)

    job = squares(home, numbers())
    job = replace(job, stages=(job.stages[0], replace(job.stages[1], work=failing)))
    with pytest.raises(NotReadyError):
        run(job, workers=1)
    [lost, *_] = sorted(job.scratch.iterdir())
    lost.unlink()
    with pytest.raises(NotReadyError):
        run(job, workers=1)
    flag.touch()
    report = run(job, workers=1)
    assert (report.resumed, report.figures["total"]) == (10, SUM)


def test_notes_that_are_damaged_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotReadyError):
        run(squares(tmp_path, numbers(fails=tmp_path / "flag")), workers=1)
    [notes] = (tmp_path / ".job").iterdir()
    path = notes / "square.results"
    path.write_bytes(b"{}\n" + path.read_bytes())
    with pytest.raises(CorruptionError, match="remove the directory") as caught:
        run(squares(tmp_path, numbers()), workers=1)
    assert caught.value.path == str(path)


def test_a_job_runs_once_at_a_time(tmp_path: Path) -> None:
    job = squares(tmp_path, numbers())
    state = JobJournal(tmp_path, job.identity)
    with pytest.raises(LockedError, match="the same job is already running"):
        run(job, workers=1)
    state.close()
    assert run(job, workers=1).figures["total"] == SUM


def test_of_two_that_publish_the_second_finds_the_first(tmp_path: Path) -> None:
    job = squares(tmp_path, numbers())
    first = run(job, workers=1)
    assert job.publish([]) == first.published
    with pytest.raises(AlreadyExistsError):
        squares(tmp_path, numbers(), other=1).publish([])


def test_killed_behind_the_publication_the_rest_is_made_up_for(tmp_path: Path) -> None:
    job = squares(tmp_path, numbers())
    first = run(job, workers=1)
    (tmp_path / "report.json").unlink()
    JobJournal(tmp_path, job.identity).close()  # The notes are still there.
    assert run(job, workers=1).published == first.published
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["data", "manifest.json", "report.json"]


def test_a_failure_in_another_process_is_the_same_failure(tmp_path: Path) -> None:
    with pytest.raises(NotReadyError, match="not yet"):
        run(squares(tmp_path, numbers(fails=tmp_path / "flag")), workers=2)
    assert run(squares(tmp_path, numbers()), workers=2).figures["total"] == SUM


def test_workers_are_one_or_more(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="at least 1, not 0"):
        run(squares(tmp_path, numbers()), workers=0)


def test_a_package_that_a_worker_of_spark_lacks_is_reported_with_its_machine(
    tmp_path: Path,
) -> None:
    def needs_more(task: str, attempt: Attempt) -> Result:
        raise ModuleNotFoundError(f"No module named {task!r}", name=task)

    blank = Attempt(-1, "stage", tmp_path, tmp_path)
    rows = iter([pa.record_batch({"id": [0]})])
    [answer] = _in_worker([(0, "deltalake")], needs_more, blank, 4, rows)
    error = pickle.loads(answer["failure"][0].as_py())
    assert type(error) is ModuleNotFoundError
    assert error.name == "deltalake"
    assert f"worker on {here()}" in str(error)
    assert "'deltalake'" in str(error)


def test_a_session_of_spark_connect_is_refused_at_once() -> None:
    class Session:
        """Without a context, as that of `pyspark.sql.connect` is."""

    Session.__module__ = "pyspark.sql.connect.session"
    with pytest.raises(InvalidArgumentError, match="Spark Connect"):
        SparkRunner(Session())
