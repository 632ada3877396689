"""The command as a process: pipes that close and interrupts."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import braidlog
from braidlog.cli.failures import CORRUPTION, LOCKED

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


def test_a_follower_sees_what_another_process_appends(data: Path) -> None:
    with started(data, "tail", "log", "-n", "1", "-f", "--format", "raw") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"x" * 100 + b"\n"
        with braidlog.open(data) as node:
            node.log("log").append(b"later")
        assert process.stdout.readline() == b"later\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


def test_a_node_that_cannot_serve_ends_with_a_code_of_its_own(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = tmp_path / "node.toml"
    listen = 'listen = "127.0.0.1:0"'
    settings.write_text(f'[node]\nid = 1\ndata = "{data}"\n{listen}\n')

    def serve() -> tuple[int, str]:
        command = [sys.executable, "-m", "braidlog", "serve", "-c", str(settings)]
        ran = subprocess.run(command, check=False, capture_output=True, text=True)
        return ran.returncode, json.loads(ran.stderr.splitlines()[-1])["message"]

    with braidlog.open(data) as node:
        node.create_log("log").append(b"x")
        code, message = serve()
        assert code == LOCKED, message
    (data / "wal" / "slot-000001.wal").unlink()
    code, message = serve()
    assert code == CORRUPTION, message
    assert "node 1 is damaged" in message
