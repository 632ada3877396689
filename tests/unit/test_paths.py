"""A path is a directory of this machine: URIs are refused, `~` is the home directory.

Nothing may be made where a mistyped path leads: no test leaves a directory ``s3:``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import braidlog
from braidlog.app import Application
from braidlog.app.replay.inputs import commands_of
from braidlog.app.replay.run import replay
from braidlog.archive import open_archive
from braidlog.backup import restore
from braidlog.cli.root import main
from braidlog.errors import InvalidArgumentError, NotFoundError
from braidlog.node.config import parse
from braidlog.paths import local_path
from braidlog.pipelines import (
    Destination,
    Origin,
    audit,
    compact,
    reindex,
    repartition,
)
from braidlog.pipelines.archive_job import archive
from braidlog.pipelines.replay_job import replay as replay_pipeline
from braidlog.spark.sink.options import parse_sink
from braidlog.spark.source.options import parse as parse_source
from braidlog.testing.cluster import LocalCluster

WRONG = ("s3://bucket/out", "hdfs://nn/out", "file:///out", "s3:/bucket/out", "")
APP = Application("nothing", partitions=1)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Be in an empty directory, which is the home directory too."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    yield home
    assert not list(home.glob("*:*")), "a URI became a directory"
    assert not (home / "~").exists()


def test_a_path_is_text_of_this_machine(home: Path) -> None:
    assert local_path("a/b") == Path("a/b")
    assert local_path(Path("~/a")) == home / "a"
    assert local_path("./~") == local_path(local_path("./~")) == home / "~"
    with pytest.raises(InvalidArgumentError, match=r"write '/mnt/x'"):
        local_path("file:///mnt/x")
    with pytest.raises(InvalidArgumentError, match=r"mount the storage"):
        local_path("s3://bucket/x")
    for lost in ("s3:/bucket/x", Path("s3://bucket/x")):
        with pytest.raises(InvalidArgumentError, match=r"mount .* '\./s3:/bucket/x'"):
            local_path(lost)
        with pytest.raises(InvalidArgumentError, match=r"write 's3://bucket/x'"):
            local_path(lost, or_uri=True)
    with pytest.raises(InvalidArgumentError, match=r"write '/mnt/x', or '\./file:/"):
        local_path("file:/mnt/x")
    assert local_path("./s3:/x") == local_path(local_path("./s3:/x")) == home / "s3:/x"
    assert local_path("/mnt/s3:/x") == Path("/mnt/s3:/x")
    assert local_path("a/s3:/x") == Path("a/s3:/x")
    with pytest.raises(
        InvalidArgumentError, match=r"write '\.' for the current directory"
    ):
        local_path("")
    with pytest.raises(InvalidArgumentError, match="null character"):
        local_path("a\0b")
    with pytest.raises(InvalidArgumentError, match=r"write '\./~nobody-1'"):
        local_path("~nobody-1/x")


def log_at(path: Path) -> Origin:
    with braidlog.open(path) as node:
        node.create_log("log").append(b"1", key=b"k")
    return Origin("log", path=str(path))


def backed_up(origin: Origin, path: str) -> None:
    with braidlog.open(origin.path) as store:
        # Both are places of backups; the directory is there.
        store.backup("" if path.startswith(("file", "s3://")) else path)


CALLS: dict[str, Callable[[Origin, str], Any]] = {
    "open": lambda _, path: braidlog.open(path),
    "open read-only": lambda _, path: braidlog.open(path, read_only=True),
    "open, create": lambda _, path: braidlog.open(path, create=True),
    "compact": lambda origin, path: compact(origin, path),
    "audit": lambda origin, path: audit(origin, path),
    "repartition": lambda origin, path: repartition(
        origin, Destination("copy", path="copy"), path
    ),
    "replay pipeline": lambda origin, path: replay_pipeline("a:b", origin, path),
    "reindex to": lambda origin, path: reindex([origin.path], path),
    "reindex": lambda _, path: reindex([path], "out"),
    "host": lambda _, path: APP.open(path),
    "cluster host": lambda _, path: APP.open_cluster("127.0.0.1:1", path),
    "replay": lambda _, path: replay(APP, None, path),  # type: ignore[arg-type]
    "input": lambda _, path: commands_of(path),
    "local cluster": lambda _, path: LocalCluster(1, directory=path),
    "staging": lambda _, path: parse_sink(
        {"path": "data", "log": "log", "staging": path or "s3://b"}
    ),
    "sink": lambda _, path: parse_sink({"path": path, "log": "log"}),
    "source": lambda _, path: parse_source({"path": path, "log": "log"}),
    "raw source": lambda _, path: parse_source({"raw": path, "log": "log"}),
    "origin": lambda _, path: Origin("log", path=path),
    "raw origin": lambda _, path: Origin("log", raw=(path,)),
    "destination": lambda _, path: Destination("log", path=path),
    "archive": lambda origin, path: archive(
        origin, "" if path.startswith("file") else path
    ),
    "backup": lambda origin, path: backed_up(origin, path),
    "restore": lambda _, path: restore("backups", path),
    "node": lambda _, path: parse(f'[node]\nid = 1\ndata = "{path}"', {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_path_is_refused(home: Path, name: str) -> None:
    origin = log_at(home / "data")
    before = sorted(home.rglob("*"))
    for wrong in WRONG:
        with pytest.raises(InvalidArgumentError):
            CALLS[name](origin, wrong)
    assert sorted(home.rglob("*")) == before


def test_the_home_directory_is_found(home: Path) -> None:
    origin = log_at(Path("~/data"))
    assert (home / "data" / "IDENTITY").exists()
    assert Origin("log", path="~/data").parameters() == origin.parameters()
    assert compact(origin, "~/out", workers=1).figures["keys"] == 1
    archive(origin, "~/archive", workers=1)
    assert open_archive("~/archive").location == str(home / "archive")
    with braidlog.open("~/data", read_only=True) as node:
        assert node.log("log").options.archive == str(home / "archive")
    sink = parse_sink({"path": "~/data", "log": "log"})
    assert (sink.origin.path, sink.staging) == (
        str(home / "data"),
        f"{home}/data/staging",
    )
    assert parse_source({"path": "~/data", "log": "log"}).origin == Origin(
        "log", path=str(home / "data")
    )
    with APP.open("~/host"):
        assert (home / "host" / "log").is_dir()


COMMANDS = (
    ("log", "list", "--data={}"),
    ("log", "create", "x", "--data={}"),
    ("pipeline", "compact", "log", "{}", "--data=data"),
    ("pipeline", "archive", "log", "{}", "--data=data"),
    ("pipeline", "audit", "log", "{}", "--data=data"),
    ("export", "log", "{}", "--data=data"),
    ("import", "log", "{}", "--data=data"),
    ("repair", "--output", "{}", "--data=data"),
    ("restore", "backups", "{}"),
    ("bench", "--directory", "{}"),
    ("up", "--data", "{}"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words[:3]))
def test_commands_refuse_what_is_no_path(home: Path, command: tuple[str, ...]) -> None:
    log_at(home / "data")
    before = sorted(home.rglob("*"))
    for wrong in ("s3://bucket/x", "hdfs://nn/x", "s3:/bucket/x", ""):
        done = CliRunner().invoke(main, [word.format(wrong) for word in command])
        assert done.exit_code in (1, 2), (wrong, done.output, done.exception)
        assert "URI" in done.output or "empty" in done.output, done.output
    assert sorted(home.rglob("*")) == before


def test_commands_find_the_home_directory(home: Path) -> None:
    """A shell leaves `~` alone behind `--data=`."""
    done = CliRunner().invoke(main, ["log", "create", "x", "--data=~/data"])
    assert done.exit_code == 0, done.output
    assert (home / "data" / "IDENTITY").exists()
    nested = CliRunner().invoke(main, ["log", "create", "x", "--data", "no/where"])
    assert nested.exit_code == 3
    assert f"mkdir -p {home / 'no'}" in nested.output


def test_what_is_made_and_what_is_not(home: Path) -> None:
    with pytest.raises(NotFoundError, match="create=True"):
        braidlog.open("typo/data")
    with pytest.raises(NotFoundError, match="create=False"):
        braidlog.open("data", create=False)
    (home / "empty").mkdir()
    with pytest.raises(NotFoundError, match="create=False"):
        braidlog.open("empty", create=False)
    with pytest.raises(InvalidArgumentError, match="read_only"):
        braidlog.open("data", create=True, read_only=True)
    assert [path.name for path in home.iterdir()] == ["empty"]
    with braidlog.open("a/b/c", create=True) as node:
        node.create_log("log")
    with braidlog.open("a/b/c", create=False) as node:
        assert list(node.logs()) == ["log"]
    with braidlog.open("empty") as node:
        node.create_log("log")


async def test_the_same_for_asyncio(home: Path) -> None:
    for wrong in ("s3://b/x", ""):
        with pytest.raises(InvalidArgumentError):
            async with braidlog.open_async(wrong):
                pass
    with pytest.raises(NotFoundError, match="create=True"):
        async with braidlog.open_async("typo/data"):
            pass
    async with braidlog.open_async("~/a/b", create=True) as node:
        await node.create_log("log")
    assert (home / "a" / "b" / "IDENTITY").exists()
