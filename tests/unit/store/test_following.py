"""Read-only nodes: following a writer in this process and in others."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import braidlog
from braidlog import Log, Store
from braidlog.errors import (
    BeyondEndError,
    ClosedError,
    InvalidArgumentError,
    LockedError,
    NotFoundError,
    ReadOnlyError,
    TrimmedError,
)
from unit.store.conftest import SEGMENT_BYTES, Opener, values

pytestmark = pytest.mark.process

# What every writer process begins with.
PRELUDE = f"""
import sys, time, braidlog
def open_store(**options):
    return braidlog.open(sys.argv[1], segment_bytes={SEGMENT_BYTES}, **options)
def ready():
    print("ready", flush=True)
    sys.stdin.readline()
"""


class Other:
    """Another process that runs a script over the same directory."""

    def __init__(self, data: Path, script: str) -> None:
        source = PRELUDE + textwrap.dedent(script)
        self.process = subprocess.Popen(
            [sys.executable, "-c", source, str(data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ready(self) -> None:
        """Wait until it says so."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == "ready\n", line + self.process.communicate()[1]

    def go(self) -> None:
        """Let it go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def finish(self) -> str:
        """Wait for its end; return what else it printed."""
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, err
        return out


Starter = Callable[[str], Other]


@pytest.fixture
def start(data: Path) -> Iterator[Starter]:
    started: list[Other] = []

    def start_one(script: str) -> Other:
        started.append(Other(data, script))
        return started[-1]

    yield start_one
    for other in started:
        if other.process.poll() is None:
            other.process.kill()
        other.process.communicate()


@pytest.fixture
def follower(ten: Log, opener: Opener) -> Store:
    """Follow a log of ten records, whose writer is open."""
    return opener(read_only=True)


def test_a_follower_sees_what_is_durable(follower: Store, ten: Log) -> None:
    log = follower.log("orders")
    assert values(log) == values(ten)
    assert log.append is not None
    ten.append_many([b"more"] * 5)
    assert (log.end, len(log), log[15].value) == (16, 15, b"more")
    assert log.find(100) == 10
    assert log.to_arrow().num_rows == 15
    assert log.read(key=b"a", limit=2).__next__().position == 1
    assert log.describe() == ten.describe()
    assert log.segments()[0].begin == 1
    with pytest.raises(BeyondEndError):
        log.get(16)
    with pytest.raises(InvalidArgumentError):
        log.get(-1)


WRITES: dict[str, Callable[[Store, Log], object]] = {
    "append": lambda node, log: log.append(b""),
    "submit": lambda node, log: log.submit(b""),
    "append_many": lambda node, log: log.append_many([b""]),
    "trim": lambda node, log: log.trim(5),
    "cursor": lambda node, log: log.cursor("c"),
    "set_options": lambda node, log: log.set_options(),
    "create": lambda node, log: node.create_log("new"),
    "create exist_ok": lambda node, log: node.create_log("orders", exist_ok=True),
    "delete": lambda node, log: node.delete_log("orders"),
    "sync": lambda node, log: node.sync(),
    "maintain": lambda node, log: node.maintain(),
    "stats": lambda node, log: node.stats(),
    "provision": lambda node, log: node.provision(1),
}


@pytest.mark.parametrize("call", WRITES)
def test_a_follower_changes_nothing(follower: Store, ten: Log, call: str) -> None:
    with pytest.raises(ReadOnlyError, match="read-only"):
        WRITES[call](follower, follower.log("orders"))
    assert (len(ten), ten.cursors()) == (10, [])


def test_cursors_are_seen(follower: Store, ten: Log) -> None:
    ten.cursor("c", pin=True).commit(4)
    (cursor,) = follower.log("orders").cursors()
    assert (cursor.name, cursor.position, cursor.pin) == ("c", 4, True)
    with pytest.raises(ReadOnlyError):
        cursor.commit(5)


def test_trims_are_seen(follower: Store, ten: Log) -> None:
    log = follower.log("orders")
    reading = log.read()
    ten.trim(6)
    assert log.first == 6
    with pytest.raises(TrimmedError) as caught:
        log.get(5)
    assert caught.value.first == 6
    with pytest.raises(TrimmedError):
        list(reading)


def test_logs_come_and_go(follower: Store, node: Store) -> None:
    log = follower.log("orders")
    node.create_log("new").append(b"x")
    assert follower.logs() == ["new", "orders"]
    assert values(follower.log("new")) == [b"x"]
    node.delete_log("orders")
    assert follower.logs() == ["new"]
    for call in (lambda: log[1], lambda: log.end, lambda: log.wait(99), log.describe):
        with pytest.raises(NotFoundError, match="deleted"):
            call()
    with pytest.raises(NotFoundError, match="deleted"):
        next(log.subscribe(1))
    node.create_log("orders").append(b"another")
    assert values(follower.log("orders")) == [b"another"]


def test_a_subscription_of_a_deleted_log_ends(follower: Store, node: Store) -> None:
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(list, follower.log("orders").subscribe(11))
        node.delete_log("orders")
        with pytest.raises(NotFoundError):
            ending.result(timeout=10)


def test_closing_a_follower(follower: Store, ten: Log) -> None:
    log = follower.log("orders")
    reading = log.read()
    next(reading)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(log.wait, 99)
        follower.close()
        assert waiting.result(timeout=10) is False
    follower.close()
    for call in (lambda: log[1], follower.logs, lambda: next(reading)):
        with pytest.raises(ClosedError):
            call()
    assert ten.append(b"the writer goes on") == 11


def test_a_follower_needs_no_writer(ten: Log, node: Store, opener: Opener) -> None:
    node.close()
    follower = opener(read_only=True)
    assert len(follower.log("orders")) == 10
    assert follower.log("orders").wait(11, timeout=0) is False
    # And does not keep one from coming.
    writer = opener()
    writer.log("orders").append(b"x")
    assert len(follower.log("orders")) == 11


def test_the_holder_of_the_lock_is_named(start: Starter, opener: Opener) -> None:
    other = start("node = open_store(); ready(); node.close()")
    other.ready()
    with pytest.raises(LockedError) as caught:
        opener()
    assert f"process {other.process.pid}" in str(caught.value)
    assert "read_only=True" in str(caught.value)
    other.go()
    other.finish()
    opener().close()


def test_a_killed_writer_leaves_no_lock(start: Starter, opener: Opener) -> None:
    other = start("node = open_store(); ready()")
    other.ready()
    other.process.kill()
    other.process.wait()
    opener().close()


def test_following_another_process_to_its_end(start: Starter, opener: Opener) -> None:
    other = start(
        """
        with open_store() as node:
            log = node.create_log("orders")
            ready()
            for i in range(1, 2001):
                log.submit(b"%d" % i)
                if i % 400 == 0:
                    log.append_many([bytes(1000)] * 1000)
        """
    )
    other.ready()
    log = opener(read_only=True).log("orders")
    other.go()
    records = []
    for record in log.subscribe(timeout=10):
        records.append(record)
        if record.position == 7000:
            break
    assert [record.position for record in records] == list(range(1, 7001))
    small = [record.value for record in records if len(record.value) < 1000]
    assert small == [b"%d" % i for i in range(1, 2001)]
    other.finish()


FOLLOW = """
node = open_store(read_only=True)
log = node.log("orders")
ready()
seen, position = 0, 1
while seen < {count}:
    for record in log.subscribe(position, timeout=10):
        assert record.position == position, (record.position, position)
        assert record.value.startswith(b"%d " % position), record.value[:20]
        position, seen = position + 1, seen + 1
        if seen == {count}:
            break
    else:
        raise SystemExit(f"nothing came after {{position}}")
print("saw", seen)
"""


def test_many_followers_of_one_writer_that_comes_and_goes(
    start: Starter, opener: Opener
) -> None:
    count, turns = 3000, 3
    with opener() as node:
        node.create_log("orders")
    followers = [start(FOLLOW.format(count=count)) for _ in range(3)]
    for follower in followers:
        follower.ready()
        follower.go()
    position = 1
    for _ in range(turns):
        # Each writer rolls several segments, and closes.
        with opener() as node:
            log = node.log("orders")
            for _ in range(count // turns):
                log.submit(b"%d " % position + bytes(1500))
                position += 1
    assert [follower.finish() for follower in followers] == [f"saw {count}\n"] * 3


def test_following_while_segments_are_recycled(start: Starter, opener: Opener) -> None:
    node = opener(wal_bytes_max=6 * SEGMENT_BYTES)
    log = node.create_log("orders")
    other = start(
        """
        from braidlog.errors import TrimmedError
        log = open_store(read_only=True).log("orders")
        ready()
        position, seen, overtaken = 1, 0, 0
        while True:
            try:
                for record in log.subscribe(position, timeout=10):
                    assert record.position == position
                    assert record.value[:20].rstrip(b"\\0") == b"%d" % position
                    position, seen = position + 1, seen + 1
                    if record.key == b"last":
                        print("saw", seen > 0)
                        sys.exit()
                raise SystemExit(f"nothing came after {position}")
            except TrimmedError as error:
                assert error.first > position, (error.first, position)
                position, overtaken = error.first, overtaken + 1
        """
    )
    other.ready()
    other.go()
    position = 1
    for _ in range(150):
        many = [b"%d" % i + bytes(2000) for i in range(position, position + 100)]
        position = log.append_many(many).stop
        log.trim(max(1, position - 500))
    log.append(b"%d" % position, key=b"last")
    assert other.finish() == "saw True\n"


def test_two_followers_in_one_process_share_nothing(ten: Log, opener: Opener) -> None:
    one, other = opener(read_only=True), opener(read_only=True)
    one.close()
    assert len(other.log("orders")) == 10


def test_followers_in_threads(follower: Store, ten: Log) -> None:
    log = follower.log("orders")
    stop = threading.Event()

    def look() -> int:
        looks = 0
        while not stop.is_set() or looks == 0:
            end = log.end
            assert len(list(log.read(1, end))) == end - 1
            assert log[end - 1].position == end - 1
            looks += 1
        return looks

    with ThreadPoolExecutor(4) as pool:
        looking = [pool.submit(look) for _ in range(4)]
        for _ in range(200):
            ten.append(b"x")
        stop.set()
        assert all(each.result() > 0 for each in looking)


def test_a_node_that_is_not_closed_is_closed_at_exit(
    start: Starter, opener: Opener
) -> None:
    other = start(
        """
        node = open_store()
        log = node.create_log("orders")
        log.append(b"durable")
        log.submit(b"on its way")
        """
    )
    other.finish()
    node = opener()
    assert node.report["clean"]
    assert values(node.log("orders")) == [b"durable", b"on its way"]


def test_a_follower_may_cross_a_fork(follower: Store, data: Path) -> None:
    code = """
        import os
        node = open_store(read_only=True)
        log = node.log("orders")
        child = os.fork()
        found = len(list(log))
        if child == 0:
            os._exit(0 if found == 10 else 1)
        print(found, os.waitpid(child, 0)[1])
    """
    other = Other(data, code)
    assert other.finish() == "10 0\n"


CROSSING = """
    import os, select, threading
    node = open_store(read_only=True)
    log = node.log("orders")
    reading, writing = os.pipe()

    def look():
        while True:
            log.end, log[1]

    for _ in range(4):
        threading.Thread(target=look, daemon=True).start()
    for _ in range(40):
        child = os.fork()
        if child == 0:
            found = [len(list(log)), len(node.log("orders")), log[10].position]
            os.write(writing, bytes([found == [10, 10, 10]]))
            os._exit(0)
        told = select.select([reading], [], [], 20)[0] and os.read(reading, 1)
        os.kill(child, 9)
        os.waitpid(child, 0)
        if told != bytes([True]):
            print(told, flush=True)
            os._exit(1)
    print("through", flush=True)
    os._exit(0)
"""


def test_a_follower_may_cross_a_fork_while_threads_look(
    follower: Store, start: Starter
) -> None:
    # A thread that is not in the child may have held what its handles need.
    assert start(CROSSING).finish() == "through\n"


def test_the_child_of_a_fork_says_what_it_cannot_open(
    follower: Store, node: Store, data: Path, start: Starter
) -> None:
    node.create_log("other")
    code = """
        import os, shutil
        node = open_store(read_only=True)
        log, other = node.log("orders"), node.log("other")
        print("ready", flush=True)
        input()
        child = os.fork()
        if child == 0:
            lost = []
            for call in (lambda: other.end, lambda: other.get(1), lambda: log.end):
                try:
                    lost.append(call())
                except Exception as error:
                    lost.append(type(error).__name__)
            print(*lost, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    """
    other = start(code)
    other.ready()
    node.delete_log("other")
    other.go()
    assert other.finish() == "NotFoundError NotFoundError 11\n"
    other = start(
        code.replace("child = os.fork()", "shutil.rmtree(node.path); child = os.fork()")
    )
    node.create_log("other")
    other.ready()
    node.close()
    other.go()
    assert other.finish() == "NotFoundError NotFoundError NotFoundError\n"


def test_open_is_what_the_package_calls_open(data: Path) -> None:
    with braidlog.open(data) as node:
        assert isinstance(node, Store)
