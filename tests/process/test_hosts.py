"""Hosts as processes: a disk that fails, and a signal before they are open."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from braidlog.app import OutcomeUnknownError, connect
from braidlog.app.state.read_only import look
from braidlog.app.state.sqlite import database_path
from braidlog.errors import UnavailableError
from cluster.hosts import environment, free_ports
from process.troubled_host import bank

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

COMMANDS = 3000
_WAIT_S = 60.0


class Process:
    """A host of the bank, and what it logs."""

    def __init__(self, log: Path, *options: str, **variables: str) -> None:
        self.log = log
        command = [sys.executable, "-m", "braidlog", "app", "run"]
        command += ["process.troubled_host:bank", *options]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stderr=output, env=environment() | variables
            )

    def wait_for(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _WAIT_S
        while not true():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def end(self, number: int | None = None) -> int:
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(_WAIT_S)

    def said(self) -> list[dict[str, Any]]:
        """Return the lines of its log: there is nothing else, so no trace either."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def test_a_host_whose_disk_fails_says_so_and_stops(tmp_path: Path) -> None:
    data, broken = tmp_path / "data", tmp_path / "broken"
    address = f"127.0.0.1:{free_ports(1)[0]}"
    where = ["--directory", str(data), "--listen", address]
    host = Process(tmp_path / "first.log", *where, BROKEN=str(broken))
    host.wait_for(lambda: listens(address))
    with connect(address, application="bank") as caller:
        assert caller.call("deposit", 1, 5) == 5
        broken.touch()
        # One failure is enough: it takes nothing more, and nobody is told that it did.
        with pytest.raises((OutcomeUnknownError, UnavailableError)) as caught:
            caller.call("deposit", 1, 7, timeout=3)
        assert caught.value.outcome == "unknown"
    assert host.end() == 1
    last = host.said()[-1]
    assert last["level"] == "critical"
    assert "IOError" in last["message"]
    assert f"({data / 'state'})" in last["message"]
    assert "Fix the cause, then open the host again" in last["message"]
    # It cannot be opened either, and says which file.
    host = Process(tmp_path / "second.log", *where, BROKEN=str(broken))
    assert host.end() == 1
    last = host.said()[-1]
    assert last["level"] == "critical"
    assert str(data / "state") in last["message"]
    broken.unlink()
    with bank.open(data) as opened:
        # Both were in the log; the second was executed when that was possible.
        assert opened.call("balance", 1) == 12


def test_a_directory_that_cannot_serve_says_why(tmp_path: Path) -> None:
    """Wrong kinds of files are an error and a code, never a trace."""
    (tmp_path / "file").touch()
    below = tmp_path / "file" / "data"
    host = Process(tmp_path / "file.log", "--directory", str(below))
    assert host.end() == 1
    assert f"{below}: Not a directory" in host.said()[-1]["message"]
    data = tmp_path / "data"
    bank.open(data).close()
    database_path(data / "state", 2).write_bytes(b"no database" * 1000)
    host = Process(tmp_path / "damaged.log", "--directory", str(data))
    assert host.end() == 5
    message = host.said()[-1]["message"]
    assert f"{database_path(data / 'state', 2)} is damaged" in message
    # What it says to do helps.
    assert "move the state directory away" in message
    shutil.rmtree(data / "state")
    bank.open(data).close()


def applied(data: Path) -> int:
    """Return up to where a partition is."""
    try:
        progress, view = look(database_path(data / "state", 0))
    except (UnavailableError, apsw.Error, ValueError):
        return 0  # It is being made.
    view.close()
    return progress.applied


def test_a_signal_ends_a_long_catch_up(tmp_path: Path) -> None:
    with bank.open(tmp_path) as host:
        calls = [host.submit("deposit", n % 30, 1) for n in range(COMMANDS)]
        assert all(call.result() for call in calls)
        end = host.position
        hashes = host.hashes()[1]
    shutil.rmtree(tmp_path / "state")
    process = Process(tmp_path / "host.log", "--directory", str(tmp_path), SLOWLY="yes")
    # In the middle of the first round: the databases are there.
    process.wait_for(database_path(tmp_path / "state", 2).exists)
    assert process.end(signal.SIGTERM) == 0
    assert process.said()[-1]["message"] == "the host was stopped before it was open"
    # What it executed is stored; not all, which would have taken half a minute.
    begun = applied(tmp_path)
    assert begun < end
    with bank.open(tmp_path) as host:
        assert host.call("total") == COMMANDS
        assert host.hashes()[1] == hashes


def test_a_signal_ends_the_wait_for_a_cluster_that_is_away(tmp_path: Path) -> None:
    seeds = f"127.0.0.1:{free_ports(1)[0]}"
    host = Process(
        tmp_path / "host.log", "--cluster", seeds, "--state", str(tmp_path / "state")
    )
    host.wait_for((tmp_path / "state" / "LOCK").exists)
    assert host.end(signal.SIGTERM) == 0
    assert host.said()[-1]["message"] == "the host was stopped before it was open"
    assert [each.name for each in (tmp_path / "state").iterdir()] == ["LOCK"]
