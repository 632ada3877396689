"""The child of a fork has no part in the writer of its parent."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from braidlog import Log, Store
from braidlog.errors import InvalidArgumentError, LockedError, NotFoundError
from unit.store.conftest import Opener

pytestmark = pytest.mark.process

FORKED: dict[str, Callable[[Store, Log], object]] = {
    "append": lambda node, log: log.append(b"child"),
    "get": lambda node, log: log.get(1),
    "read": lambda node, log: list(log.read()),
    "logs": lambda node, log: node.logs(),
    "stats": lambda node, log: node.stats(),
    "end": lambda node, log: log.end,
    "wait": lambda node, log: log.wait(99),
    "create": lambda node, log: node.create_log("child"),
}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_child_of_a_fork_is_refused(ten: Log, node: Store, opener: Opener) -> None:
    pending = ten.submit(b"pending")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        found = []
        try:
            calls = FORKED | {"result": lambda node, log: pending.result()}
            for name, call in calls.items():
                try:
                    call(node, ten)
                    found.append(f"{name} was allowed")
                except InvalidArgumentError as error:
                    if "before this process was forked" not in str(error):
                        found.append(f"{name}: {error}")
            node.close()  # Does nothing: it is the parent's.
        except BaseException as error:
            found.append(repr(error))
        os.write(writing, "\n".join(found).encode() or b"fine")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 4096) == b"fine"
    os.close(reading)
    os.close(writing)
    assert pending.result() == 11
    assert ten.append(b"parent") == 12
    with pytest.raises(LockedError):
        opener()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_child_of_a_fork_keeps_no_lock(node: Store, opener: Opener) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # Until the parent has finished.
        os._exit(0)
    node.close()
    opener().close()
    os.close(writing)
    os.close(reading)
    os.waitpid(child, 0)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_closes_what_it_could_not_open(
    ten: Log, data: Path, opener: Opener
) -> None:
    follower = opener(read_only=True)
    log = follower.log("orders")
    aside = data.with_name("aside")
    data.rename(aside)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with follower, pytest.raises(NotFoundError):
                log.get(1)
            follower.close()
            assert log.wait(99) is False
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    aside.rename(data)
    assert os.waitstatus_to_exitcode(status) == 0
