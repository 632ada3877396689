"""The loops that nodes run in: one reads sockets itself, in one the core does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from braidlog.serving.poll import LaneSelector
from braidlog.wire.connection import Poll


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


LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "loop": asyncio.SelectorEventLoop,
    "core": CoreLoop,
}
