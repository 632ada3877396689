"""The command as a process: pipes that close and interrupts."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]

# A log with more than a pipe holds; a follower that waits for ever.
PROGRAM = f"""
import sys, time
sys.path.insert(0, {str(TESTS)!r})
import braidlog
from unit.cli import fake

def wait(self, start=None, *, timeout=None):
    yield from self.read(start)
    time.sleep(60)

fake.Log.subscribe = wait
braidlog.open = fake.open_node
node = fake.open_node(sys.argv[1])
node.create_log("log").append_many([b"x" * 100] * 100_000)
from braidlog.cli import main
sys.argv[1:] = sys.argv[2:] + ["--data", sys.argv[1]]
main()
"""

pytestmark = [pytest.mark.process, pytest.mark.slow]


def started(data: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(data), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_closed_pipe_ends_it_quietly(tmp_path: Path) -> None:
    with started(tmp_path, "read", "log") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(10) == 141
        assert process.stderr.read() == b""


def test_interrupt_ends_it_quietly(tmp_path: Path) -> None:
    with started(tmp_path, "tail", "log", "-n", "1", "-f") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()  # a follower does not sit on what it has
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert process.stderr.read() == b"interrupted\n"
