"""The command as a process: pipes that close and interrupts."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import braidlog
from braidlog.cli import main
from braidlog.cli.command.failures import CORRUPTION, LOCKED
from braidlog.node.config import NodeConfig

ALONE = '[cluster.voters]\n1 = "127.0.0.1:7400"\n'

pytestmark = pytest.mark.process


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Have a log `log` of more than a pipe holds."""
    with braidlog.open(tmp_path / "data") as node:
        node.create_log("log").append_many([b"x" * 100] * 20_000)
    return tmp_path / "data"


def started(data: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "braidlog", *arguments, "--data", str(data)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_closed_pipe_ends_it_quietly(data: Path) -> None:
    with started(data, "read", "log") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    "arguments",
    [
        ["log", "list"],
        ["stats", "--json"],
        ["inspect", "frames", "1"],
        ["export", "log", "-", "--format", "arrow"],
    ],
    ids=" ".join,
)
def test_a_pipe_that_nobody_reads(data: Path, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = subprocess.run(
            [sys.executable, "-m", "braidlog", *arguments, "--data", str(data)],
            check=False,
            stdout=writing,
            stderr=subprocess.PIPE,
        )
    finally:
        os.close(writing)
    assert (result.returncode, result.stderr) == (141, b"")


def test_interrupt_ends_it_quietly(data: Path) -> None:
    with started(data, "tail", "log", "-n", "1", "-f") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()  # a follower does not sit on what it has
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == b"interrupted\n"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_an_import_that_says_how_to_go_on(
    data: Path, number: signal.Signals, code: int
) -> None:
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "braidlog", "import", "log", "-", "-d", str(data)]
    with (
        subprocess.Popen(
            [*command, "--format", "jsonl", "--json", "--batch", "65536"],
            stdin=reading,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process,
    ):
        os.close(reading)
        # One block of what is read at once, and half of the next.
        os.write(writing, b'{"n":1}\n' * (3 << 16))
        with braidlog.open(data, read_only=True) as node:
            while node.log("log").end <= 20_000 + (2 << 16):
                assert process.poll() is None
                time.sleep(0.01)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    os.close(writing)
    assert process.returncode == code
    assert json.loads(out)["records"] == 131_072
    error = json.loads(err)["error"]
    assert (error["code"], error["exit_code"]) == ("interrupted", code)
    assert error["notes"] == [
        "next is -, row 131073; pass --skip 131072 to continue there"
    ]


def test_a_signal_leaves_no_half_export(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl.gz"
    with braidlog.open(data) as node:
        for _ in range(20):
            node.log("log").append_many([b"x" * 100] * 20_000)
    with started(data, "export", "log", str(file)) as process:
        while not (tmp_path / ".out.jsonl.gz.partial").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    assert sorted(tmp_path.iterdir()) == [data]


def test_what_cannot_be_said_changes_no_exit_code(data: Path) -> None:
    def code(*arguments: str) -> int:
        with Path("/dev/full").open("wb") as full:
            return subprocess.run(
                [sys.executable, "-m", "braidlog", *arguments, "--data", str(data)],
                check=False,
                stdout=subprocess.DEVNULL,
                stderr=full,
            ).returncode

    assert code("read", "nothing") == 3
    assert code("verify") == 0


def test_a_result_that_cannot_be_printed_is_told(data: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "braidlog", "append", "log", "x", "-d", str(data)],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "error: stdout: No space left on device",
        "note: the command was carried out nevertheless: appended 1: 20001 to 20001",
    ]


def test_a_follower_sees_what_another_process_appends(data: Path) -> None:
    with started(data, "tail", "log", "-n", "1", "-f", "--format", "raw") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"x" * 100 + b"\n"
        with braidlog.open(data) as node:
            node.log("log").append(b"later")
        assert process.stdout.readline() == b"later\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


@pytest.mark.parametrize("names", ["tokens", "peer_token", "certificate key"])
def test_a_check_reads_the_files_of_a_start(tmp_path: Path, names: str) -> None:
    settings = tmp_path / "node.toml"

    def check(security: str, code: int) -> str:
        node = f'id = 1\ndata = "{tmp_path}"\nlisten = "127.0.0.1:0"\n'
        settings.write_text(f"{ALONE}[node]\n{node}{security}")
        result = CliRunner().invoke(main, ["serve", "--check", "-c", str(settings)])
        assert result.exit_code == code, result.output
        return result.stderr

    check("", 0)
    lines = (f'{name} = "{tmp_path}/not-there"\n' for name in names.split())
    problem = check("[security]\n" + "".join(lines), 1)
    assert f"{names.split()[0]} = '{tmp_path}/not-there': No such file" in problem


def test_the_directory_of_a_node_may_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "node.toml"
    settings.write_text(
        f'{ALONE}[node]\nid = 1\ndata = "{tmp_path}/file"\nlisten = "127.0.0.1:0"\n'
    )

    def check(*said: str, code: int = 0) -> str:
        command = ["serve", "--check", "-c", str(settings), *said]
        result = CliRunner().invoke(main, command)
        assert result.exit_code == code, result.output
        return result.output

    monkeypatch.delenv("BRAIDLOG_DATA", raising=False)
    assert f"with these settings, on {tmp_path}/file" in check()
    assert "with these settings, on here" in check("--data", "here")
    monkeypatch.setenv("BRAIDLOG_DATA", "there")
    assert "BRAIDLOG_DATA names there" in check(code=1)
    assert "with these settings, on here" in check("-d", "here")


def test_the_level_of_the_log_may_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "node.toml"
    text = f'{ALONE}[node]\nid = 1\ndata = "{tmp_path}"\n[log]\nlevel = "error"\n'
    settings.write_text(text)
    levels = []

    def run(config: NodeConfig, *_: object) -> int:
        levels.append(config.log.level)
        return 0

    monkeypatch.setattr("braidlog.node.process.run", run)
    for said in ([], ["--log-level", "debug"]):
        result = CliRunner().invoke(main, ["serve", "-c", str(settings), *said])
        assert result.exit_code == 0, result.output
    assert levels == ["error", "debug"]


def test_a_node_that_cannot_serve_ends_with_a_code_of_its_own(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = tmp_path / "node.toml"
    listen = 'listen = "127.0.0.1:0"'
    settings.write_text(f'{ALONE}[node]\nid = 1\ndata = "{data}"\n{listen}\n')

    def serve() -> tuple[int, str]:
        command = [sys.executable, "-m", "braidlog", "serve", "-c", str(settings)]
        ran = subprocess.run(command, check=False, capture_output=True, text=True)
        return ran.returncode, json.loads(ran.stderr.splitlines()[-1])["message"]

    with braidlog.open(data) as node:
        node.create_log("log").append(b"x")
        code, message = serve()
        assert code == LOCKED, message
    code, message = serve()
    assert (code, "has the embedded log 'log'" in message) == (1, True), message
    with braidlog.open(data) as node:
        assert node.log("log").describe().records == 1
    (data / "wal" / "slot-000001.wal").unlink()
    code, message = serve()
    assert code == CORRUPTION, message
    assert "node 1 is damaged" in message
