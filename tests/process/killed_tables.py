"""Kill a process at random moments that keeps tables, and compare them with the log.

    PYTHONPATH=tests python -m tests.process.killed_tables --kills 200 [--seed N]

One round: a child appends from threads, reads what it appended, flushes, merges, builds
and drops indexes, truncates, rebuilds, renames, and makes backups, all at once. It says
through a pipe what was acknowledged. The parent kills it (SIGKILL), opens the
directory and checks:

- every acknowledged record is in the log, and every acknowledged change in the catalog;
- each table has the newest record of each key, of the records from its start on, also
  where the log was trimmed since, and each index the same records in its order;
- pages, filters and indexes agree (`verify`), and no directory is of no table;
- the backups are whole, and the tables in them equal the log as of then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import braidlog
from braidlog import Record, Store
from braidlog.backup import backups, delete, restore, verify
from braidlog.errors import NotFoundError, NotReadyError, TrimmedError

OPTIONS: Final[dict[str, Any]] = {
    "segment_bytes": 256 << 10,
    "wal_bytes_max": 256 << 20,
}
TABLE: Final[dict[str, Any]] = {"log": "log", "memory_bytes": 1 << 16, "history": 50}
FIELD: Final = "json:/n:int"
KEYS: Final = 3000
BACKUPS: Final = 4

# What was acknowledged, and how far: of the log, of the renames of a table.
EVENT: Final = struct.Struct("<cQ")
READY, APPENDED, RENAMED = b"R", b"A", b"N"


def value(chance: random.Random) -> bytes | None:
    """Return a value: mostly with the field of the indexes, now and then a deletion."""
    draw = chance.random()
    if draw < 0.1:
        return None
    if draw < 0.15:
        return b"no json"
    return json.dumps({"n": chance.randrange(1000), "pad": "x" * 150}).encode()


# -- the child -----------------------------------------------------------------------


class Child:
    """What is killed."""

    def __init__(self, data: Path, out: int, seed: int) -> None:
        self.out, self.seed = out, seed
        self.store = braidlog.open(data, **OPTIONS)
        self.place = data.with_name("backups")
        self.log = self.store.create_log("log", exist_ok=True)
        self.store.create_table("t", indexes={"n": FIELD}, exist_ok=True, **TABLE)
        if not any(name.startswith("r") for name in self.store.tables()):
            self.store.create_table("r0", **TABLE)

    def say(self, kind: bytes, number: int) -> None:
        # Short enough to be written at once, whatever the other threads write.
        os.write(self.out, EVENT.pack(kind, number))

    def append(self, chance: random.Random) -> None:
        count = chance.choice([1, 1, 40, 200])
        keys = [b"%d" % chance.randrange(KEYS) for _ in range(count)]
        values = [value(chance) for _ in keys]
        positions = self.log.append_many(values, keys=keys)
        self.say(APPENDED, positions[-1])
        newest = dict(zip(keys, zip(positions, values, strict=True), strict=True))
        key, (position, sent) = next(iter(newest.items()))
        found = self.store.table("t").get(key, after=position)
        if found is None:
            assert (
                sent is None or len(newest) < count or self.overwritten(key, position)
            )
        else:
            assert found.position >= position, (found, position)

    def overwritten(self, key: bytes, position: int) -> bool:
        """Whether another thread replaced a key since."""
        return any(
            each.position > position for each in self.log.read(position, key=key)
        )

    def read(self, chance: random.Random) -> None:
        table = self.store.table("t")
        with table.at() as snapshot:
            rows = {each.key: each.position for each in snapshot.scan()}
            assert len(rows) == snapshot.to_arrow(columns=["key"]).num_rows
            try:
                by = [each.key for each in snapshot.index("n").scan()]
            except (NotFoundError, NotReadyError, TrimmedError):
                return
            assert len(set(by)) == len(by)
            assert set(by) <= set(rows)

    def change(self, chance: random.Random) -> None:
        """Make one change of tables."""
        index = f"i{chance.randrange(3)}"
        with self.store.ddl() as change:
            match chance.randrange(6):
                case 0 | 1:
                    change.create_index("t", index, FIELD)
                case 2:
                    change.drop_index("t", index)
                case 3:
                    change.truncate("u")
                    change.create_index("u", index, FIELD)
                case 4:
                    change.drop("u")
                    change.create("u", indexes={"n": FIELD}, **TABLE)
                case _:
                    change.rebuild("t")

    def rename(self) -> None:
        name = next(name for name in self.store.tables() if name.startswith("r"))
        number = int(name[1:]) + 1
        with self.store.ddl() as change:
            change.rename(name, f"r{number}")
        self.say(RENAMED, number)

    def keep(self, chance: random.Random) -> None:
        """Change, flush and merge."""
        for _ in range(chance.randrange(4)):
            try:
                self.change(chance)
            except (NotFoundError, braidlog.errors.AlreadyExistsError, TrimmedError):
                if "u" not in self.store.tables():
                    self.store.create_table("u", indexes={"n": FIELD}, **TABLE)
        self.rename()
        for name in chance.sample(self.store.tables(), 2):
            table = self.store.table(name)
            table.flush()
            host = self.store._table_host()
            native = host.native(host.entry(name))
            if chance.random() < 0.5:
                native._native.compact()
        self.store._table_host().maintain()

    def back_up(self, chance: random.Random) -> None:
        self.store.backup(self.place)
        for each in backups(self.place)[:-BACKUPS]:
            with contextlib.suppress(NotReadyError):  # One that was killed is on it.
                delete(self.place, each.id)
        time.sleep(0.05)

    def run(self) -> None:
        works: list[Callable[[random.Random], None]]
        works = [self.append, self.append, self.read, self.keep, self.back_up]
        threads = [
            threading.Thread(target=self.repeat, args=(work, random.Random(seed)))
            for seed, work in enumerate(works, start=self.seed * 10)
        ]
        self.say(READY, 0)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def repeat(
        self, work: Callable[[random.Random], None], chance: random.Random
    ) -> None:
        try:
            while True:
                work(chance)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(3)


# -- the parent ----------------------------------------------------------------------


@dataclass
class Tally:
    """What was seen, for people."""

    kills: int = 0
    appended: int = 0
    renames: int = 0
    rows: int = 0
    indexes: int = 0
    building: int = 0
    flushes: int = 0
    backups: int = 0
    restored: int = 0

    def __str__(self) -> str:
        return (
            f"{self.kills} kills: {self.appended} records, {self.renames} renames; "
            f"{self.rows} rows and {self.indexes} indexes compared, {self.building} of "
            f"them were being built; {self.flushes} runs, {self.backups} backups, "
            f"{self.restored} of their tables compared"
        )


@dataclass
class Carnage:
    """The loop."""

    data: Path
    seed: int
    tally: Tally = field(default_factory=Tally)
    records: list[Record] = field(default_factory=list)
    acknowledged: dict[bytes, int] = field(default_factory=dict)

    def run(self, kills: int, *, seconds: float = float("inf")) -> Tally:
        """Kill so often, or until the time is over; fail with what is wrong."""
        chance, until = random.Random(self.seed), time.monotonic() + seconds
        while self.tally.kills < kills and time.monotonic() < until:
            self.kill(self.seed + self.tally.kills, chance.uniform(0.0, 1.0))
            self.tally.kills += 1
            with braidlog.open(self.data, **OPTIONS) as store:
                self.check(store)
                if chance.random() < 0.5:
                    self.trim(store)
        return self.tally

    def kill(self, seed: int, after: float) -> None:
        reader, writer = os.pipe()
        command = [sys.executable, __file__, "--child", str(writer)]
        command += ["--data", str(self.data), "--seed", str(seed)]
        process = subprocess.Popen(command, pass_fds=[writer])
        os.close(writer)
        killer: threading.Timer | None = None
        with os.fdopen(reader, "rb") as events:
            while message := events.read(EVENT.size):
                kind, number = EVENT.unpack(message)
                if kind == READY:
                    killer = threading.Timer(
                        after, process.send_signal, [signal.SIGKILL]
                    )
                    killer.start()
                else:
                    known = self.acknowledged.get(kind, 0)
                    self.acknowledged[kind] = max(known, number)
        code = process.wait()
        if killer is not None:
            killer.cancel()
        assert code == -signal.SIGKILL, f"the child ended by itself with {code}"

    def check(self, store: Store) -> None:
        log = store.log("log")
        self.records += log.read(len(self.records) + 1)
        assert [each.position for each in self.records[-9:]] == list(
            range(max(1, log.end - 9), log.end)
        )
        assert log.end > self.acknowledged.get(APPENDED, 0), "records are gone"
        self.tally.appended = log.end - 1
        names = store.tables()
        (renamed,) = [int(name[1:]) for name in names if name.startswith("r")]
        known = self.acknowledged.get(RENAMED, 0)
        assert known <= renamed <= known + 1, "an acknowledged change is gone"
        self.acknowledged[RENAMED] = self.tally.renames = renamed
        assert {"t"} < set(names)
        for entry in store._backend.tables():
            self.check_table(store, entry)
        store._table_host().maintain()
        directories = {each.name for each in (self.data / "tables").iterdir()}
        assert directories == {f"{each.id:032x}" for each in store._backend.tables()}
        place = self.data.with_name("backups")
        if place.exists():
            for each in backups(place)[-1:]:
                assert verify(place, each.id).findings == []
                self.tally.backups += 1
                if self.tally.kills % 3 == 0:
                    self.check_restored(place, each.id)

    def check_restored(self, place: Path, backup: str) -> None:
        """Compare the tables of a backup with the log as far as it goes there."""
        target = self.data.with_name("restored")
        restore(place, target, backup=backup)
        with braidlog.open(target, **OPTIONS) as store:
            for entry in store._backend.tables():
                self.check_table(store, entry)
                self.tally.restored += 1
        shutil.rmtree(target)

    def check_table(self, store: Store, entry: Any) -> None:
        rows: dict[bytes, Record] = {}
        for record in self.records[entry.start - 1 : store.log("log").end - 1]:
            assert record.key is not None
            rows.pop(record.key, None)
            if record.value is not None:
                rows[record.key] = record
        table = store.table(entry.name)
        assert list(table) == [rows[key] for key in sorted(rows)], entry.name
        numbers = {
            key: json.loads(row.value)["n"]
            for key, row in rows.items()
            if row.value not in (None, b"no json")
        }
        wanted = sorted(numbers, key=lambda key: (numbers[key], key))
        for index in entry.indexes:
            self.tally.building += not index.active
            by = table.index(index.name)
            assert by.wait(timeout=30), (entry.name, index.name)
            assert [each.key for each in by] == wanted, (entry.name, index.name)
        found, entries = table.verify()
        assert (found, entries) == (len(rows), len(wanted) * len(entry.indexes))
        self.tally.rows += len(rows)
        self.tally.indexes += len(entry.indexes)
        self.tally.flushes += table.stats().files

    def trim(self, store: Store) -> None:
        """Let the log go of what is in files: from now on, only those have it."""
        for name in store.tables():
            store.table(name).flush()
        log = store.log("log")
        assert log.trim(log.end) == log.end


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Run as a command, or as the child."""
    given = arguments()
    if given.child is not None:
        Child(given.data, given.child, given.seed).run()
        return
    print(f"seed {given.seed}")  # noqa: T201, RUF100
    with tempfile.TemporaryDirectory(prefix="braidlog-tables-") as scratch:
        print(Carnage(Path(scratch, "data"), given.seed).run(given.kills))  # noqa: T201, RUF100


if __name__ == "__main__":
    main()
