"""`braidlog up` and the commands on the cluster that it runs, as processes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from braidlog.testing.cluster import LocalCluster
from commands import said

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

_WAIT_S = 60


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "braidlog", *arguments]


@dataclass
class Up:
    """A `braidlog up` that is ready, and what it said."""

    process: subprocess.Popen[str]
    nodes: list[dict[str, Any]]
    data: Path

    @property
    def seeds(self) -> str:
        return ",".join(node["address"] for node in self.nodes)

    @property
    def statuses(self) -> str:
        return ",".join(node["status"].split("/")[2] for node in self.nodes)

    def run(self, *arguments: str, code: int = 0, stdin: str = "") -> str:
        """Run a command on the cluster."""
        where = {"BRAIDLOG_CLUSTER": self.seeds, "BRAIDLOG_STATUS": self.statuses}
        return said(*arguments, code=code, stdin=stdin, environment=where)

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send a signal and wait for the end of all processes."""
        self.process.send_signal(number)
        # Nodes that are left have neither pipe.
        self.process.communicate(timeout=_WAIT_S)
        return self.process.returncode

    def alive(self) -> list[int]:
        """Return the nodes whose process is there."""
        pids = (int(node["pid"]) for node in self.nodes)
        return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def started(data: Path, *options: str, hangup: Any = signal.SIG_DFL) -> Up:
    process = subprocess.Popen(
        command("up", "-d", str(data), "--json", *options),
        # What names one directory, or is meant for one node, is not for all of them.
        env=os.environ | {"BRAIDLOG_DATA": "elsewhere", "BRAIDLOG_NODE_ID": "7"},
        # Whatever these tests inherited, of `nohup` for instance.
        preexec_fn=partial(signal.signal, signal.SIGHUP, hangup),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    count = int(options[options.index("--nodes") + 1]) if "--nodes" in options else 3
    nodes = []
    for _ in range(count):
        line = process.stdout.readline()
        assert line, process.stderr.read()
        nodes.append(json.loads(line))
    for line in process.stderr:
        if line.startswith("export BRAIDLOG_STATUS"):
            break
    return Up(process, nodes, data)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = started(tmp_path_factory.mktemp("up") / "cluster")
    yield running
    assert running.stop() == 0
    assert running.alive() == []


def test_a_log_from_its_creation_to_its_end(up: Up, tmp_path: Path) -> None:
    up.run("log", "create", "orders", "--streams", "2")
    up.run("append", "orders", "--key-separator", "=", stdin="a=1\nb=2\nc=3\n")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"n": {number}}}\n' for number in range(1000)))
    once = ("import", "orders", str(rows), "--producer", "p", "--batch", "100")
    up.run(*once)
    assert "0 records" in up.run(*once)
    up.run("export", "orders", str(tmp_path / "out.parquet"))
    [listed] = [json.loads(up.run("log", "list", "--json"))]
    assert listed["records"] == 1003
    values = up.run("read", "orders", "--format", "raw").splitlines()
    assert sorted(values[:3]) == ["1", "2", "3"]
    assert [json.loads(value)["n"] for value in values[3:]] == list(range(1000))
    assert up.run("tail", "orders", "-n", "1", "--format", "raw") == '{"n": 999}\n'
    up.run("cursor", "set", "orders", "mine", "500", "--pin")
    assert up.run("trim", "orders", "--keep", "1", "--yes") == "orders begins at 500\n"
    up.run("cursor", "delete", "orders", "mine")
    up.run("log", "delete", "orders", "--yes")
    assert "orders" not in up.run("log", "list")


def test_the_cluster_and_its_streams(up: Up) -> None:
    up.run("log", "create", "moved", "--streams", "2", "--replication", "2")
    listed = up.run("stream", "list", "moved", "--json").splitlines()
    [first, _] = map(json.loads, listed)
    number = str(first["stream"])
    up.run("stream", "seal", number, "--yes")
    status = json.loads(up.run("cluster", "status", "--json"))
    sealed = [each["stream"] for each in status["streams"] if each["state"] == "sealed"]
    assert sealed == [first["stream"]]
    up.run("stream", "unseal", number)
    up.run("append", "moved", "x")
    assert len(up.run("node", "list", "--json").splitlines()) == 3
    look = json.loads(up.run("top", "--once", "--interval", "0.1", "--json"))
    [seen] = [each for each in look["streams"] if each["stream"] == first["stream"]]
    assert set(seen["lag"]) >= set(map(str, first["replicas"]))
    assert all(node["connections"] > 0 for node in look["nodes"])
    assert all(node["wal_bytes"] > 0 for node in look["nodes"])
    assert "moved" in up.run("top", "--once", "--interval", "0.1")
    up.run("log", "set", "moved", "--replication", "3", "--min-replicas", "1")
    described = json.loads(up.run("log", "describe", "moved", "--json"))
    assert (described["replication"], described["min_replicas"]) == (3, 1)
    up.run("log", "set", "moved", "--replication", "4", code=1)
    up.run("log", "delete", "moved", "--yes")


def test_a_live_view_gives_the_terminal_back(up: Up) -> None:
    parent, child = pty.openpty()
    where = {"BRAIDLOG_CLUSTER": up.seeds, "BRAIDLOG_STATUS": up.statuses}
    dumb = subprocess.run(
        command("top"), env=os.environ | where | {"TERM": "dumb"}, stdout=child,
        stderr=subprocess.PIPE, check=False, timeout=_WAIT_S,
    )  # fmt: skip
    assert dumb.returncode == 2
    assert b"a terminal that can move its cursor" in dumb.stderr
    top = subprocess.Popen(
        command("top", "--interval", "0.1"),
        env=os.environ | where | {"TERM": "xterm", "NO_COLOR": "1"},
        stdout=child,
        stderr=child,
    )
    os.close(child)
    shown = b""
    while b"leader node" not in shown:
        shown += os.read(parent, 1 << 16)
    top.terminate()
    with contextlib.suppress(OSError):  # Linux says so at the end.
        while more := os.read(parent, 1 << 16):
            shown += more
    os.close(parent)
    assert top.wait(_WAIT_S) == 0
    # The other screen is left, the cursor can be seen, and nothing had a colour.
    assert shown.rindex(b"\x1b[?1049l") > shown.rindex(b"\x1b[?1049h")
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")
    assert b"\x1b[32m" not in shown


def test_a_second_one_on_the_same_directory_is_told(up: Up) -> None:
    result = subprocess.run(
        command("up", "-d", str(up.data)),
        capture_output=True,
        text=True,
        check=False,
        timeout=_WAIT_S,
    )
    assert result.returncode == 4
    assert "run" in result.stderr.splitlines()[0]
    assert up.nodes[0]["address"] in result.stderr
    assert len(up.alive()) == 3


def test_it_goes_on_with_its_data_after_sigterm(tmp_path: Path) -> None:
    first = started(tmp_path / "c", "--nodes", "1")
    first.run("append", "kept", "--create", "a")
    follower = subprocess.Popen(
        command("tail", "kept", "-f", "--cluster", first.seeds),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    assert follower.stdout.readline()
    # A reader that waits for more does not hold up the end.
    assert first.stop(signal.SIGTERM) == 0
    assert first.alive() == []
    second = started(tmp_path / "c", "--nodes", "1")
    try:
        assert second.seeds == first.seeds
        second.run("append", "kept", "b")
        assert follower.stdout.readline().endswith("b\n")
        # SIGHUP alone does not end a node, which reloads.
        os.kill(int(second.nodes[0]["pid"]), signal.SIGHUP)
        second.run("append", "kept", "c")
        os.kill(int(second.nodes[0]["pid"]), signal.SIGTERM)
        stdout, stderr = second.process.communicate(timeout=_WAIT_S)
        assert json.loads(stdout) == {"ended": 1, "code": 0}
        assert "all nodes have stopped" in stderr
        assert second.process.returncode == 1
    finally:
        follower.send_signal(signal.SIGINT)
        follower.communicate(timeout=_WAIT_S)
        second.process.kill()


def test_what_does_not_stop_it(tmp_path: Path) -> None:
    running = started(tmp_path / "c", "--nodes", "2", hangup=signal.SIG_IGN)
    assert running.process.stdout is not None
    assert running.process.stderr is not None
    # What `nohup` started does not mind that the terminal closes, nor do its nodes.
    running.process.send_signal(signal.SIGHUP)
    for node in running.nodes:
        os.kill(int(node["pid"]), signal.SIGHUP)
    # Nobody reads any more what it says when a node ends.
    running.process.stdout.close()
    running.process.stderr.close()
    os.kill(int(running.nodes[0]["pid"]), signal.SIGKILL)
    ended = Path(f"/proc/{running.nodes[0]['pid']}")
    while ended.exists():
        time.sleep(0.05)
    time.sleep(0.5)
    assert len(running.alive()) == 1
    running.process.terminate()
    assert running.process.wait(_WAIT_S) == 0
    assert running.alive() == []


def test_nodes_stop_when_it_is_killed_and_hold_the_directory_until_then(
    tmp_path: Path,
) -> None:
    first = started(tmp_path / "c", "--nodes", "1")
    node = int(first.nodes[0]["pid"])
    try:
        os.kill(node, signal.SIGSTOP)
        assert first.stop(signal.SIGKILL) == -signal.SIGKILL
        assert first.alive() == [node]
        result = subprocess.run(
            command("up", "-d", str(tmp_path / "c")),
            capture_output=True,
            text=True,
            check=False,
            timeout=_WAIT_S,
        )
        assert result.returncode == 4, result.stderr
        assert f"(processes {node})" in result.stderr
        os.kill(node, signal.SIGCONT)
        deadline = time.monotonic() + _WAIT_S
        while first.alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert first.alive() == []
        said = Path(first.nodes[0]["log"]).read_text()
        assert "the process that started this node has ended" in said
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(node, signal.SIGKILL)


def refused(data: Path, *options: str, code: int = 1) -> str:
    result = subprocess.run(
        command("up", "-d", str(data), *options),
        capture_output=True,
        text=True,
        check=False,
        timeout=_WAIT_S,
    )
    assert result.returncode == code, result.stderr
    return result.stderr


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    LocalCluster(1, directory=tmp_path)
    port = json.loads((tmp_path / "ports.json").read_text())[0]
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        said = refused(tmp_path)
    assert f"port {port} is in use" in said
    assert "ports.json" in said


def test_ports_and_settings_of_all_nodes(tmp_path: Path) -> None:
    """Named ports are kept; settings are those of each call."""
    cluster = tmp_path / "c"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = tmp_path / "all.toml"
    file.write_text("[timing]\nretention_ms = 1234\n")
    options = ("--nodes", "1", "--profile", "small", "--config", str(file))
    first = started(cluster, *options, "--ports", f"{port},{port + 1}")
    try:
        assert first.nodes[0]["address"] == f"127.0.0.1:{port}"
        assert first.nodes[0]["status"] == f"http://127.0.0.1:{port + 1}/status"
        first.run("append", "kept", "--create", "a")
        said = tomllib.loads((cluster / "node-1" / "node.toml").read_text())
        assert said["limits"]["wal_bytes_max"] == 1 << 30
        assert said["timing"] == {"retention_ms": 1234}
    finally:
        assert first.stop() == 0
    assert "leave the ports out" in refused(cluster, "--ports", f"{port - 2}")
    # The data of a small node is that of any other.
    second = started(cluster, "--nodes", "1")
    try:
        assert second.seeds == first.seeds
        assert "a" in second.run("read", "kept", "--format", "raw")
        said = tomllib.loads((cluster / "node-1" / "node.toml").read_text())
        assert "limits" not in said
    finally:
        assert second.stop() == 0


def test_settings_that_no_node_would_take(tmp_path: Path) -> None:
    file = tmp_path / "all.toml"
    file.write_text("[limits]\nsegment_byte = 7\n")
    said = refused(tmp_path / "c", "--config", str(file))
    assert "segment_byte" in said
    assert "did you mean 'segment_bytes'" in said
    assert not (tmp_path / "c" / "node-1" / "node.log").exists()


def test_another_number_of_nodes(tmp_path: Path) -> None:
    LocalCluster(1, directory=str(tmp_path))
    assert "has a cluster of 1 node, not of 3" in refused(tmp_path, "--nodes", "3")


def test_the_directory_of_an_embedded_log(tmp_path: Path) -> None:
    (tmp_path / "LOCK").touch()
    assert "data directory of one node" in refused(tmp_path, code=2)


def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    cluster = LocalCluster(1, directory=tmp_path)
    cluster.data(1).parent.mkdir(exist_ok=True)
    cluster.data(1).write_text("no directory")
    said = refused(tmp_path)
    assert "node 1 stopped: " in said
    assert "Traceback" not in said


@pytest.mark.parametrize("module", ["msgspec", "uvloop", "prometheus_client"])
@pytest.mark.parametrize("name", ["up", "serve"])
def test_a_missing_extra(tmp_path: Path, name: str, module: str) -> None:
    (tmp_path / module).mkdir()
    (tmp_path / module / "__init__.py").write_text(
        f"raise ModuleNotFoundError('No module named {module}', name='{module}')"
    )
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    settings = tmp_path / "node.toml"
    settings.write_text(
        '[cluster.voters]\n1 = "127.0.0.1:1"\n'
        f'[node]\nid = 1\ndata = "{tmp_path / "d"}"\n'
        'listen = "127.0.0.1:0"\nhttp = "127.0.0.1:0"\n'
    )
    options = ["-d", str(tmp_path / "c")] if name == "up" else ["-c", str(settings)]
    result = subprocess.run(
        command(name, *options),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
        timeout=_WAIT_S,
    )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "hint: pip install 'braidlog[cluster]'"


def test_a_second_interrupt_ends_the_nodes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> int:
        monkeypatch.undo()
        raise KeyboardInterrupt

    cluster = LocalCluster(1, directory=tmp_path)
    with pytest.raises(KeyboardInterrupt), cluster:
        monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    assert not cluster.is_running(1)


def test_an_interrupt_leaves_no_node_that_nobody_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[subprocess.Popen[bytes]] = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **keywords: Any) -> None:
            super().__init__(*args, **keywords)
            begun.append(self)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    cluster = LocalCluster(2, directory=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        cluster.__enter__()
    [process] = begun
    ended = process.poll() is not None
    process.kill()
    process.wait()
    assert ended


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
def test_tokens_and_tls(tmp_path: Path) -> None:
    def run(*arguments: str, code: int = 0, **environment: str) -> str:
        result = subprocess.run(
            command(*arguments),
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_WAIT_S,
        )
        assert result.returncode == code, result.stderr
        return result.stderr if code else result.stdout

    certificate, key = tmp_path / "node.crt", tmp_path / "node.key"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"]
    make += ["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=node"]
    make += ["-addext", "subjectAltName=IP:127.0.0.1"]
    make += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(make, check=True, capture_output=True)
    file = tmp_path / "tokens.toml"
    create = ("token", "create", "--file", str(file))
    admin = run(*create, "--name", "ops", "--role", "admin").strip()
    (tmp_path / "reader").write_text(run(*create, "--name", "r", "--role", "read"))
    security = {
        "certificate": str(certificate),
        "key": str(key),
        "authority": str(certificate),
        "tokens": str(file),
    }
    settings = {"security": security}
    with LocalCluster(1, directory=tmp_path / "c", settings=settings) as cluster:
        there: dict[str, Any] = {
            "BRAIDLOG_CLUSTER": cluster.seeds,
            "BRAIDLOG_TLS_CA": str(certificate),
        }
        refused = run("log", "list", code=1, **there)
        assert "asks for a token" in refused
        assert "BRAIDLOG_TOKEN" in refused
        run("log", "create", "orders", BRAIDLOG_TOKEN=admin, **there)
        run("append", "orders", "x", BRAIDLOG_TOKEN=admin, **there)
        reader = ("--token-file", str(tmp_path / "reader"))
        assert run("read", "orders", "--format", "raw", *reader, **there) == "x\n"
        assert "needs a token of role append" in run(
            "append", "orders", "y", *reader, code=1, **there
        )
