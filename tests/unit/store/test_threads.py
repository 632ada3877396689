"""Where the system gives no more threads: typed errors, and nothing stays locked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import braidlog
from braidlog.client.background import BackgroundLoop
from braidlog.errors import UnavailableError
from braidlog.node.syncer import ThreadSyncer
from braidlog.store.node_store import NodeStore
from braidlog.store.threads import close_in_thread, in_thread
from unit.store.conftest import Opener

NONE = "refused this process a thread"


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    monkeypatch.setattr(threading.Thread, "start", start)


def open_below(directory: Path) -> list[str]:
    """Return the files of a directory that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # That of the listing itself.
            found.append(str(descriptor.readlink()))
    return [path for path in found if path.startswith(str(directory))]


def test_an_open_is_refused_and_leaves_nothing_locked(
    data: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("no_threads")
    with pytest.raises(UnavailableError, match=f"{NONE} for braidlog-house"):
        braidlog.open(data)
    assert open_below(data) == []
    monkeypatch.undo()
    braidlog.open(data).close()


def test_a_submit_is_refused_before_anything_is_stored(
    opener: Opener, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    log = opener().create_log("orders")
    request.getfixturevalue("no_threads")
    with pytest.raises(UnavailableError, match=f"{NONE} for braidlog-sync"):
        log.submit(b"a")
    with pytest.raises(UnavailableError, match=f"{NONE} for braidlog-sync"):
        log.submit_many([b"a"])
    assert log.append(b"b") == 1
    monkeypatch.undo()
    assert log.submit(b"c").result() == 2


async def test_open_async_is_refused_and_leaves_nothing_locked(
    data: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("no_threads")
    with pytest.raises(UnavailableError, match=NONE):
        await braidlog.open_async(data).__aenter__()
    assert open_below(data) == []
    monkeypatch.undo()
    braidlog.open(data).close()


async def test_an_open_async_that_gets_one_thread_only(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse_syncers(self: threading.Thread) -> None:
        if self.name == "braidlog-sync":
            msg = "can't start new thread"
            raise RuntimeError(msg)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse_syncers)
    with pytest.raises(UnavailableError, match=f"{NONE} for braidlog-sync"):
        await braidlog.open_async(data).__aenter__()
    assert open_below(data) == []
    monkeypatch.undo()
    async with braidlog.open_async(data) as node:
        assert await (await node.create_log("a")).append(b"") == 1


async def test_a_node_is_closed_without_a_thread(
    data: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    node = braidlog.open_async(data)
    await node.__aenter__()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    request.getfixturevalue("no_threads")
    with pytest.raises(UnavailableError, match=NONE):
        await node.create_log("a")
    await node.close()
    monkeypatch.undo()
    braidlog.open(data).close()


async def test_what_was_refused_is_not_done_later() -> None:
    """A pool that cannot grow has put the call into its queue all the same."""
    done: list[int] = []
    go, pool = threading.Event(), ThreadPoolExecutor(2)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(pool)
    busy = loop.run_in_executor(None, go.wait)
    start = threading.Thread.start
    try:
        threading.Thread.start = _refuse  # type: ignore[method-assign]
        with pytest.raises(UnavailableError, match=NONE):
            await in_thread(done.append, 1)
        await close_in_thread(lambda: done.append(2))
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]
    go.set()
    await busy
    await in_thread(done.append, 3)
    assert done == [2, 3]


def _refuse(self: threading.Thread) -> None:
    msg = "can't start new thread"
    raise RuntimeError(msg)


def test_errors_of_the_call_are_its_own() -> None:
    def fail() -> None:
        msg = "mine"
        raise RuntimeError(msg)

    with pytest.raises(RuntimeError, match="mine"):
        asyncio.run(in_thread(fail))


@pytest.mark.usefixtures("no_threads")
def test_a_client_is_refused() -> None:
    with pytest.raises(UnavailableError, match=f"{NONE} for braidlog-client"):
        BackgroundLoop()  # A loop that is left open is a warning, and so an error.


async def test_a_node_of_a_cluster_goes_on_and_gives_its_directory_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    store = NodeStore(tmp_path / "data", entropy=1, segment_bytes=1 << 20)
    syncer = ThreadSyncer(store)
    syncer.start(lambda: None)
    request.getfixturevalue("no_threads")
    # Syncs are slow: the loop leaves them to a thread, if it can.
    syncer._leave()
    store.create("group.1", b"x")
    await syncer.close()
    monkeypatch.undo()
    NodeStore(tmp_path / "data", entropy=2).close()


PROGRAM = """
import braidlog, braidlog.errors, sys, threading
node = braidlog.open(sys.argv[1])
log = node.create_log("a")
threading.stack_size(1 << 47)  # More than there are addresses.
try:
    log.submit(b"lost")
except braidlog.errors.UnavailableError as error:
    print(type(error).__name__)
assert log.append(b"kept") == 1
# The core closes in a thread too, for which there are as few addresses.
node.close()
threading.stack_size(0)
with braidlog.open(sys.argv[1]) as again:
    print([record.value for record in again.log("a")])
"""


def test_a_process_without_room_for_a_stack(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "data"],
        env=os.environ | {"RUST_MIN_STACK": str(1 << 47)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["UnavailableError", "[b'kept']"]


CARELESS = """
import braidlog, sys, threading, time
node = braidlog.open(sys.argv[1])
log = node.create_log("a")
log.append(b"x")
def work(call):
    while True:
        try:
            call()
        except Exception:
            pass
def told_slowly(self, error):
    for _ in range(100):
        time.sleep(0.002)
    return error
if sys.argv[2] == "told":
    type(log)._told = told_slowly
calls = {
    "append": lambda: log.append(b"x"),
    "told": lambda: log.append(b"x"),
    "read": lambda: sum(1 for _ in log.read(limit=10)),
    "wait": lambda: log._view.wait(1, 0),
}
for _ in range(4):
    threading.Thread(target=work, args=[calls[sys.argv[2]]], daemon=True).start()
time.sleep(0.05)
"""


@pytest.mark.parametrize("call", ["append", "told", "read", "wait"])
def test_threads_that_take_no_notice_of_errors_do_not_abort_the_end(
    tmp_path: Path, call: str
) -> None:
    for attempt in range(4):
        done = subprocess.run(
            [sys.executable, "-c", CARELESS, tmp_path / f"{attempt}", call],
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
