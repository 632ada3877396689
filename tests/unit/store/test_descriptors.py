"""A program without descriptors: its log goes on, or says so and works again later.

In a process of its own, which has none left because it holds them all itself.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import errno, os, resource, sys, threading
import braidlog
from braidlog.errors import StoreFailedError, UnavailableError

resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
held = []

def hog():
    while True:
        try:
            held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError as error:
            assert error.errno == errno.EMFILE
            return

def let_go():
    while held:
        os.close(held.pop())

path, what = sys.argv[1:]
options = {"segment_bytes": 65536}
exec(what)
"""

APPENDS = """
with braidlog.open(path, **options) as node:
    log = node.create_log("a", exist_ok=True)
    hog()
    for count in range(1, 61):
        assert log.append(b"x" * 9000) == count
        hog()
    log.trim(50)
    assert log[55].value == b"x" * 9000
    let_go()
with braidlog.open(path, read_only=True) as node:
    log = node.log("a")
    assert (log.first, log.end) == (50, 61)
"""

OPENS = """
with braidlog.open(path, **options) as node:
    log = node.create_log("a", exist_ok=True)
    log.append(b"x")
hog()
# Nothing was opened by this store yet that could be given back.
try:
    held.append(braidlog.open(path, **options))
except UnavailableError as error:
    assert error.retryable and "ulimit" in str(error), error
else:
    held.pop().close()
let_go()
with braidlog.open(path, **options) as node:
    log = node.create_log("a", exist_ok=True)
    assert log.append(b"y") == 2
"""

THIEVES = """
# Others take each descriptor as soon as there is one, also what the store gives back.
stop = threading.Event()

def steal():
    while not stop.is_set():
        hog()

stored = refused = late = 0
with braidlog.open(path, **options) as node:
    log = node.create_log("a", exist_ok=True)
    thieves = [threading.Thread(target=steal) for _ in range(2)]
    for thief in thieves:
        thief.start()
    for count in range(60):
        try:
            pending = log.submit(b"x" * 9000)
            stored += 1
            late += not pending.wait(0.1)
        except StoreFailedError:
            raise
        except UnavailableError as error:
            assert error.retryable, error
            refused += 1
    print(stored, "stored", late, "late", refused, "refused")
    stop.set()
    for thief in thieves:
        thief.join()
    let_go()
    # A refused record is not stored, a late one is, once there is a descriptor.
    assert log.append(b"y") == stored + 1
with braidlog.open(path, read_only=True) as node:
    log = node.log("a")
    assert sum(1 for _ in log) == stored + 1
"""


def run(tmp_path: Path, what: str) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "log"), what]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_appends_and_trims_go_on_without_a_descriptor_left(tmp_path: Path) -> None:
    run(tmp_path, APPENDS)


def test_an_open_without_descriptors_works_later(tmp_path: Path) -> None:
    run(tmp_path, OPENS)


def test_no_thief_of_descriptors_fails_the_store(tmp_path: Path) -> None:
    run(tmp_path, THIEVES)
