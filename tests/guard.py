"""Ends what tests have started and could not end, because their process was killed.

Ctrl-C lets the tests of one process stop their nodes. It does not help where pytest's
process is killed: by a second Ctrl-C under xdist, by a time limit, for lack of memory.
So each process of pytest has a guard beside it, which sees it go and then ends whatever
has its mark in the environment, whoever started it and in whichever session.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

_MARK = "BRAIDLOG_TESTS"
_ROUNDS = 50
_pipes: list[int] = []


def start() -> None:
    """Mark all that this process starts from now on, and let it be guarded."""
    mark = f"{_MARK}={os.getpid()}.{secrets.token_hex(8)}"
    os.environ[_MARK] = mark.partition("=")[2]
    reader, writer = os.pipe()
    subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, mark],
        stdin=reader,
        env={},
        start_new_session=True,
    ).returncode = 0  # Nobody waits for it.
    os.close(reader)
    _pipes.append(writer)


def marked(mark: bytes) -> list[int]:
    """Return the processes that have the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def main(mark: str) -> None:
    """Wait for the end of whoever holds the other end of stdin."""
    sys.stdin.buffer.read()
    for _ in range(_ROUNDS):
        pids = marked(mark.encode())
        if not pids:
            break
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1])
