"""Kill archivers at random moments and look whether archive and log are the original.

    python -m tests.process.archived --rounds 30 [--seed N] [--data DIR] [--delta]

One round: a child appends, trims up to the end again and again, and archives with
trims, to small files, without a pause. It is killed (SIGKILL) at a random moment: in
most rounds before one of the calls with which archiving changes files, by itself, so
that the load of the machine does not choose; in the others by the parent's clock. Then
the parent looks at what is there as the next reader would see it, and checks:

- the archive is sound, and goes on in the log without a gap;
- log and archive together give every record that was acknowledged, in order, each once;
- nothing was trimmed that is not archived;
- a table of Delta has the first records of the archive, each once.

A record says where it is, so nothing has to be remembered to know what it should be.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import braidlog
from braidlog.archive import open_archive, verify
from braidlog.errors import NotFoundError
from braidlog.pipelines.archive_job import archive
from braidlog.sources.origin import Origin

OPTIONS: Final[dict[str, Any]] = {"segment_bytes": 256 << 10, "wal_bytes_max": 64 << 20}
LOG: Final = "log"
FILE_BYTES: Final = 64 << 10
FILE_CALLS: Final = {
    "open",
    "fsync",
    *(f"os.{n}" for n in ("rename", "link", "remove")),
}
# Each file takes about eight calls, and what comes before and after it about thirty.
STEPS: Final = (30, 30, 100, 500)


def content(position: int) -> bytes:
    """Return the value of a record: now and then a long one."""
    digest = hashlib.blake2b(b"%d" % position).digest()
    return digest * (digest[0] % 8 + (200 if digest[1] == 0 else 0))


def check(record: braidlog.Record) -> None:
    """Check that a record is what it was."""
    position = record.position
    assert record.value == content(position), position
    assert record.timestamp == position, position
    assert record.key == (None if position % 3 == 0 else b"%d" % (position % 10))
    assert record.headers == (("p", b"%d" % position),) * (position % 2), position


# -- the child -----------------------------------------------------------------------


def append(log: braidlog.Log) -> None:
    """Append, and say what was acknowledged."""
    while True:
        places = range(log.end, log.end + random.choice([1, 30, 100]))
        log.append_many(
            [content(place) for place in places],
            keys=[None if p % 3 == 0 else b"%d" % (p % 10) for p in places],
            timestamps=list(places),
            headers=[[("p", b"%d" % p)] * (p % 2) for p in places],
        )
        os.write(1, b"%d\n" % places.stop)
        log.trim(log.end)  # As far as the archive's cursor lets it.
        time.sleep(0.02)


def die_at(step: int, home: Path, *, late: bool) -> None:
    """Kill this process before the so-many-th call of the main thread on files.

    ``late``: counted from where a generation gets its name.
    """
    left, main_thread, counts = [step], threading.get_ident(), [not late]
    sync, inside = os.fsync, str(home)

    def count(event: str, named: tuple[Any, ...]) -> None:
        # Imports open files, too.
        ours = event == "fsync" or (event in FILE_CALLS and inside in str(named[0]))
        counts[0] |= event == "os.link"
        if ours and counts[0] and threading.get_ident() == main_thread:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def counted_sync(file: Any) -> None:
        count("fsync", ())
        sync(file)

    vars(os)["fsync"] = counted_sync
    sys.addaudithook(count)


def child(home: Path, step: int, late: bool, delta: bool) -> None:
    """Append and archive until killed."""
    # Else most would be killed while they import.
    importlib.import_module("braidlog.pipelines.runners")
    if delta:
        importlib.import_module("deltalake")
    node = braidlog.open(home / "data", **OPTIONS)
    log = node.create_log(LOG, exist_ok=True)
    log.cursor("archive", pin=True)
    threading.Thread(target=append, args=[log], daemon=True).start()
    origin = Origin(LOG, path=str(home / "data"))
    die_at(step, home, late=late)
    while True:
        archive(
            origin,
            home / "archive",
            log=log,
            bytes_per_file=FILE_BYTES,
            trim=True,
            delta=delta,
            workers=1,
        )


# -- the parent ----------------------------------------------------------------------


@dataclass
class Tally:
    """What was seen, for people."""

    rounds: int = 0
    records: int = 0
    archived: int = 0
    generations: int = 0
    mended: int = 0

    def __str__(self) -> str:
        return (
            f"{self.rounds} kills: {self.records} records, {self.archived} of them "
            f"archived in {self.generations} generations; archive and log together "
            f"always the original; {self.mended} runs were cut off behind a generation "
            "and before the cursor"
        )


class Carnage:
    """The loop."""

    def __init__(self, home: Path, seed: int, *, delta: bool = False) -> None:
        self.home, self.delta = home, delta
        self.random = random.Random(seed)
        self.acknowledged = 1
        self.tally = Tally()

    def run(self, rounds: int) -> Tally:
        """Kill so often; fail with what is wrong."""
        for _ in range(rounds):
            self.round()
        return self.tally

    def round(self) -> None:
        command = [sys.executable, "-m", "tests.process.archived", "--child"]
        command += ["--data", str(self.home), *(["--delta"] if self.delta else [])]
        by_clock = self.random.random() < 0.2
        most = self.random.choice(STEPS)
        step = 0 if by_clock else self.random.randrange(1, most)
        command += ["--step", str(step)]
        # What comes behind a generation is short, and where the cursor moves.
        if most == STEPS[0] and self.random.random() < 0.7:
            command.append("--late")
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        first = process.stdout.readline()
        if by_clock:
            time.sleep(3 * self.random.random())
            process.send_signal(signal.SIGKILL)
        said = (first + process.stdout.read()).splitlines(keepends=True)
        process.stdout.close()
        code = process.wait()
        assert code == -signal.SIGKILL, f"the child ended by itself with {code}"
        whole = [int(line) for line in said if line.endswith(b"\n")]
        self.acknowledged = max([self.acknowledged, *whole])
        self.tally.rounds += 1
        with braidlog.open(self.home / "data", read_only=True) as node:
            self.check(node.log(LOG))

    def check(self, log: braidlog.Log) -> None:
        assert log.end >= self.acknowledged, "an acknowledged record is gone"
        self.tally.records = log.end - 1
        try:
            there = open_archive(self.home / "archive", log_id=log.id)
        except NotFoundError:
            assert log.first == 1, "trimmed, and never archived"
            return
        assert verify(there).damage == ()
        assert there.begin == 1
        assert log.first <= there.end, "trimmed before it was archived"
        pins = {cursor.name: cursor.position for cursor in log.cursors()}
        assert pins["archive"] <= there.end
        self.tally.mended += pins["archive"] < there.end
        self.tally.archived = there.end - 1
        self.tally.generations = there.manifest.generation
        expected = 1
        for record in log.read(include_archive=self.home / "archive"):
            assert record.position == expected
            check(record)
            expected += 1
        assert expected == log.end
        if self.delta:
            self.check_delta(there.end)

    def check_delta(self, end: int) -> None:
        from deltalake import DeltaTable

        table = DeltaTable(self.home / "archive").to_pyarrow_table()
        found = sorted(table["position"].to_pylist())
        assert found == list(range(1, len(found) + 1))
        assert len(found) < end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--delta", action="store_true")
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--step", type=int, default=0)
    parser.add_argument("--late", action="store_true")
    options = parser.parse_args()
    if options.child:
        child(options.data, options.step, options.late, options.delta)
        return
    home = options.data or Path(tempfile.mkdtemp(prefix="braidlog-archived-"))
    sys.stdout.write(f"seed {options.seed}, data {home}\n")
    tally = Carnage(home, options.seed, delta=options.delta).run(options.rounds)
    sys.stdout.write(f"{tally}\n")
    if options.data is None:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
