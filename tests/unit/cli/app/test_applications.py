"""``braidlog app``: a host in a process of its own, called by the command line."""

from __future__ import annotations

import io
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from braidlog.app.state.sqlite import SqliteState
from braidlog.cli import main
from braidlog.cli.cluster.top import hosts
from cluster.hosts import environment, free_ports

APP = "cluster.banks:app"
RUN = [sys.executable, "-m", "braidlog", "app", "run", APP]


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["app", *arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


@dataclass(frozen=True)
class Served:
    address: str
    http: str
    directory: Path
    process: subprocess.Popen[bytes]

    def run(self, *arguments: str, code: int = 0) -> Result:
        return run(*arguments, "--hosts", self.address, code=code)

    def json(self, *arguments: str) -> Any:
        return [
            json.loads(x) for x in self.run(*arguments, "--json").stdout.splitlines()
        ]


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("bank")
    address, http = (f"127.0.0.1:{port}" for port in free_ports(2))
    command = [*RUN, "--directory", str(directory), "--listen", address, "--http", http]
    command += ["--snapshots", "automatic=false,reserve_bytes=1MiB,soft_seconds=2.5"]
    with (directory / "host.log").open("wb") as output:
        process = subprocess.Popen(command, stderr=output, env=environment())
    deadline = time.monotonic() + 30
    host, _, port = address.rpartition(":")
    while True:
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            assert process.poll() is None, (directory / "host.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            break
    yield Served(address, http, directory, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    # A process that ended well leaves nothing behind that another one would wait for.
    assert run("call", "total", "--directory", str(directory), "--app", APP).output


def test_calls(bank: Served) -> None:
    assert bank.run("call", "deposit", "1", "100").stdout == "100\n"
    (said,) = bank.json("call", "deposit", "1", "5")
    assert said["result"] == 105
    again = bank.json("call", "deposit", "1", "5", "--call-id", said["call_id"])
    assert again == [said]
    assert bank.run("call", "balance", "1", "--stale", "5").stdout == "105\n"
    assert bank.run("call", "balance", "-1", "--stale", "5").stdout == "0\n"
    bank.run("call", "balance", "-x", code=2)


def test_failures_are_one_line(bank: Served) -> None:
    refused = bank.run("call", "transfer", "2", "1", "5", code=1)
    assert refused.stderr == "error: no funds\n"
    unknown = bank.run("call", "nothing", code=3)
    assert "'nothing' does not exist (there are: 'balance', 'deposit'" in unknown.stderr
    wrong = bank.run("call", "deposit", "1", code=1)
    assert "missing a required argument: 'amount'" in wrong.stderr
    not_an_id = bank.run("call", "deposit", "1", "1", "--call-id", "x", code=1)
    assert "32 hexadecimal digits" in not_an_id.stderr


def test_the_status(bank: Served) -> None:
    (said,) = bank.json("status")
    assert (said["application"], said["role"], said["ready"]) == (
        "bank",
        "active",
        True,
    )
    assert said["lag"] == 0
    shown = bank.run("status").stdout
    assert re.search(r"application +role +ready", shown)
    assert re.search(rf"{bank.address} +bank +active +yes", shown)


def test_top_shows_hosts_without_a_cluster(bank: Served) -> None:
    bank.run("call", "deposit", "3", "1")
    arguments = ["top", "--once", "--interval", "0.05", "--status", bank.http]
    shown = CliRunner().invoke(main, arguments, catch_exceptions=False).stdout
    assert re.search(r"calls/s +waiting +snapshot +since +replay +marks", shown)
    assert re.search(r"bank +[0-9a-f]{8} +active +ok .* below", shown)
    said = CliRunner().invoke(main, [*arguments, "--json"], catch_exceptions=False)
    (host,) = json.loads(said.stdout)["hosts"]
    assert (host["level"], host["calls_per_second"]) == ("open", 0)


def test_hosts_are_shown_with_what_is_wrong() -> None:
    row = {
        "application": "bank",
        "host": "ab" * 16,
        "role": "standby",
        "ready": False,
        "applied": 12_345,
        "lag": 7,
        "waiting": 0,
        "snapshot": None,
        "bytes_since_snapshot": 5 << 20,
        "replay_seconds": 12.34,
        "level": "full",
        "alarms": ["reserve: no space"],
        "why": "partitions diverged: 2",
    }
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(hosts([row, row | {"level": None, "alarms": [], "why": ""}]))
    text = console.export_text()
    found = r"degraded +12,345 +7 +- +0 +- +5\.0 MiB +12\.3 s +hard: refuses calls"
    assert re.search(found, text), text
    assert "abababab: partitions diverged: 2\nabababab: reserve: no space\n" in text


def test_a_host_that_does_not_answer_is_named(bank: Served) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    seeds = f"{bank.address},{nobody}"
    result = run("status", "--hosts", seeds, code=1)
    assert f"{nobody}: cannot connect" in result.stderr
    assert "error: 1 host did not answer" in result.stderr
    assert bank.address in result.stdout


def test_promoting_the_active_host_changes_nothing(bank: Served) -> None:
    (before,) = bank.json("status")
    (said,) = bank.json("promote")
    assert said == {"host": before["host"], "epoch": before["epoch"], "active": True}


def test_a_copy_of_the_state_is_refused_where_there_is_something(
    bank: Served, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    result = bank.run("snapshot", str(tmp_path), code=2)
    assert "is not empty" in result.stderr


def test_a_host_takes_a_snapshot_of_its_own(bank: Served) -> None:
    bank.run("call", "deposit", "5", "1")
    (said,) = bank.json("snapshot")
    (status,) = bank.json("status")
    assert said["position"] == status["snapshot"]
    assert (said["number"], said["bytes"] > 0, said["seconds"] > 0) == (1, True, True)
    # One host that is named alone is all of them.
    assert (bank.directory / "snapshots" / "reserve").stat().st_size == 1 << 20
    again = run("snapshot", "--host", bank.address)
    assert re.fullmatch(
        r"snapshot 2 as of position \d+: [\d,]+ bytes in [\d.]+ s; the log begins at"
        r" \d+\n",
        again.stdout,
    )


def test_an_application_gets_other_partitions(bank: Served, tmp_path: Path) -> None:
    bank.run("call", "deposit", "7", "70")
    (before,) = bank.json("call", "total")
    (said,) = bank.json("resize", "5")
    assert (said["partitions"], said["position"] > 0) == (5, True)
    (status,) = bank.json("status")
    assert status["partitions"] == 5
    (after,) = bank.json("call", "total")
    assert after["result"] == before["result"]
    assert "5 partitions as of" in run("resize", "5", "--host", bank.address).stdout
    assert "from 1 to 4096" in bank.run("resize", "5000", code=1).stderr
    free = ["--directory", str(tmp_path / "free"), "--app", APP]
    run("call", "deposit", "1", "1", *free)
    assert "2 partitions as of position" in run("resize", "2", *free).stdout
    both = run("resize", "2", *free, "--host", bank.address, code=2)
    assert "exclude each other" in both.stderr


def test_a_directory_whose_host_runs_is_told_from_one_that_is_free(
    bank: Served, tmp_path: Path
) -> None:
    where = ["--directory", str(bank.directory), "--app", APP]
    second = [*RUN, "--directory", str(bank.directory)]
    assert subprocess.run(second, env=environment(), check=False).returncode == 4
    for command in (["snapshot"], ["call", "total"]):
        refused = run(*command, *where, code=4)
        assert "ask that host with --hosts" in refused.stderr
    free = ["--directory", str(tmp_path / "free"), "--app", APP]
    run("call", "deposit", "1", "1", *free)
    assert "snapshot 1 as of position " in run("snapshot", *free).stdout


def test_a_copy_of_the_state(bank: Served, tmp_path: Path) -> None:
    bank.run("call", "deposit", "9", "7")
    (said,) = bank.json("snapshot", str(tmp_path / "copy"))
    state = SqliteState(tmp_path / "copy", 3)
    views = [partition.view() for partition in state.partitions]
    assert [view.hash().hex() for view in views] == said["hashes"]
    sql = "SELECT balance FROM account WHERE id = 9"
    assert any(view.handle.value(sql) == 7 for view in views)
    for view in views:
        view.close()
    state.close()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["call", "total"], 2, "no hosts are named"),
        (["call", "total", "--hosts", "127.0.0.1:1"], 3, "no host can be reached"),
        (["call", "total", "--directory", "x"], 2, "needs --app"),
        (["snapshot", "--directory", "x", "--host", "y:1"], 2, "of its own"),
        (
            ["run", "cluster.banks", "--directory", "x"],
            2,
            "does not name an application",
        ),
        (["run", "cluster.nothing:app", "--directory", "x"], 3, "no module"),
        (["run", "cluster.banks:make_bank", "--directory", "x"], 3, "no application"),
        (["run", APP], 2, "--directory, or --cluster and --state"),
        (["run", APP, "--directory", "x", "--promote-after", "4"], 1, "more than 4 s"),
        (["run", APP, "--snapshots", "kept"], 2, "'kept' is not NAME=VALUE"),
        (["run", APP, "--snapshots", "kpt=1"], 2, "no setting 'kpt'"),
        (["run", APP, "--snapshots", "kept=x"], 2, "--snapshots kept: invalid"),
        (["run", APP, "--snapshots", "soft_bytes=2GiB"], 1, "below the hard marks"),
        (["run", APP, "--directory", "x", "--standby"], 2, "hosts over a cluster"),
        (
            ["run", APP, "--directory", "x", "--listen", "0.0.0.0:75"],
            1,
            "--listen is reachable from other machines",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: list[str], code: int, words: str
) -> None:
    result = run(*arguments, code=code)
    assert words in result.stderr
