"""The commands on logs, with a cluster instead of a data directory."""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path

import pytest
from click.testing import CliRunner

from braidlog.cli import main
from braidlog.errors import DeadlineError, LogError, LogFullError
from braidlog.wire.messages import Read
from unit.cli.conftest import Cli, ClusterCli


def test_create_list_describe_delete(many: ClusterCli) -> None:
    options = ("--streams", "2", "--replication", "3", "--min-replicas", "2")
    [made] = many.json("log", "create", "orders", *options, "--retention", "7d")
    assert made == {
        "log": "orders",
        "streams": 2,
        "replication": 3,
        "min_replicas": 2,
        "retention_ms": 604_800_000,
    }
    again = ("log", "create", "orders", "--exist-ok", "--streams", "5")
    assert many.json(*again) == [{"log": "orders", "streams": 2}]
    many.run("append", "orders", "a", "b")
    [listed] = many.json("log", "list")
    assert listed == {"log": "orders", "first": 1, "end": 3, "records": 2}
    [described] = many.json("log", "describe", "orders")
    assert (described["replication"], described["min_replicas"]) == (3, 2)
    assert [s["status"] for s in described["streams"]] == ["running"] * 2
    shown = many.run("log", "describe", "orders").stdout
    assert "3, at least 2" in shown
    assert "running in epoch 1 on 1, 2, 3" in shown
    many.run("log", "delete", "orders", code=2)
    many.run("log", "delete", "orders", "--yes")
    assert many.json("log", "list") == []


def test_a_log_without_replicas_is_described(
    many: ClusterCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    many.run("log", "create", "orders")
    many.run("append", "orders", "a")
    [described] = many.json("log", "describe", "orders")
    assert described["first_timestamp"] > 0
    many.fake.fault = lambda _, asked: "before" if isinstance(asked, Read) else ""
    monkeypatch.setattr("braidlog.cli.log.logs._FIRST_RECORD_S", 0.01)
    [described] = many.json("log", "describe", "orders")
    assert (described["records"], described["first_timestamp"]) == (1, None)
    shown = many.run("log", "describe", "orders")
    assert "note: the first timestamp is unknown: " in shown.stderr


def test_settings_are_changed_one_by_one(many: ClusterCli) -> None:
    options = ("--replication", "3", "--min-replicas", "3", "--retention", "7d")
    many.run("log", "create", "orders", *options)
    change = ("log", "set", "orders")
    [changed] = many.json(*change, "--min-replicas", "1")
    assert changed.pop("took_ms") >= 0
    revision = changed.pop("revision")
    assert changed == {"log": "orders", "min_replicas": 1}
    [described] = many.json("log", "describe", "orders")
    assert described["revision"] == revision
    many.run(*change, "--retention-bytes", "1GiB")
    many.run(*change, "--retention", "none", "--replication", "2")
    [described] = many.json("log", "describe", "orders")
    kept = ("replication", "min_replicas", "retention_ms", "retention_bytes")
    assert [described[name] for name in kept] == [2, 1, None, 1 << 30]
    refused = many.run(*change, "--min-replicas", "3", code=1)
    assert "replication = 2 and min_replicas = 3" in refused.stderr
    refused = many.run(*change, "--replication", "5", code=1)
    assert "Start 2 more" in refused.stderr
    many.run(*change, "--replication", "5", "--allow-missing")
    [described] = many.json("log", "describe", "orders")
    assert (described["replication"], described["replicas_missing"]) == (5, 2)


def test_streams_are_changed(many: ClusterCli) -> None:
    many.run("log", "create", "orders")
    many.run("append", "orders", "a")
    [changed] = many.json("log", "set", "orders", "--streams", "3")
    assert (changed["log"], changed["streams"]) == ("orders", 3)
    [described] = many.json("log", "describe", "orders")
    assert described["key_streams"] == [1, 2, 3]
    fewer = many.run("log", "set", "orders", "--streams", "2")
    assert "3 to 2 streams: the last ones take no keys any more" in fewer.stderr
    assert "changed orders in " in fewer.stdout
    [described] = many.json("log", "describe", "orders")
    assert (described["key_streams"], described["removed"]) == ([1, 2], [3])
    shown = many.run("log", "describe", "orders").stdout
    assert "removed: it goes when its last record is trimmed" in shown


def test_two_administrators_do_not_undo_one_another(many: ClusterCli) -> None:
    many.run("log", "create", "orders", "--replication", "1")
    [seen] = many.json("log", "describe", "orders")
    expect = ("--expect", str(seen["revision"]))
    change = ("log", "set", "orders")
    [first] = many.json(*change, "--retention", "7d", "--streams", "2", *expect)
    assert first["revision"] > seen["revision"]
    many.run(*change, "--retention", "none", *expect, code=1)
    many.run(*change, "--streams", "1", *expect, code=1)
    [described] = many.json("log", "describe", "orders")
    assert described["retention_ms"] == 7 * 86_400_000
    assert len(described["key_streams"]) == 2
    expect = ("--expect", str(first["revision"]))
    renamed = ("--name", "bills", "--compression", "zstd")
    [changed] = many.json(*change, *renamed, *expect)
    assert (changed["log"], changed["new_name"]) == ("orders", "bills")
    [described] = many.json("log", "describe", "bills")
    assert described["compression"] == "zstd"
    many.run("append", "bills", "after")


def test_more_replicas_than_nodes_have_to_be_meant(many: ClusterCli) -> None:
    asked = ("log", "create", "orders", "--streams", "2", "--replication", "5")
    refused = many.run(*asked, code=1)
    assert "the cluster has 3 nodes, but replication is 5. Start 2 more" in (
        refused.stderr
    )
    assert many.json("log", "list") == []
    made = many.run(*asked, "--allow-missing")
    assert "4 replicas of 10 missing" in made.stderr
    [described] = many.json("log", "describe", "orders")
    assert described["replicas_missing"] == 4
    shown = many.run("log", "describe", "orders").stdout
    assert "5, at least 3; 4 replicas missing" in shown
    [status] = many.json("cluster", "status")
    assert [log["missing"] for log in status["logs"]] == [4]
    assert [stream["missing"] for stream in status["streams"]] == [2, 2]
    assert status["health"] == "degraded"


def test_committed_means_the_same_everywhere(many: ClusterCli) -> None:
    many.run("log", "create", "orders")
    many.run("append", "orders", "a", "b")
    [described] = many.json("log", "describe", "orders")
    [listed] = many.json("stream", "list", "orders")
    assert described["streams"][0]["committed"] == listed["committed"] == 3


def test_streams_of_a_directory_are_refused(cli: Cli) -> None:
    for option in (
        "--streams=2",
        "--replication=2",
        "--min-replicas=2",
        "--allow-missing",
    ):
        result = cli.run("log", "create", "a", option, code=2)
        option, _, _ = option.partition("=")
        assert f"{option} needs --cluster" in result.stderr
    assert not cli.data.exists()


def test_a_cluster_without_a_name_is_not_taken_for_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["append", "a", "x", "--create", "--cluster", ""]
    result = CliRunner().invoke(main, arguments)
    assert list(tmp_path.iterdir()) == []
    assert result.exit_code == 2
    assert "error: --cluster is empty" in result.stderr


def test_append_read_tail(many: ClusterCli) -> None:
    [done] = many.json("append", "orders", "--create", stdin="one\ntwo\nthree\n")
    assert done == {"log": "orders", "first": 1, "end": 4, "records": 3}
    assert many.run("append", "orders", "four").stdout == "appended 1: 4 to 4\n"
    raw = ("--format", "raw")
    assert many.run("read", "orders", *raw).stdout.split() == [
        "one",
        "two",
        "three",
        "four",
    ]
    assert many.run("read", "orders", "2", *raw).stdout == "two\n"
    assert many.run("tail", "orders", "-n", "1", *raw).stdout == "four\n"
    follow = ("-n", "2", "-f", "--timeout", "0.05")
    assert many.run("tail", "orders", *follow, *raw).stdout == "three\nfour\n"
    many.run("read", "orders", "--begin", "9", code=6)
    many.run("read", "nothing", code=3)


def test_positions_with_gaps_are_told(many: ClusterCli) -> None:
    many.run("log", "create", "orders", "--streams", "3")
    pairs = "".join(f"k{number % 7}=v{number}\n" for number in range(20))
    many.run("append", "orders", "--key-separator", "=", stdin=pairs)
    result = many.run("append", "orders", "--key", "k", stdin="x\ny\n")
    assert result.stdout == "appended 2: 21 to 22\n"
    assert many.json("read", "orders", "--key", "k")[0]["position"] == 21


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv", "out.parquet", "out.arrow"])
def test_export(many: ClusterCli, tmp_path: Path, name: str) -> None:
    many.run("append", "orders", "--create", "a", "b")
    [done] = many.json("export", "orders", str(tmp_path / name))
    assert done["records"] == 2
    assert (tmp_path / name).stat().st_size == done["bytes"] > 0


def test_an_import_goes_on_where_it_stopped(many: ClusterCli, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f'{{"n": {number}}}\n' for number in range(10)))
    once = ("import", "rows", str(file), "--producer", "p", "--batch", "3")
    [first] = many.json(*once, "--create")
    assert (first["records"], first["first"], first["end"]) == (10, 1, 11)
    with file.open("a") as more:
        more.write('{"n": 10}\n')
    [second] = many.json(*once)
    assert (second["records"], second["skipped"], second["first"]) == (1, 10, 11)
    values = [json.loads(value)["n"] for value in many.fake.values("rows")]
    assert values == list(range(11))


def test_an_import_that_fails_says_how_far_it_came(
    many: ClusterCli, tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"v": 1}\n{"v": 2}\n{"w": 3}\n')
    options = ("--value", "v", "--batch", "2", "--create")
    result = many.run("import", "rows", str(file), *options, code=1)
    assert "imported 2 records into rows: 1 to 2" in result.stdout
    assert "row 3; pass --skip 2 to continue there" in result.stderr


@pytest.mark.parametrize(
    ("outcomes", "told"),
    [
        ([DeadlineError("no answer"), range(1, 2)], "more may be stored"),
        ([LogFullError("full"), range(1, 2)], "more may be stored"),
        ([range(1, 2), LogFullError("full")], "pass --skip 1 to continue there"),
    ],
    ids=["unknown", "hole", "end"],
)
def test_what_may_be_stored_is_not_called_done(
    many: ClusterCli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    outcomes: list[range | LogError],
    told: str,
) -> None:
    def submit(*_: object, **__: object) -> Future[range]:
        future: Future[range] = Future()
        outcome = outcomes.pop(0)
        if isinstance(outcome, LogError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
        return future

    file = tmp_path / "rows.jsonl"
    file.write_text('{"v": 1}\n{"v": 2}\n')
    many.run("log", "create", "rows")
    monkeypatch.setattr("braidlog.client.ClusterLog.submit_many", submit)
    arguments = ("import", "rows", str(file), "--batch", "1")
    code = 1 if isinstance(outcomes[0], DeadlineError) else 7
    result = many.run(*arguments, code=code)
    assert "imported 1 record" in result.stdout
    assert told in result.stderr


def test_nothing_acknowledged_is_not_nothing_stored(
    many: ClusterCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object, **__: object) -> Future[range]:
        raise DeadlineError("no answer")

    def submit(*_: object, **__: object) -> Future[range]:
        future: Future[range] = Future()
        future.set_exception(DeadlineError("no answer"))
        return future

    file = tmp_path / "rows.jsonl"
    file.write_text('{"v": 1}\n')
    many.run("log", "create", "rows")
    monkeypatch.setattr("braidlog.client.ClusterLog.submit_many", submit)
    result = many.run("import", "rows", str(file), code=1)
    assert "0 records were acknowledged, and more may be stored" in result.stderr
    monkeypatch.setattr("braidlog.client.ClusterLog.append_many", late)
    result = many.run("append", "rows", "one", code=1)
    assert result.stdout == "nothing was acknowledged\n"
    assert "values that were in flight may be stored as well" in result.stderr
    assert "check before you run the command" in result.stderr


def test_trim_and_cursors(many: ClusterCli) -> None:
    many.run("append", "orders", "--create", stdin="a\nb\nc\nd\n")
    many.run("cursor", "set", "orders", "bill", "3", "--pin", "--lease", "7d")
    [cursor] = many.json("cursor", "list", "orders")
    assert (cursor["position"], cursor["lag"], cursor["pin"]) == (3, 2, True)
    assert cursor["lease"] == 604_800.0
    assert many.json("cursor", "get", "orders", "bill") == [cursor]
    result = many.run("trim", "orders", "--keep", "0", "--yes")
    assert "a pinning cursor keeps records" in result.stderr
    assert result.stdout == "orders begins at 3\n"
    many.run("cursor", "delete", "orders", "bill")
    many.run("trim", "orders", "--keep", "1", code=2)
    assert many.json("trim", "orders", "--keep", "1", "--yes")[0]["first"] == 4


@pytest.mark.parametrize(
    "command",
    [
        ["stats"],
        ["inspect", "segments"],
        ["verify"],
        ["repair"],
        ["up"],
        ["serve"],
    ],
    ids=" ".join,
)
def test_commands_on_files_refuse_a_cluster(
    command: list[str], many: ClusterCli
) -> None:
    result = many.run(*command, code=2)
    assert f"{' '.join(command)}` works on a data directory" in result.stderr
    assert "--data" in result.stderr


def test_a_cluster_of_the_environment(
    many: ClusterCli, orders: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAIDLOG_CLUSTER", "n1")
    run = CliRunner().invoke
    assert run(main, ["log", "create", "far"]).exit_code == 0
    assert [log["log"] for log in many.json("log", "list")] == ["far"]
    # What is said on the command line goes before the environment.
    assert [log["log"] for log in orders.json("log", "list")] == ["orders"]
    assert orders.json("stats")[0]["records"] == 10
    refused = run(main, ["stats"])
    assert refused.exit_code == 2
    assert "not on a cluster" in refused.stderr
    monkeypatch.setenv("BRAIDLOG_DATA", str(orders.data))
    both = run(main, ["log", "list"])
    assert both.exit_code == 2
    assert "both set" in both.stderr
    assert run(main, ["stats"]).exit_code == 0
    twice = run(main, ["log", "list", "--cluster", "n1", "--data", "d"])
    assert "cannot be combined" in twice.stderr
