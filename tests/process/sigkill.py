"""Kill writers at random moments and look whether anything they promised is lost.

    PYTHONPATH=tests python -m tests.process.sigkill --kills 200 [--seed N] [--data DIR]

With `--power` the directory lies in a file system that loses what was not synced, and
each kill is a power cut (`cluster.volatile`).

One round: a child appends from several threads to several logs, and says through a pipe
what it submits and what was acknowledged. The parent kills it (SIGKILL), opens the
directory and checks, for each log:

- every acknowledged record is at its position, with its content, and nowhere else;
- positions are dense, and a producer's records are there once each, over all rounds;
- other records are ones that were submitted, without gaps for each thread;
- what a round, or a follower that reads all the time, saw does not change again;
- cursors and trims that were acknowledged hold.
"""
# One file: the child promises, the parent checks: each knows what the other writes.

from __future__ import annotations

import argparse
import hashlib
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
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

import braidlog
from braidlog import Log, Producer, Record, Store
from braidlog.errors import TrimmedError

if TYPE_CHECKING:
    from cluster.volatile import VolatileDisk

LOGS: Final = ("plain", "zstd", "lz4")
THREADS: Final = 4
OPTIONS: Final[dict[str, Any]] = {
    "segment_bytes": 256 << 10,
    "wal_bytes_max": 256 << 20,
    "unsynced_bytes_max": 1 << 20,
}
CURSOR: Final = "reader"
# Records that a trim leaves.
KEPT: Final = 400

# kind, thread, log, first number, count, position.
EVENT: Final = struct.Struct("<cBBQIQ")
READY, SUBMIT, ACKNOWLEDGE, COMMIT = b"R", b"S", b"A", b"C"
# round, thread, number: the key of a record. Round 0: numbered over all rounds.
KEY: Final = struct.Struct("<IBQ")
# log, position.
SEEN: Final = struct.Struct("<BQ")

Identity = tuple[int, int, int]


class Rows(TypedDict):
    """What `append_many` takes of each record."""

    keys: list[bytes]
    values: list[bytes]
    timestamps: list[int]


class Once(TypedDict):
    """What `append_many` takes of a producer."""

    producer: Producer
    sequence: int


def content(log: int, identity: Identity) -> bytes:
    """Return the value that belongs to a record: mostly short, now and then long."""
    digest = hashlib.blake2b(KEY.pack(*identity) + bytes([log])).digest()
    size = digest[0] + (digest[1] * 80 if digest[2] > 250 else 0)
    return (digest * (size // 64 + 1))[:size]


def identify(log: int, record: Record) -> Identity:
    """Return whose record this is, and check that nothing of it was changed."""
    assert record.key is not None, record
    identity: Identity = KEY.unpack(record.key)
    assert record.value == content(log, identity), (log, record)
    assert record.timestamp == identity[2], (log, record)
    return identity


# -- the child -----------------------------------------------------------------------


class Appender:
    """One thread of the child."""

    def __init__(
        self, node: Store, out: int, turn: int, number: int, seed: int
    ) -> None:
        self.random = random.Random(seed * 1000 + number)
        self.out, self.turn, self.number = out, turn, number
        self.logs = [node.log(name) for name in LOGS]
        self.sent = [0] * len(LOGS)
        self.producer = Producer(number + 1)
        self.waiting: deque[tuple[Any, int, int, int]] = deque()

    def say(self, kind: bytes, log: int, first: int, count: int, position: int) -> None:
        # Short enough to be written at once, whatever the other threads write.
        number = self.number + (THREADS if self.turn == 0 else 0)
        os.write(self.out, EVENT.pack(kind, number, log, first, count, position))

    def rows(self, log: int, turn: int, first: int, count: int) -> Rows:
        numbers = range(first, first + count)
        names = [(turn, self.number, number) for number in numbers]
        return {
            "keys": [KEY.pack(*name) for name in names],
            "values": [content(log, name) for name in names],
            "timestamps": list(numbers),
        }

    def run(self) -> None:
        ways: list[Callable[[int], None]] = [
            self.one,
            self.one,
            self.submitted,
            self.submitted,
            self.many,
            self.arrow,
            self.produced,
        ]
        while True:
            self.random.choice(ways)(self.random.randrange(len(LOGS)))
            if self.number == 0:
                self.commit()

    def submit_rows(self, log: int, count: int) -> tuple[int, Rows]:
        first = self.sent[log] + 1
        self.sent[log] += count
        self.say(SUBMIT, log, first, count, 0)
        return first, self.rows(log, self.turn, first, count)

    def one(self, log: int) -> None:
        first, rows = self.submit_rows(log, 1)
        (key,), (value,) = rows["keys"], rows["values"]
        position = self.logs[log].append(value, key=key, timestamp=first)
        self.say(ACKNOWLEDGE, log, first, 1, position)

    def submitted(self, log: int) -> None:
        for _ in range(self.random.randrange(1, 40)):
            first, rows = self.submit_rows(log, 1)
            (key,), (value,) = rows["keys"], rows["values"]
            pending = self.logs[log].submit(value, key=key, timestamp=first)
            self.waiting.append((pending, log, first, 1))
        while len(self.waiting) > 20:
            pending, log, first, count = self.waiting.popleft()
            assert pending.result() == pending.position
            self.say(ACKNOWLEDGE, log, first, count, pending.position)

    def many(self, log: int) -> None:
        count = self.random.choice([1, 10, 100, 1000])
        first, rows = self.submit_rows(log, count)
        positions = self.logs[log].append_many(**rows)
        self.say(ACKNOWLEDGE, log, first, len(positions), positions.start)

    def arrow(self, log: int) -> None:
        import pyarrow as pa

        first, rows = self.submit_rows(log, self.random.choice([1, 50, 500]))
        batches = [
            pa.record_batch(
                {
                    "value": pa.array(rows["values"][at : at + 100], pa.binary()),
                    "key": pa.array(rows["keys"][at : at + 100], pa.binary()),
                    "timestamp": pa.array(rows["timestamps"][at : at + 100]),
                }
            )
            for at in range(0, len(rows["values"]), 100)
        ]
        positions = self.logs[log].append_arrow(pa.Table.from_batches(batches))
        self.say(ACKNOWLEDGE, log, first, len(positions), positions.start)

    def produced(self, log: int) -> None:
        first = self.logs[log].next_sequence(self.producer)
        count = self.random.choice([1, 1, 5, 200])
        rows = self.rows(log, 0, first, count)
        turn, self.turn = self.turn, 0
        self.say(SUBMIT, log, first, count, 0)
        once: Once = {"producer": self.producer, "sequence": first}
        positions = self.logs[log].append_many(**rows, **once)
        self.say(ACKNOWLEDGE, log, first, count, positions.start)
        self.turn = turn
        if self.random.random() < 0.5:
            assert self.logs[log].append_many(**rows, **once) == positions

    def commit(self) -> None:
        end = self.logs[0].end
        self.logs[0].cursor(CURSOR).commit(end)
        os.write(self.out, EVENT.pack(COMMIT, self.number, 0, 0, 0, end))


def child(data: Path, out: int, turn: int, seed: int) -> None:
    """Append until killed."""
    import pyarrow  # noqa: F401

    # Threads append later and die later than the main thread in some rounds.
    os.write(out, EVENT.pack(READY, 0, 0, 0, 0, 0))
    node = braidlog.open(data, **OPTIONS)
    for name in LOGS:
        compression: Any = "none" if name == "plain" else name
        node.create_log(name, compression=compression, exist_ok=True)
    appenders = [Appender(node, out, turn, i, seed) for i in range(THREADS)]
    threads = [threading.Thread(target=appender.run) for appender in appenders]
    for thread in threads:
        thread.start()
    while all(thread.is_alive() for thread in threads):
        time.sleep(0.02)
    os._exit(3)


# -- the follower --------------------------------------------------------------------


def follow(data: Path, out: int) -> None:
    """Report every record that is seen, until the parent closes its end."""
    node = braidlog.open(data, read_only=True)
    positions = dict.fromkeys(range(len(LOGS)), 1)
    parent = os.getppid()
    while os.getppid() == parent:
        for number, name in enumerate(LOGS):
            if name not in node.logs():
                continue
            try:
                for record in node.log(name).subscribe(positions[number], timeout=0):
                    assert record.position == positions[number], (name, record)
                    identity = identify(number, record)
                    os.write(
                        out, SEEN.pack(number, record.position) + KEY.pack(*identity)
                    )
                    positions[number] += 1
            except TrimmedError as error:
                positions[number] = max(error.first, positions[number] + 1)
        time.sleep(0.001)


# -- the parent ----------------------------------------------------------------------


class Pipe:
    """Reads fixed-size messages of another process in a thread."""

    def __init__(self, size: int, take: Callable[[bytes], None]) -> None:
        self.reader, self.writer = os.pipe()
        self.size, self.take = size, take
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        rest = b""
        while read := os.read(self.reader, 1 << 16):
            data = rest + read
            whole = len(data) - len(data) % self.size
            for at in range(0, whole, self.size):
                self.take(data[at : at + self.size])
            rest = data[whole:]
        os.close(self.reader)

    def start(self) -> None:
        os.close(self.writer)
        self.thread.start()


@dataclass
class Model:
    """What is known of one log."""

    first: int = 1
    # Who is at each position.
    records: dict[int, Identity] = field(default_factory=dict)
    end: int = 1
    # Highest number stored of each (round, thread).
    stored: dict[tuple[int, int], int] = field(default_factory=dict)
    # Highest number ever submitted of each (round, thread).
    submitted: dict[tuple[int, int], int] = field(default_factory=dict)
    # Of this round: position and identity of each first record, and how many follow.
    acknowledged: list[tuple[int, Identity, int]] = field(default_factory=list)


@dataclass
class Tally:
    """What was seen, for people."""

    kills: int = 0
    acknowledged: int = 0
    stored: int = 0
    unacknowledged: int = 0
    killed_early: int = 0
    torn: int = 0
    followed: int = 0

    def __str__(self) -> str:
        return (
            f"{self.kills} kills ({self.killed_early} before the first append): "
            f"{self.acknowledged} records acknowledged, none lost; "
            f"{self.stored} stored, {self.unacknowledged} of them unacknowledged; "
            f"{self.torn} torn tails cut; {self.followed} records followed, none gone"
        )


class Carnage:
    """The loop."""

    def __init__(self, data: Path, seed: int, disk: VolatileDisk | None = None) -> None:
        self.data, self.seed, self.disk = data, seed, disk
        self.random = random.Random(seed)
        self.models = [Model() for _ in LOGS]
        self.followed: deque[tuple[int, int, Identity]] = deque()
        self.committed = 0
        self.turn = 0
        self.ready = threading.Event()
        self.tally = Tally()

    def run(self, kills: int) -> Tally:
        """Kill so often; fail with what is wrong."""
        with braidlog.open(self.data, **OPTIONS):
            pass
        self.start_follower()
        try:
            for _ in range(kills):
                self.round()
                assert self.follower.poll() is None, "the follower died"
        finally:
            self.stop_follower()
        self.check_followed()
        return self.tally

    def start_follower(self) -> None:
        self.pipe = Pipe(SEEN.size + KEY.size, self.hear_follower)
        self.follower = self.spawn("--follower", self.pipe)

    def stop_follower(self) -> None:
        self.follower.kill()
        self.follower.wait()
        self.pipe.thread.join()

    def spawn(self, role: str, pipe: Pipe) -> subprocess.Popen[bytes]:
        command = [sys.executable, __file__, role, str(pipe.writer), "--data"]
        numbers = ["--round", str(self.turn), "--seed", str(self.seed + self.turn)]
        process = subprocess.Popen(
            [*command, str(self.data), *numbers], pass_fds=[pipe.writer]
        )
        pipe.start()
        return process

    def round(self) -> None:
        self.turn += 1
        self.ready.clear()
        pipe = Pipe(EVENT.size, self.hear)
        process = self.spawn("--child", pipe)
        assert self.ready.wait(60), f"child ended with {process.poll()}"
        # Some die while they open, most while they append.
        time.sleep(self.random.choice([0.03, 0.3, 0.6]) * self.random.random())
        process.send_signal(signal.SIGKILL)
        code = process.wait()
        pipe.thread.join()
        assert code == -signal.SIGKILL, f"child ended by itself with {code}"
        self.tally.kills += 1
        self.tally.killed_early += not any(m.acknowledged for m in self.models)
        if self.disk is not None:
            # A power cut takes the follower along; what it saw must be there after it.
            self.stop_follower()
            self.disk.cut(self.random.getrandbits(32))
            self.start_follower()
        # Without a writer first, as the next reader would see it.
        if self.random.random() < 0.3:
            with braidlog.open(self.data, read_only=True) as node:
                self.check(node, final=False)
        with braidlog.open(self.data, **OPTIONS) as node:
            torn = node.report["torn"]
            self.tally.torn += torn is not None and torn[3] > 0
            self.check(node, final=True)
            self.trim(node)

    def hear(self, message: bytes) -> None:
        kind, thread, log, first, count, position = EVENT.unpack(message)
        model = self.models[log]
        turn = 0 if thread >= THREADS else self.turn
        whose = (turn, thread % THREADS)
        if kind == READY:
            self.ready.set()
        elif kind == SUBMIT:
            # A producer submits again what it did not hear of.
            known = model.submitted.get(whose, 0)
            model.submitted[whose] = max(known, first + count - 1)
        elif kind == ACKNOWLEDGE:
            model.acknowledged.append((position, (*whose, first), count))
        elif kind == COMMIT:
            self.committed = position

    def hear_follower(self, message: bytes) -> None:
        log, position = SEEN.unpack_from(message)
        self.followed.append((log, position, KEY.unpack_from(message, SEEN.size)))

    def check(self, node: Store, *, final: bool) -> None:
        for number, model in enumerate(self.models):
            if LOGS[number] not in node.logs():
                assert (model.end, model.acknowledged) == (1, []), "a log is gone"
                continue
            log = node.log(LOGS[number])
            self.check_log(number, log, model)
            if final:
                acknowledged = sum(count for *_, count in model.acknowledged)
                self.tally.acknowledged += acknowledged
                model.acknowledged.clear()
        if self.committed:
            (cursor,) = node.log(LOGS[0]).cursors()
            assert self.committed <= cursor.position, "a commit of a cursor is lost"
        if final:
            self.check_followed()

    def check_log(self, number: int, log: Log, model: Model) -> None:
        assert log.first == model.first, (log, model.first, "a trim is lost")
        assert log.end >= model.end, (log, model.end, "records are gone")
        position = model.first
        for record in log.read():
            assert record.position == position, (log, record, position)
            identity = identify(number, record)
            if position < model.end:
                assert model.records[position] == identity, (log, record, "changed")
            else:
                self.note(model, position, identity)
            position += 1
        assert position == log.end
        acknowledged = sum(count for *_, count in model.acknowledged)
        new = position - model.end
        if new:
            self.tally.stored += new
            self.tally.unacknowledged += max(0, new - acknowledged)
        model.end = position
        for at, (turn, thread, first), count in model.acknowledged:
            for i in range(count):
                expected = (turn, thread, first + i)
                assert model.records.get(at + i) == expected, (log, at + i, expected)
        for _ in range(min(20, len(log))):
            at = self.random.randrange(log.first, log.end)
            assert identify(number, log[at]) == model.records[at]
        table = log.to_arrow(max(log.first, log.end - 300), columns=["key"])
        assert [KEY.unpack(key) for key in table["key"].to_pylist()] == [
            model.records[at] for at in range(max(log.first, log.end - 300), log.end)
        ]

    def note(self, model: Model, position: int, identity: Identity) -> None:
        turn, thread, sequence = identity
        whose = (turn, thread)
        expected = model.stored.get(whose, 0) + 1
        assert sequence == expected, (position, identity, expected, "out of order")
        assert sequence <= model.submitted.get(whose, 0), (identity, "never submitted")
        model.stored[whose] = sequence
        model.records[position] = identity

    def check_followed(self) -> None:
        for _ in range(len(self.followed)):
            log, position, identity = self.followed.popleft()
            model = self.models[log]
            if position >= model.first:
                found = model.records.get(position)
                assert found == identity, (LOGS[log], position, found, identity)
            self.tally.followed += 1

    def trim(self, node: Store) -> None:
        for number, model in enumerate(self.models):
            if model.end - model.first < 10 * KEPT or self.random.random() < 0.5:
                continue
            before = model.end - KEPT
            assert node.log(LOGS[number]).trim(before) == before
            for position in range(model.first, before):
                del model.records[position]
            model.first = before


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--data", type=Path, help="directory to use; kept afterwards")
    parser.add_argument("--power", action="store_true", help="cut the power; root")
    parser.add_argument("--round", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--follower", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Run as a command, as a child or as the follower."""
    given = arguments()
    if given.child is not None:
        child(given.data, given.child, given.round, given.seed)
    elif given.follower is not None:
        follow(given.data, given.follower)
    else:
        print(f"seed {given.seed}")  # noqa: T201, RUF100
        home = Path(tempfile.mkdtemp(prefix="braidlog-sigkill-"))
        data = given.data or home / "data"
        with ExitStack() as stack:
            disk = None
            if given.power:
                from cluster.volatile import VolatileDisk

                disk = stack.enter_context(VolatileDisk(data))
                data /= "log"
            try:
                print(Carnage(data, given.seed, disk).run(given.kills))  # noqa: T201, RUF100
            except BaseException:
                left = shutil.copytree(data, home / "left")
                print(f"--seed {given.seed}: see {left}")  # noqa: T201, RUF100
                raise
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
