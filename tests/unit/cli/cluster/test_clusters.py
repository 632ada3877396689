"""Nodes, streams, tokens and how to get in."""

from __future__ import annotations

import socket
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from braidlog.cli import main
from braidlog.cli.cluster import health
from braidlog.client import Client
from braidlog.errors import DeadlineError
from braidlog.wire.messages import LogInfo, Metadata, NodeInfo, StreamInfo, StreamStatus
from braidlog.wire.quotas import Quotas
from braidlog.wire.roles import Role
from braidlog.wire.tokens import parse_tokens
from unit.cli.conftest import ClusterCli


@pytest.fixture
def orders(many: ClusterCli) -> ClusterCli:
    """Have a log of two streams on three nodes."""
    many.run("log", "create", "orders", "--streams", "2")
    many.run("append", "orders", "a", "b", "c")
    return many


def test_status_of_a_whole_cluster(orders: ClusterCli) -> None:
    [status] = orders.json("cluster", "status")
    assert (status["cluster"], status["health"], status["leader"]) == ("fake", "ok", 1)
    assert [node["state"] for node in status["nodes"]] == ["up"] * 3
    assert [node["replicas"] for node in status["nodes"]] == [2] * 3
    assert [node["primary_of"] for node in status["nodes"]] == [1, 1, 0]
    assert [log["records"] for log in status["logs"]] == [3]
    assert sum(stream["committed"] - 1 for stream in status["streams"]) == 3
    text = orders.run("cluster", "status").stdout
    assert "health   ok" in text
    assert "n2:7400" in text


def test_health(orders: ClusterCli) -> None:
    def judged() -> Any:
        [status] = orders.json("cluster", "status")
        return status["health"], [stream["state"] for stream in status["streams"]]

    orders.fake.dead.add(3)
    assert judged() == ("unavailable", ["unavailable"] * 2)
    for stream in orders.fake.streams.values():
        stream.replicas = (1, 2)
    assert judged() == ("degraded", ["degraded"] * 2)
    orders.fake.dead.clear()
    for stream in orders.fake.streams.values():
        stream.replicas = (1, 2, 3)
    assert judged() == ("ok", ["ok"] * 2)
    orders.run("stream", "seal", "1", "--yes")
    assert judged() == ("ok", ["sealed", "ok"])


def test_status_names_slow_nodes(orders: ClusterCli) -> None:
    orders.fake.slow_ms[2] = 30_000
    [said] = orders.json("cluster", "status", "--check", code=8)
    assert said["health"] == "degraded"
    [why] = said["why"]
    assert (why["what"], why["nodes"], why["seconds"]) == ("node_slow", [2], 30)
    assert [node["state"] for node in said["nodes"]] == ["up", "slow", "up"]
    assert "node 2 is slow" in orders.run("cluster", "status").stdout


def test_status_says_why_and_since_when(orders: ClusterCli) -> None:
    [well] = orders.json("cluster", "status", "--check")
    assert (well["health"], well["why"], well["since"]) == ("ok", [], None)
    assert well["told_by"] == well["leader"] == 1
    orders.fake.dead.add(3)
    orders.fake.silent_ms = 61_000
    [said] = orders.json("cluster", "status", "--check", code=8)
    assert [each["what"] for each in said["why"]] == [
        "node_down",
        "unavailable",
        "unavailable",
    ]
    down, first, _ = said["why"]
    assert (down["nodes"], down["seconds"]) == ([3], 61)
    assert said["since"] == down["since"]
    assert abs(_age_s(said["since"]) - 61) < 30
    assert (first["nodes"], first["stream"], first["log"]) == ([3], 1, "orders")
    text = orders.run("cluster", "status").stdout
    assert "node 3 is down" in text
    assert "stream 2 of orders has 2 of 3 replicas in sync; not in sync: node 3" in text
    assert "the cluster is unavailable" in (
        orders.run("cluster", "status", "--check", code=8).stderr
    )


def _age_s(text: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds()


def test_without_a_leader_each_node_says_what_it_knows(
    orders: ClusterCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("braidlog.client.client.LOOK_S", 0.1)
    orders.fake.leaderless = True
    orders.fake.dead.add(3)
    [said] = orders.json("cluster", "status")
    assert (said["health"], said["leader"]) == ("unavailable", None)
    assert said["told_by"] == [1, 2]
    states = [(node["state"], node["says"]) for node in said["nodes"]]
    assert states[:2] == [("answers", "it knows no leader")] * 2
    assert states[2] == ("silent", "n3:7400 refused the connection")
    assert [stream["state"] for stream in said["streams"]] == ["unavailable"] * 2
    none, silent = said["why"]
    assert "2 of its 3 voters answer; an election takes" in none["why"]
    assert (silent["what"], silent["nodes"]) == ("node_down", [3])
    orders.fake.dead.add(2)
    [said] = orders.json("cluster", "status", "--check", code=8)
    assert "1 of its 3 voters answer, and 2 are needed" in said["why"][0]["why"]
    [look] = orders.json("top", "--once")
    assert look["health"] == "unavailable"
    assert "1 of its 3 voters answer" in look["error"]
    assert [(row["node"], row["ready"]) for row in look["said"]] == [
        (1, False),
        (2, False),
        (3, False),
    ]
    assert "node 2: n2:7400 refused" in orders.run("top", "--once").stdout
    orders.fake.dead.add(1)
    for command in (["cluster", "status"], ["top", "--once"]):
        result = orders.run(*command, code=3)
        assert (
            "no node reports the state of the cluster (n1:7400 refused" in result.stderr
        )


def test_a_move_to_a_node_that_is_down_can_be_given_up(orders: ClusterCli) -> None:
    orders.fake.nodes[4] = "n4:7400"
    orders.fake.dead.add(4)
    moved = orders.run("stream", "move", "1", "--from", "2", "--to", "4")
    assert "node 4 is down, so the move waits for it" in moved.stderr
    [given] = orders.json("stream", "move", "1", "--cancel")
    assert (given["source"], given["target"]) == (2, 4)
    nothing = orders.run("stream", "move", "1", "--cancel", code=3)
    assert "no replica of stream 1 is being moved" in nothing.stderr
    orders.run("stream", "move", "1", "--cancel", "--to", "4", code=2)
    orders.run("stream", "move", "1", "--to", "4", code=2)


def test_health_is_an_exit_code(orders: ClusterCli) -> None:
    assert "all replicas are in sync" in orders.run("cluster", "health").stdout
    orders.fake.dead.add(3)
    [said] = orders.json("cluster", "health", code=8)
    assert not said["in_sync"]
    assert said["lacking"] == [
        "node 3 is down",
        "stream 1 of orders has 2 of 3 replicas in sync; not in sync: node 3",
        "stream 2 of orders has 2 of 3 replicas in sync; not in sync: node 3",
    ]
    shown = orders.run("cluster", "health", code=8).stdout
    assert shown.splitlines() == said["lacking"]
    late = orders.run("cluster", "health", "--wait", "--timeout", "300ms", code=8)
    assert "not all replicas are in sync after 0.3 s" in late.stderr


def test_health_waits_until_all_replicas_are_in_sync(orders: ClusterCli) -> None:
    orders.fake.dead.add(3)
    back = threading.Timer(0.3, orders.fake.dead.clear)
    back.start()
    [said] = orders.json("cluster", "health", "--wait")
    back.join()
    assert said["in_sync"]


def test_health_names_what_the_leader_knows() -> None:
    stream = StreamInfo(
        7, 3, StreamStatus.RUNNING, (2, 1), (3,), 5, (2,), (1,), 2500, (1, 3)
    )
    log = LogInfo(b"1" * 16, "orders", (stream,), 1, 4, 1, 3, 2, b"", 0)
    nodes = (
        NodeInfo(1, "n1:7400", alive=True, voter=True),
        NodeInfo(2, "n2:7400", alive=False, voter=True, silent_ms=1200),
    )
    node, lack = health.lacks(Metadata(9, 1, "test", nodes, (log,)))
    assert node == "node 2 is down, for 1.2 s"
    assert lack == (
        "stream 7 of orders has 1 of 3 replicas in sync, for 2.5 s;"
        " not in sync: node 1; copying it: node 3; damaged: node 1"
    )
    known = msgspec.structs.replace(stream, lacking_why="node 1 was restarted")
    log = msgspec.structs.replace(log, streams=(known,))
    _, lack = health.lacks(Metadata(9, 1, "test", nodes, (log,)))
    assert lack.endswith("in sync, for 2.5 s: node 1 was restarted")
    [lack] = health.lacks(Metadata(9, 0, "test", nodes, (log,)))
    assert "no known leader" in lack


def test_health_names_the_node_that_could_have_the_replica_that_lacks() -> None:
    stream = StreamInfo(
        7, 3, StreamStatus.RUNNING, (2, 1), (), 5, (2, 1), lacking_why="it has 2 of 3"
    )
    log = LogInfo(b"1" * 16, "orders", (stream,), 1, 4, 1, 3, 2, b"", 0)
    nodes = tuple(
        NodeInfo(number, f"n{number}:7400", alive=number != 3, voter=True)
        for number in (1, 2, 3)
    )
    _, lack = health.lacks(Metadata(9, 1, "test", nodes, (log,)))
    assert lack == (
        "stream 7 of orders has 2 of 3 replicas in sync;"
        " no other node can take a replica: node 3 is not there"
    )


def test_nodes(orders: ClusterCli) -> None:
    orders.run("node", "drain", "3")
    states = [node["state"] for node in orders.json("node", "list")]
    assert states == ["up", "up", "draining"]
    result = orders.run("node", "remove", "3", "--yes", code=1)
    assert "replicas of 2 streams" in result.stderr
    assert "node drain 3" in result.stderr
    for stream in orders.fake.streams.values():
        stream.replicas = (1, 2)
    assert (
        "remove node 3 permanently" in orders.run("node", "remove", "3", code=2).stderr
    )
    assert 3 in orders.fake.nodes
    orders.run("node", "remove", "3", "--yes")
    assert [node["node"] for node in orders.json("node", "list")] == [1, 2]
    orders.run("node", "undrain", "2")
    assert "nodes here: 1, 2" in orders.run("node", "drain", "3", code=3).stderr


def test_voters(many: ClusterCli) -> None:
    result = many.run("node", "voter", "3", "--off", code=2)
    assert "leave 2 voters (tolerates 0 failures)" in result.stderr
    many.run("node", "voter", "3", "--off", "--yes")
    assert many.fake.voters == {1, 2}
    assert many.run("node", "voter", "3").stderr == ""
    assert many.fake.voters == {1, 2, 3}
    assert many.run("node", "voter", "3").stderr == ""
    many.run("node", "voter", "2", "--off", "--yes")
    many.run("node", "voter", "1", "--off", "--yes")
    result = many.run("node", "voter", "3", "--off", "--yes", code=1)
    assert "node 3 is the only voter" in result.stderr
    assert "an odd number is better" in many.run("node", "voter", "1").stderr
    assert many.fake.voters == {1, 3}


def test_a_node_that_has_nowhere_to_go(orders: ClusterCli) -> None:
    result = orders.run("node", "drain", "3")
    assert "no other node can take 2 replicas of it: start one" in result.stderr
    orders.fake.nodes[4] = "n4:7400"
    assert orders.run("node", "drain", "2").stderr == ""
    assert orders.json("node", "drain", "1") == [{"node": 1, "draining": True}]


def test_streams(orders: ClusterCli) -> None:
    first, second = orders.json("stream", "list", "orders")
    assert (first["primary"], second["primary"]) == (1, 2)
    assert (
        "stop appends to stream 1" in orders.run("stream", "seal", "1", code=2).stderr
    )
    assert orders.json("stream", "seal", "1", "--yes") == [
        {"log": "orders", "stream": 1, "epoch": 2}
    ]
    assert orders.json("stream", "list")[0]["state"] == "sealed"
    orders.run("stream", "unseal", "1")
    assert orders.json("stream", "list")[0]["state"] == "ok"
    orders.run("stream", "list", "nothing", code=3)
    orders.run("stream", "seal", "9", "--yes", code=3)


def test_a_move(orders: ClusterCli) -> None:
    orders.fake.nodes[4] = "n4:7400"
    orders.run("stream", "move", "1", "--from", "2", "--to", "4")
    assert orders.json("stream", "list")[0]["replicas"] == [1, 4, 3]
    result = orders.run("stream", "move", "1", "--from", "2", "--to", "4", code=3)
    assert "it is on 1, 4, 3" in result.stderr
    result = orders.run("stream", "move", "1", "--from", "4", "--to", "9", code=3)
    assert "node 9 does not exist (nodes here: 1, 2, 3, 4)" in result.stderr
    assert "braidlog node list" in result.stderr


def test_top_prints_one_frame(orders: ClusterCli) -> None:
    text = orders.run("top", "--once", "--interval", "0.01").stdout
    assert "fake  ok  leader node 1" in text
    assert "n3:7400" in text
    assert "1 2 3" in text
    [look] = orders.json("top", "--once", "--interval", "0.01")
    assert look["logs"][0]["records_per_second"] == 0
    assert [stream["lag"] for stream in look["streams"]] == [{}, {}]
    assert [stream["braid"] for stream in look["streams"]] == [[0], [0]]


def test_top_says_when_nothing_answers_and_goes_on(
    orders: ClusterCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata, asked = Client.metadata, iter("nynyi")

    def some(client: Client) -> Any:
        answer = next(asked)
        if answer == "i":
            raise KeyboardInterrupt
        if answer == "n":
            raise DeadlineError("no node answered")
        return metadata(client)

    monkeypatch.setattr(Client, "metadata", some)
    looks = orders.json("top", "--interval", "0.01")
    assert [look["health"] for look in looks] == ["unavailable", "unavailable", "ok"]
    assert looks[0]["error"] == "no node answered"
    assert (looks[1]["leader"], looks[2]["leader"]) == (None, 1)


def test_intervals_that_no_clock_can_wait(many: ClusterCli) -> None:
    for wrong in ("0", "1e300", "inf", "nan"):
        assert "30 years" in many.run("top", "--interval", wrong, code=2).stderr


def test_top_cuts_no_name_in_a_file(many: ClusterCli) -> None:
    many.run("log", "create", "x" * 255)
    text = many.run("top", "--once", "--interval", "0.01").stdout
    assert text.count("x" * 255) == 2


def test_top_without_a_terminal(many: ClusterCli) -> None:
    assert "--once" in many.run("top", code=2).stderr
    assert "host:port" in many.run("top", "--once", "--status", "x", code=1).stderr


def create(path: Path, name: str, role: str = "read", *more: str) -> Any:
    arguments = ["--name", name, "--role", role, "--file", str(path), *more]
    return CliRunner().invoke(main, ["token", "create", *arguments])


def test_a_token_is_shown_once_and_kept_as_a_hash(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    first = create(path, "billing", "append")
    text = first.stdout.strip()
    assert first.exit_code == 0
    assert "only once" in first.stderr
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    create(path, "ops", "admin")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert text not in path.read_text()
    tokens = parse_tokens(path.read_text())
    assert len(tokens) == 2
    assert tokens.find(text).role is Role.APPEND


def test_tokens_with_roles_on_single_logs(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"

    def made(name: str, *logs: str) -> Any:
        more = [part for each in logs for part in ("--log", each)]
        arguments = ["token", "create", "--file", str(path), "--name", name, *more]
        return CliRunner().invoke(main, arguments)

    text = made("bill", "a.*=append", "x=y=read").stdout.strip()
    token = parse_tokens(path.read_text()).find(text)
    assert token.role is Role.NONE
    assert [(each.pattern, each.role) for each in token.grants] == [
        ("a.*", Role.APPEND),
        ("x=y", Role.READ),
    ]
    before = path.read_bytes()
    assert made("none").exit_code == 2
    for wrong in ("a*b=read", "a=peer", "a", "=read"):
        assert made("no", wrong).exit_code != 0
    assert path.read_bytes() == before


def test_tokens_with_quotas(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    given = ["--quota", "bytes_per_s=1000000", "--quota", "connections=3"]
    made = create(path, "bill", "append", *given)
    token = parse_tokens(path.read_text()).find(made.stdout.strip())
    assert token.quotas == Quotas(bytes_per_s=1_000_000, connections=3)
    before = path.read_bytes()
    for wrong in ("bytes=1", "connections", "connections=-1", "connections=1.5", "=1"):
        refused = create(path, "no", "read", "--quota", wrong)
        assert refused.exit_code == 1
        assert "quotas" in refused.stderr
    assert "role peer" in create(path, "no", "peer", *given).stderr
    assert path.read_bytes() == before


def test_a_token_file_that_is_refused_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    create(path, "a")
    before = path.read_bytes()
    again = create(path, "a").stderr
    assert f"{path} has a token named 'a' already" in again
    assert "another directory" not in again
    assert "--exist-ok" not in again  # Only `log create` has it.
    assert create(path, "not a name").exit_code == 1
    assert path.read_bytes() == before
    path.write_text("[[token]]\nname = 1\n")
    assert "token file" in create(path, "b").stderr
    assert path.read_text() == "[[token]]\nname = 1\n"


def test_where_a_token_comes_from(
    many: ClusterCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    connect = __import__("braidlog.client").client.connect

    def noting(*_: object, token: str, **__: object) -> Any:
        seen.append(token)
        return connect()

    monkeypatch.setattr("braidlog.client.connect", noting)
    many.run("log", "list")
    monkeypatch.setenv("BRAIDLOG_TOKEN", "from-environment")
    many.run("log", "list")
    file = tmp_path / "token"
    file.write_text("from-file\n")
    many.run("log", "list", "--token-file", str(file))
    many.run("log", "list", "--token", "said")
    assert seen == ["", "from-environment", "from-file", "said"]
    file.write_text("[[token]]\nname = 'x'\n")
    result = many.run("log", "list", "--token-file", str(file), code=2)
    assert "one token" in result.stderr
    many.run("log", "list", "--token", "a", "--token-file", str(file), code=2)


def test_nobody_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        arguments = ["log", "list", "--cluster", address]
        result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 3
    assert f"{address}: Connection refused" in result.stderr


def test_a_certificate_that_is_none(many: ClusterCli, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("nothing")
    result = many.run("log", "list", "--tls-ca", str(file), code=2)
    assert "holds no certificate" in result.stderr


@pytest.mark.parametrize(
    "command", [["cluster", "status"], ["node", "list"], ["top", "--once"]]
)
def test_no_cluster_is_named(command: list[str]) -> None:
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert "BRAIDLOG_CLUSTER" in result.stderr
