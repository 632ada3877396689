"""Replays in processes of their own: killed, elsewhere in the world, several."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.app import Abort, Application
from braidlog.client import connect
from braidlog.testing.cluster import LocalCluster
from process.replayed import PARTITIONS, fill, near, wide

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

TESTS = Path(__file__).parents[1]
COMMANDS = 3000
SMALL = {"limits": {"segment_bytes": 4 << 20, "wal_bytes_max": 256 << 20}}


def command(name: str, state: Path, *options: object) -> list[str]:
    words = ["app", "replay", f"process.replayed:{name}", state, *options, "--json"]
    return [sys.executable, "-m", "braidlog", *map(str, words)]


def environment(**more: str) -> Mapping[str, str]:
    here = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": f"{here}:{TESTS}", **more}


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    said, complaint = process.communicate()
    assert process.returncode == 0, complaint
    found: dict[str, Any] = json.loads(said)
    return found


def start(
    name: str, state: Path, *options: object, **more: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(name, state, *options),
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def hosted(
    application: Application, path: Path, commands: int = COMMANDS
) -> tuple[int, dict[str, str]]:
    with application.open(path) as host:
        fill(host, commands)
        position, hashes = host.hashes()
    return position, {str(n): each.hex() for n, each in enumerate(hashes)}


def test_a_killed_replay_gives_the_same(tmp_path: Path) -> None:
    position, hashes = hosted(wide, tmp_path / "bank")
    words = ("--data", tmp_path / "bank", "--until", position)
    kills = 0
    while True:
        process = start("wide", tmp_path / "again", *words, SLOWLY="1")
        # Later each time, so that it comes further.
        time.sleep(0.4 + 0.15 * kills)
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
    done = finish(process)
    assert kills > 1
    assert done["hashes"] == hashes
    assert finish(start("wide", tmp_path / "zero", *words))["hashes"] == hashes


def test_hash_seed_locale_and_time_zone_change_nothing(tmp_path: Path) -> None:
    position, hashes = hosted(wide, tmp_path / "bank")
    words = ("--data", tmp_path / "bank", "--until", position)
    elsewhere = [
        {"PYTHONHASHSEED": "0", "TZ": "Pacific/Auckland", "LC_ALL": "C"},
        {"PYTHONHASHSEED": "4294967295", "TZ": "America/Caracas", "LC_ALL": "C.UTF-8"},
        {"PYTHONMALLOC": "malloc", "LC_ALL": "tr_TR.UTF-8", "PYTHONUTF8": "1"},
    ]
    running = [
        start("wide", tmp_path / str(number), *words, **more)
        for number, more in enumerate(elsewhere)
    ]
    found = [finish(process) for process in running]
    assert [each["hashes"] for each in found] == [hashes] * 3
    assert all(each["compared"] > 0 for each in found)


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[LocalCluster, int, dict[str, str]]]:
    """The commands of an application in the log of a cluster of three nodes."""
    path = tmp_path_factory.mktemp("cluster")
    position, hashes = hosted(near, path / "bank", 500)
    with (
        LocalCluster(3, directory=path / "nodes", settings=SMALL) as nodes,
        connect(nodes.seeds) as client,
    ):
        log = client.create_log("bank", streams=3)
        with braidlog.open(path / "bank" / "log", read_only=True) as node:
            records = list(node.log("commands").read(1, position + 1))
        for record in records:  # One after the other: the order is theirs.
            log.append(record.value, key=record.key, timestamp=record.timestamp)
        yield nodes, position, hashes


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_the_log_of_a_cluster_in_several_processes(
    cluster: tuple[LocalCluster, int, dict[str, str]], tmp_path: Path, processes: int
) -> None:
    """Each replays partitions of its own, none of them all that there are."""
    nodes, position, hashes = cluster
    shares = [
        ",".join(str(n) for n in range(PARTITIONS) if n % processes == number)
        for number in range(processes)
    ]
    words = ("--cluster", nodes.seeds, "--log", "bank", "--until", position)
    running = [
        start(
            "near",
            tmp_path / share,
            *words,
            "--partitions",
            share,
            "--across",
            "refuse",
        )
        for share in shares
    ]
    found = [finish(process) for process in running]
    together = {n: text for each in found for n, text in each["hashes"].items()}
    assert together == hashes
    assert sum(len(each["hashes"]) for each in found) == PARTITIONS


def test_what_is_refused_did_nothing(tmp_path: Path) -> None:
    with wide.open(tmp_path / "bank") as host:
        fill(host, 50)
        with pytest.raises(Abort):
            host.call("move", 1, 2, 10**9)
    words = ("--data", tmp_path / "bank", "--partitions", "0", "--across", "refuse")
    process = start("wide", tmp_path / "again", *words)
    _, complaint = process.communicate()
    assert (process.returncode, "choose these too" in complaint) == (1, True)
    assert not (tmp_path / "again").exists()
