"""The main job on recorded input: 256,731 changes of five public repositories.

The files are looked for in the folder that ``BRAIDLOG_SHARED_DATA`` names, else in
``shared/data`` beside the checkout. What takes long takes the 18,910 changes of two
repositories; ``BRAIDLOG_WHOLE=1`` takes all of them everywhere.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from examples.demo.events import decode, decode_entry, key_of, path_bytes
from examples.demo.files import read_lines, read_oracle

from braidlog.cli import main
from braidlog.errors import UnavailableError
from braidlog.spark import ensure_java

_EVENTS = 256_731
_FEWER = ("bytewax", "tigerbeetle")


def recorded() -> tuple[Path, Path]:
    top = Path(__file__).resolve().parents[2]
    named = os.environ.get("BRAIDLOG_SHARED_DATA")
    places = [Path(named)] if named else [p / "shared" / "data" for p in top.parents]
    for place in places:
        events = place / "change-events.jsonl.zst"
        oracle = place / "final-trees.jsonl.zst"
        if events.is_file() and oracle.is_file():
            return events, oracle
    pytest.skip(
        "no recorded changes: set BRAIDLOG_SHARED_DATA to the folder with "
        "change-events.jsonl.zst and final-trees.jsonl.zst, or put it at "
        f"{top.parent / 'shared' / 'data'}"
    )


def fewer(tmp_path: Path) -> tuple[Path, Path, int]:
    """Return changes, oracle and how many changes there are, of what takes long."""
    events, oracle = recorded()
    if os.environ.get("BRAIDLOG_WHOLE"):
        return events, oracle, _EVENTS
    found = []
    for path, source_of in ((events, change_source), (oracle, entry_source)):
        found.append(tmp_path / path.name.removesuffix(".zst"))
        lines = [line for line in read_lines(path) if source_of(line) in _FEWER]
        found[-1].write_bytes(b"".join(line + b"\n" for line in lines))
    return found[0], found[1], sum(1 for _ in read_lines(found[0]))


def change_source(line: bytes) -> str:
    return decode(line).source


def entry_source(line: bytes) -> str:
    return decode_entry(line)[0]


@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.process
@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_import_kill_resume_replay_and_spark(tmp_path: Path) -> None:
    events, oracle, count = fewer(tmp_path)
    arguments = ["--input", str(events), "--oracle", str(oracle)]
    arguments += ["--out", str(tmp_path / "out"), "--kills", "3", "--json"]
    try:
        ensure_java()
    except UnavailableError:
        arguments.append("--no-spark")
    result = CliRunner().invoke(main, ["demo", *arguments])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["passed"] is True
    assert (report["events"], report["lost"], report["doubled"]) == (count, 0, 0)
    assert len(report["kills"]) == 3
    assert all(0 < kill["found"] < count for kill in report["kills"])
    findings = {check["name"]: check["finding"] for check in report["checks"]}
    files = sum(map(len, read_oracle(oracle).values()))
    assert findings["replay equals the oracle"] == f"{files:,} files, 0 differ"
    assert sum(row["changes"] for row in report["changes_per_month"]) == count
    assert {Path(path).suffix for path in report["files"]} == {".png", ".html"}
    assert not list((tmp_path / "out").glob("log-*")), "cleaned up"


@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_files_as_the_state_of_an_application(tmp_path: Path) -> None:
    """Changes as calls; the state, and its replay, are what the oracle says."""
    # A call costs many times what a record does.
    events, oracle, _ = fewer(tmp_path)
    place = Path(__file__).parents[2] / "examples" / "change_events.py"
    spec = importlib.util.spec_from_file_location("change_events", place)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    files = example.run(tmp_path, map(json.loads, read_lines(events)))
    expected = sorted(
        [source, path_bytes(path), *entry]
        for source, tree in read_oracle(oracle).items()
        for path, entry in tree.items()
    )
    assert files == expected
    assert list((tmp_path / "again").glob("partition-*.db"))


@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_compact_gives_the_recorded_trees(tmp_path: Path) -> None:
    """The pipeline, beside the demo's own replay: what git had in the end."""
    import pyarrow.parquet as pq

    import braidlog
    from braidlog.pipelines.compact_job import Tombstones, compact
    from braidlog.sources.origin import Origin

    events, oracle = recorded()
    with braidlog.open(tmp_path / "data") as node:
        log = node.create_log("changes")
        lines = iter(read_lines(events))
        while values := list(itertools.islice(lines, 20_000)):
            log.append_many(values, keys=[key_of(decode(line)) for line in values])
    report = compact(
        Origin("changes", path=str(tmp_path / "data")),
        tmp_path / "out",
        tombstones=Tombstones("pattern", '"op":"delete"'),
        bytes_per_task=8 << 20,
        workers=1,
    )
    assert (report.figures["records_read"], report.tasks > 4) == (_EVENTS, True)
    found = {}
    for file in report.published["files"]:
        for line in pq.read_table(tmp_path / "out" / file["path"])["value"].to_pylist():
            event = decode(line)
            found[event.source, event.path] = event.entry
    expected = {
        (source, path): entry
        for source, path, entry in map(decode_entry, read_lines(oracle))
    }
    assert len(found) == report.figures["keys"]
    assert found == expected
