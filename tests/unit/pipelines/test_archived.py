"""What was trimmed and archived counts as if it were in the log, for each pipeline."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import braidlog
from braidlog.app.log.source import LOG_NAME
from braidlog.errors import InvalidArgumentError, NotFoundError, TrimmedError
from braidlog.pipelines.archive_job import archive
from braidlog.pipelines.audit_job import audit
from braidlog.pipelines.compact_job import compact
from braidlog.pipelines.repartition_job import Destination, repartition
from braidlog.pipelines.replay_job import replay
from braidlog.sources.origin import Origin
from process.replayed import fill, near

BYTES_PER_TASK = 8_000
Pipeline = Callable[[Origin, Path, int | None], Any]


@dataclass(frozen=True)
class Logs:
    """A log as it was written, and the same with its first part in an archive."""

    whole: Origin
    rest: Origin
    both: Origin
    first: int
    """First position that is left in the log."""


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    """The log of an application: `compact` and the others take it as any log."""
    home = tmp_path_factory.mktemp("bank")
    with near.open(home / "whole") as host:
        fill(host, 400)
    shutil.copytree(home / "whole", home / "trimmed")
    whole, rest, both = (
        Origin(LOG_NAME, path=str(home / name / "log"), include_archive=included)
        for name, included in (("whole", False), ("trimmed", False), ("trimmed", True))
    )
    # The archive is not there yet; archiving reads the log alone.
    report = archive(
        both, home / "a", until=250, bytes_per_file=3_000, trim=True, workers=1
    )
    assert report.published["new_files"] > 3
    return Logs(whole, rest, both, 251)


def compacted(origin: Origin, home: Path, until: int | None) -> Any:
    report = compact(
        origin, home, until=until, bytes_per_task=BYTES_PER_TASK, workers=1
    )
    published = report.published
    rows = pa.concat_tables(
        [pq.read_table(home / f["path"]) for f in published["files"]]
    )
    facts = [published[name] for name in ("begin", "end", "keys", "proved")]
    return rows.sort_by("key").to_pylist(), facts, report.figures["records_read"]


def repartitioned(origin: Origin, home: Path, until: int | None) -> Any:
    report = repartition(
        origin,
        Destination("copy", path=str(home / "data")),
        home / "job",
        until=until,
        bytes_per_task=BYTES_PER_TASK,
        workers=1,
    )
    with braidlog.open(home / "data", read_only=True) as node:
        rows = node.log("copy").to_arrow().to_pylist()
    return rows, report.published["records"], report.published["proved"]


def replayed(origin: Origin, home: Path, until: int | None) -> Any:
    report = replay(
        "process.replayed:near",
        origin,
        home,
        until=until,
        tasks=3,
        bytes_per_task=BYTES_PER_TASK,
        workers=1,
    )
    facts = [report.published[name] for name in ("position", "hashes", "proved")]
    return facts, report.figures["commands"], report.figures["records_read"]


def audited(origin: Origin, home: Path, until: int | None) -> Any:
    report = audit(origin, home, bytes_per_task=BYTES_PER_TASK, workers=1)
    return [report.published[name] for name in ("begin", "end", "findings")]


@pytest.mark.parametrize("pipeline", [compacted, repartitioned, replayed])
@pytest.mark.parametrize("until", [None, 100, 250, 251])
def test_it_is_as_if_nothing_had_been_trimmed(
    bank: Logs, tmp_path: Path, pipeline: Pipeline, until: int | None
) -> None:
    """Up to the end, and to positions in the archive, at its end and behind it."""
    expected = pipeline(bank.whole, tmp_path / "whole", until)
    assert pipeline(bank.both, tmp_path / "both", until) == expected


@pytest.mark.parametrize("pipeline", [compacted, repartitioned, replayed])
def test_the_log_alone_has_less(bank: Logs, tmp_path: Path, pipeline: Pipeline) -> None:
    with pytest.raises(TrimmedError) as raised:
        pipeline(bank.rest, tmp_path / "rest", 100)
    assert raised.value.first == bank.first
    if pipeline is replayed:  # A state needs the first command.
        with pytest.raises(TrimmedError):
            pipeline(bank.rest, tmp_path / "all", None)


def test_tasks_are_cut_in_the_archive_too(bank: Logs) -> None:
    with bank.both.open() as source:
        found = source.ranges(None, BYTES_PER_TASK)
        assert found[0].begin == 1
        assert [each.begin for each in found[1:]] == [each.end for each in found[:-1]]
    assert sum(each.end <= bank.first for each in found) > 2
    assert sum(each.begin >= bank.first for each in found) > 2


def test_an_audit_takes_the_archive_as_a_copy(bank: Logs, tmp_path: Path) -> None:
    expected = audited(bank.whole, tmp_path / "whole", None)
    assert audited(bank.both, tmp_path / "both", None) == expected
    assert audited(bank.rest, tmp_path / "rest", None)[0] == bank.first
    place = bank.both.archive_location()
    shutil.copytree(place, tmp_path / "a")
    max((tmp_path / "a").rglob("*.parquet")).unlink()
    damaged = Origin(bank.rest.log, bank.rest.path, include_archive=str(tmp_path / "a"))
    *_, findings = audited(damaged, tmp_path / "damaged", None)
    kinds = {(each["copy"], each["kind"]) for each in findings}
    assert kinds == {(str(tmp_path / "a"), "damaged"), ("", "missing")}


def test_what_neither_log_nor_archive_has(tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "data") as node:
        log = node.create_log("orders")
        log.append_many([b"%d" % number for number in range(300)])
    log_alone = Origin("orders", path=str(tmp_path / "data"))
    origin = Origin("orders", path=str(tmp_path / "data"), include_archive=True)
    with pytest.raises(NotFoundError, match="does not record where its archive is"):
        compact(origin, tmp_path / "none", workers=1)
    with pytest.raises(NotFoundError, match="does not record where its archive is"):
        audit(origin, tmp_path / "none", workers=1)
    archive(log_alone, tmp_path / "a", until=100, workers=1)
    with braidlog.open(tmp_path / "data") as node:
        node.log("orders").trim(201, ignore_pins=True)
    with pytest.raises(TrimmedError, match="positions 101 to 200 are lost") as raised:
        compact(origin, tmp_path / "gap", workers=1)
    assert raised.value.first == 201
    found = audit(origin, tmp_path / "audit", workers=1).published["findings"]
    assert [(each["kind"], each["position"]) for each in found] == [("missing", 101)]
    with pytest.raises(InvalidArgumentError, match="directories of stopped nodes"):
        Origin("orders", raw=("a",), include_archive=True)
