"""Open a store in a folder of its own for the length of a question."""

from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from benchmarks import floor
from benchmarks.contest import Contestant, Kind
from benchmarks.embedded import Embedded
from benchmarks.peers import Peer
from benchmarks.plan import Plan

Store = TypeVar("Store", bound=Peer | Embedded)


def opened(kind: type[Store], directory: Path, stack: ExitStack) -> Store:
    """Open a store until the stack closes."""
    directory.mkdir(parents=True, exist_ok=True)
    store = kind(directory)
    stack.callback(store.close)
    return store


def sync_floor(plan: Plan, size: int, count: int) -> Contestant:
    """Return the floor of one synchronous block write of `size` bytes."""
    return Contestant(
        "floor",
        Kind.FLOOR,
        lambda _: lambda: floor.fastest(plan.directory, size, count),
    )
