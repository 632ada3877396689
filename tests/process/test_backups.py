"""`braidlog backup create` and `restore` are killed beside a writer that goes on."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog import Log, Producer
from braidlog.backup import backups, damaged, verify
from braidlog.backup.place import place_of
from braidlog.backup.run import collect
from braidlog.errors import MissingFileError, NotFoundError

KILLS = int(os.environ.get("BRAIDLOG_KILLS", "4"))
SEED = int(os.environ.get("BRAIDLOG_SEED", "0")) or random.randrange(1, 1_000_000)
PRODUCER = Producer(9)
KEPT = 3000


class Writer(threading.Thread):
    """Appends with a producer, commits a cursor, and trims behind it and the table."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log
        self.acknowledged = 0
        self.stopped = threading.Event()

    def run(self) -> None:
        cursor = self.log.cursor("reader", pin=True)
        while not self.stopped.is_set():
            first = self.acknowledged + 1
            values = [b"%d" % number * 40 for number in range(first, first + 50)]
            keys = [key_of(number) for number in range(first, first + 50)]
            self.log.append_many(values, keys=keys, producer=PRODUCER, sequence=first)
            self.acknowledged += 50
            if self.acknowledged > KEPT and self.acknowledged % 1000 == 0:
                cursor.commit(self.acknowledged - KEPT)
                self.log.trim(before=self.acknowledged - KEPT)


def key_of(number: int) -> bytes:
    return b"k%d" % (number * number % 211)


def check_table(store: braidlog.Store, log: Log) -> None:
    """Each key has its last record, also of those that the log has no more."""
    last = {key_of(number): number for number in range(1, log.end)}
    table = store.table("stock")
    found = {record.key: record.position for record in table}
    assert found == last
    assert {record.key for record in table.index("by_value").scan()} == set(last)
    table.verify()


def command(*arguments: str | Path) -> subprocess.Popen[bytes]:
    braidlog_ = [sys.executable, "-m", "braidlog", *map(str, arguments)]
    return subprocess.Popen(
        braidlog_, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def killed(process: subprocess.Popen[bytes], after: float) -> bool:
    """Kill a process after a while; return whether it had not ended before."""
    try:
        _, said = process.communicate(timeout=after)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return True
    assert process.returncode == 0, said.decode()
    return False


def check(target: Path, acknowledged: int) -> None:
    """One state of the log: dense, its cursor at its beginning, its producer known."""
    with braidlog.open(target) as store:
        log = store.log("orders")
        assert log.end > acknowledged
        found = [(r.position, r.value) for r in log.read()]
        wanted = [(n, b"%d" % n * 40) for n in range(log.first, log.end)]
        assert found == wanted
        check_table(store, log)
        (cursor,) = [each for each in log.cursors() if each.name == "reader"]
        assert log.first <= cursor.position
        following = log.next_sequence(PRODUCER)
        assert following == log.end
        assert log.append(b"x", producer=PRODUCER, sequence=following) == following


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(120 + 15 * KILLS)
def test_killed_backups_and_restores_leave_all_or_nothing(tmp_path: Path) -> None:
    print(f"BRAIDLOG_SEED={SEED}")  # noqa: T201, RUF100
    chance = random.Random(SEED)
    data, place, target = tmp_path / "data", tmp_path / "place", tmp_path / "target"
    kills = whole = 0
    # Leases of the dead hold the log until they are over: there is room for as long.
    with braidlog.open(data, segment_bytes=1 << 20, wal_bytes_max=1 << 30) as store:
        writer = Writer(store.create_log("orders"))
        small: Any = {"memory_bytes": 1 << 16, "indexes": {"by_value": "value"}}
        store.create_table("stock", log="orders", **small)
        writer.start()
        try:
            while kills < KILLS:
                known = writer.acknowledged
                create = command("backup", "create", place, "--data", data)
                died = killed(create, chance.uniform(0.1, 2.5))
                kills += died
                assert damaged(place) == {}
                found = backups(place)
                for each in found[-2:]:
                    assert verify(place, each.id).findings == []
                if not died and found[-1].records > 0:
                    whole += 1
                    restore = command("restore", place, target)
                    kills += killed(restore, chance.uniform(0.1, 1.5))
                    restore_again(place, target)
                    check(target, known)
                    shutil.rmtree(target)
            assert writer.is_alive()
        finally:
            writer.stopped.set()
            writer.join()
    make = command("backup", "create", place, "--data", data)
    assert not killed(make, 60)
    last = backups(place)[-1]
    assert last.records > 0
    print(f"{kills} kills, {len(backups(place))} backups, {whole} restored")  # noqa: T201, RUF100
    # What the dead ones left goes when their leases are over.
    for note in (place / "running").glob("*.json"):
        note.write_text("{}")
    collect(place_of(place))
    named = {part.path for each in backups(place) for part in each.parts}
    assert set(place_of(place).names("parts")) == named


def restore_again(place: Path, target: Path) -> None:
    """Bring a directory to its end, if it is not there; it never opens half."""
    try:
        braidlog.open(target, create=False, read_only=True).close()
    except (MissingFileError, NotFoundError):
        assert not killed(command("restore", place, target), 60)
