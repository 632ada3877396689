"""The loops that nodes run in: one reads sockets itself, in one the core does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from braidlog.serving.poll import LaneSelector
from braidlog.wire.connection import Poll

Loops: TypeAlias = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]
"""How loops are made, by the name that a test gets."""


class CoreLoop(asyncio.SelectorEventLoop):
    """The loop of a node without TLS; `poll` is for one node of it."""

    def __init__(self, spin_us: int = 0) -> None:
        selector = LaneSelector(spin_us)
        self.poll = selector.poll
        super().__init__(selector)


def poll_of_loop() -> Poll | None:
    """Return what the running loop waits with, if a node can give it its sockets."""
    loop = asyncio.get_running_loop()
    return loop.poll if isinstance(loop, CoreLoop) else None


LOOPS: Loops = {
    "loop": asyncio.SelectorEventLoop,
    "core": CoreLoop,
}


def loops_of(item: pytest.Item, folder: Path) -> Loops:
    """Return the loops for a test: both, if its nodes have sockets.

    In folders below ``folder`` nodes have no poll.
    """
    module: Any = item.getparent(pytest.Module)
    sockets = {"serving", "harm"} & vars(module.obj).keys()
    both = sockets and item.path.parent == folder
    return LOOPS if both else {"loop": LOOPS["loop"]}
