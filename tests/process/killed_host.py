"""Kills the host of a bank at random moments, and checks what it had acknowledged.

The child calls from several threads and says on a pipe what it is about to call and
what it was answered. After each kill the parent opens the directory: every acknowledged
call was applied once with the answer that was heard, calls of which nothing was heard
at most once, a repeat of any of them gives the first answer, and money is conserved.
Snapshots are taken all the time, and the log is trimmed to them. At the end the state
is thrown away and made again, from a snapshot and the log: the same hashes. With
``--resizing`` the number of partitions changes all the time.

    python -m tests.process.killed_host --kills 100
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from braidlog.app import Abort, Application, CallId, Host, SnapshotSettings
from unit.app.banking import KEYED, make_bank

TESTS = Path(__file__).parents[1]
THREADS = 6
ACCOUNTS = 12
FIRST = 1000
# A snapshot every few hundred calls, each of which trims the log.
SNAPSHOTS = SnapshotSettings(
    soft_bytes=50_000, hard_bytes=1 << 30, pause_seconds=0.0, reserve_bytes=1 << 20
)
OPTIONS: dict[str, Any] = {
    "segment_bytes": 1 << 20,
    "wal_bytes_max": 64 << 20,
    "snapshots": SNAPSHOTS,
}
# Kind, call id, source, target, amount, answer.
EVENT = struct.Struct("<c16shhhq")
BEGUN, ANSWERED, READY = b"b", b"a", b"r"
REFUSED = -1


def bank_of(*, keyed: bool) -> Application:
    """Return the bank, with its accounts in a keyed table or in one of SQL."""
    if keyed:
        return make_bank(schema=KEYED, row_keys={"account": "key"})
    return make_bank(row_keys={"account": "id"})


def child(data: Path, writer: int, seed: int, *, keyed: bool, resizing: bool) -> None:
    """Open the bank and transfer until killed."""
    lock = threading.Lock()

    def say(*fields: object) -> None:
        with lock:
            os.write(writer, EVENT.pack(*fields))

    with bank_of(keyed=keyed).open(data, **OPTIONS) as host:
        if host.call("total") == 0:
            for account in range(ACCOUNTS):
                host.call("deposit", account, FIRST)
        say(READY, bytes(16), 0, 0, 0, 0)

        def work(number: int) -> None:
            numbers = random.Random(seed * THREADS + number)
            while True:
                source, target = numbers.sample(range(ACCOUNTS), 2)
                amount = numbers.randint(1, 400)
                call = host.new_call_id()
                say(BEGUN, call, source, target, amount, 0)
                heard = transfer(host, call, source, target, amount)
                say(ANSWERED, call, source, target, amount, heard)

        def resize() -> None:
            numbers = random.Random(seed)
            while True:
                host.resize(numbers.randint(1, 6))

        for number in range(THREADS):
            threading.Thread(target=work, args=(number,), daemon=True).start()
        if resizing:
            threading.Thread(target=resize, daemon=True).start()
        threading.Event().wait()


def transfer(host: Host, call: CallId, source: int, target: int, amount: int) -> int:
    """Return what is left, or that it was refused."""
    try:
        left, _ = host.call("transfer", source, target, amount, call_id=call)
    except Abort:
        return REFUSED
    return int(left)


@dataclass
class Tally:
    """What happened."""

    kills: int = 0
    acknowledged: int = 0
    unknown: int = 0
    partitions: set[int] = field(default_factory=set)
    """How many there were after a kill."""


@dataclass
class Killed:
    """Kills and checks."""

    data: Path
    seed: int
    keyed: bool = False
    resizing: bool = False
    tally: Tally = field(default_factory=Tally)

    def open(self) -> Host:
        """Open what a host left."""
        return bank_of(keyed=self.keyed).open(self.data, **OPTIONS)

    def run(self, kills: int) -> Tally:
        """Kill so many hosts."""
        numbers = random.Random(self.seed)
        for turn in range(kills):
            self.check(self.round(turn, 0.05 + 0.5 * numbers.random()))
        with self.open() as host:
            hashes = host.hashes()[1]
        shutil.rmtree(self.data / "state")
        with self.open() as host:
            assert host.hashes()[1] == hashes, "replay gives another state"
        return self.tally

    def round(self, turn: int, seconds: float) -> list[tuple[Any, ...]]:
        """Let a host work, kill it, and return what it said."""
        reader, writer = os.pipe()
        command = [sys.executable, __file__, "--child", str(writer), "--data"]
        numbers = ["--seed", str(self.seed + turn)]
        numbers += ["--keyed"] if self.keyed else []
        numbers += ["--resizing"] if self.resizing else []
        path = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        process = subprocess.Popen(
            [*command, str(self.data), *numbers],
            pass_fds=[writer],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        )
        os.close(writer)
        events: list[tuple[Any, ...]] = []
        ready = threading.Event()

        def listen() -> None:
            with os.fdopen(reader, "rb") as pipe:
                while len(message := pipe.read(EVENT.size)) == EVENT.size:
                    events.append(EVENT.unpack(message))
                    ready.set()

        thread = threading.Thread(target=listen)
        thread.start()
        assert ready.wait(60), f"the host did not open: {process.poll()}"
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        thread.join()
        self.tally.kills += 1
        return events

    def check(self, events: list[tuple[Any, ...]]) -> None:
        """Compare what was heard with what is there."""
        begun = {e[1]: e for e in events if e[0] == BEGUN}
        answered = {e[1]: e for e in events if e[0] == ANSWERED}
        self.tally.acknowledged += len(answered)
        with self.open() as host:
            assert host.call("total") == ACCOUNTS * FIRST, "money came or went"
            self.tally.partitions.add(host.partitions)
            before = host.hashes()[1]
            for name, (_, call, source, target, amount, heard) in answered.items():
                again = transfer(host, CallId(name), source, target, amount)
                assert again == heard, (call, "acknowledged, and not what is there")
            after = host.hashes()[1]
            assert after == before, "a repeated call was executed again"
            for name in begun.keys() - answered.keys():
                _, _, source, target, amount, _ = begun[name]
                self.tally.unknown += 1
                first = transfer(host, CallId(name), source, target, amount)
                again = transfer(host, CallId(name), source, target, amount)
                assert again == first
            assert host.call("total") == ACCOUNTS * FIRST


def main() -> None:
    """Run as a command or as the child."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--keyed", action="store_true")
    parser.add_argument("--resizing", action="store_true")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        child(
            given.data,
            given.child,
            given.seed,
            keyed=given.keyed,
            resizing=given.resizing,
        )
        return
    print(f"seed {given.seed}")  # noqa: T201, RUF100
    data = given.data or Path(tempfile.mkdtemp(prefix="braidlog-host-")) / "data"
    killed = Killed(data, given.seed, given.keyed, given.resizing)
    print(killed.run(given.kills))  # noqa: T201, RUF100


if __name__ == "__main__":
    main()
