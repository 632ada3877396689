"""The process of `braidlog serve`: signals, logging, exit codes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import Final

from braidlog.errors import LogError
from braidlog.node.config import NodeConfig
from braidlog.node.server import NodeServer
from braidlog.serving.descriptors import allow_files
from braidlog.serving.json_logs import JsonFormatter
from braidlog.serving.poll import LaneSelector
from braidlog.serving.signals import on_end, on_reload
from braidlog.wire.connection import Poll

_log = logging.getLogger(__name__)

_FAILED: Final = 1


def run(
    config: NodeConfig,
    code_of: Callable[[LogError], int] = lambda error: _FAILED,
    lifeline: int | None = None,
    reread: Callable[[], NodeConfig] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    A second signal ends the graceful stop at once. SIGHUP has the node take over what
    ``reread`` returns. A ``lifeline`` is the end of a pipe
    to whatever started the node: when nobody holds the other end any more, the node
    stops as well. The code is ``code_of`` what the node could not be started or not go
    on with.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(partial(_named, config.node.id))
    logging.basicConfig(handlers=[handler], force=True)
    _set_level(config.log.level)
    allow_files()
    poll, new_loop = _driver(config)
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_serve(config, lifeline, poll, reread))
    except LogError as error:
        _log.critical("the node stopped: %s", error)  # noqa: TRY400, RUF100
        return code_of(error)
    return 0


def _driver(
    config: NodeConfig,
) -> tuple[Poll | None, Callable[[], asyncio.AbstractEventLoop]]:
    """Return what waits for sockets, and how to make the loop.

    The core reads plain sockets itself; what goes through TLS the loop reads.
    """
    import uvloop  # Always: who lacks it hears so before certificates are set.

    if config.security.certificate:
        return None, uvloop.new_event_loop
    selector = LaneSelector(config.timing.spin_us)
    return selector.poll, partial(asyncio.SelectorEventLoop, selector)


def _named(node: int, record: logging.LogRecord) -> bool:
    """Give every line the node that says it."""
    vars(record).setdefault("node", node)
    return True


def _set_level(level: str) -> None:
    logging.getLogger().setLevel(level.upper())


async def _reload(server: NodeServer, asked: asyncio.Event) -> None:
    """Reload whenever somebody asks, once for all who ask meanwhile."""
    while True:
        await asked.wait()
        asked.clear()
        # What is wrong is logged, and nothing was changed.
        with contextlib.suppress(Exception):
            await server.reload()


async def _serve(
    config: NodeConfig,
    lifeline: int | None,
    poll: Poll | None,
    reread: Callable[[], NodeConfig] | None,
) -> None:
    loop = asyncio.get_running_loop()
    stop, hurry, asked = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def end() -> None:
        (hurry if stop.is_set() else stop).set()

    def end_alone(lifeline: int) -> None:
        loop.remove_reader(lifeline)
        _log.warning(
            "the process that started this node has ended, so the node stops too"
        )
        stop.set()

    on_end(loop, end)
    on_reload(loop, asked.set)
    if lifeline is not None:
        loop.add_reader(lifeline, end_alone, lifeline)
    server = NodeServer(config, poll=poll, reread=reread, set_level=_set_level)
    async with server:
        reloading = loop.create_task(_reload(server, asked))
        try:
            await server.serve(stop, hurry)
        finally:
            reloading.cancel()
