"""Closing while a write hangs: it has a deadline, and goes on in the background."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import braidlog
from braidlog.errors import ClosedError, DeadlineError, LockedError

pytestmark = pytest.mark.process


@contextlib.contextmanager
def leased(path: Path) -> Iterator[None]:
    """Let nobody open the file for writing meanwhile: who tries hangs."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        # Instead of SIGIO, which would end the process.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGCHLD)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        os.close(descriptor)
        pytest.skip(f"this file system has no leases: {error}")
    try:
        yield
    finally:
        os.close(descriptor)


def test_a_close_that_cannot_end_says_so_and_goes_on(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with braidlog.open(data, segment_bytes=1 << 20) as node:
        node.create_log("a").append(b"before")
    node = braidlog.open(data)
    with leased(data / "wal" / "slot-000001.wal"):
        pending = node.log("a").submit(b"late")
        for _ in range(2):
            begin = time.monotonic()
            with pytest.raises(DeadlineError):
                node.close(timeout=0.3)
            assert 0.25 < time.monotonic() - begin < 5
            assert node.closed
            with pytest.raises(ClosedError):
                node.logs()
            with pytest.raises(LockedError):
                braidlog.open(data)
    node.close(timeout=10.0)
    assert pending.done()
    with braidlog.open(data) as node:
        assert [record.value for record in node.log("a").read()] == [b"before", b"late"]


def test_an_interrupt_ends_the_wait(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with braidlog.open(data, segment_bytes=1 << 20) as node:
        node.create_log("a")
    node = braidlog.open(data)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGALRM, interrupt)
    try:
        with leased(data / "wal" / "slot-000001.wal"):
            node.log("a").submit(b"late")
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(KeyboardInterrupt):
                node.close()
    finally:
        signal.signal(signal.SIGALRM, former)
    node.close()
    with braidlog.open(data) as node:
        assert node.log("a").end == 2


POLLING = """
    import sys, threading
    import braidlog

    node = braidlog.open(sys.argv[1], segment_bytes=1 << 20)
    log = node.create_log("a", exist_ok=True)

    def poll():
        while True:
            log.wait(1 << 40, timeout=0.001)

    for _ in range(3):
        threading.Thread(target=poll, daemon=True).start()
    print(log.append(b"x"))
"""


def test_a_program_may_end_while_threads_poll(tmp_path: Path) -> None:
    # The close at exit comes first; threads that are still in the core when the
    # interpreter ends them abort the process.
    command = [sys.executable, "-c", textwrap.dedent(POLLING), str(tmp_path / "data")]
    for turn in range(1, 6):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, f"{turn}\n"), done.stderr
