"""The process of `braidlog serve`: signals, logging, exit codes."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from braidlog.errors import LogError
from braidlog.node.config import NodeConfig
from braidlog.node.descriptors import allow_files
from braidlog.node.server import NodeServer

__all__ = ["JsonFormatter", "on_end", "run"]

_log = logging.getLogger(__name__)

_FAILED: Final = 1


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and what was passed."""

    _known = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        seconds = time.gmtime(record.created)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", seconds)
        fields: dict[str, Any] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra = vars(record).items()
        fields |= {key: value for key, value in extra if key not in self._known}
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def run(
    config: NodeConfig,
    code_of: Callable[[LogError], int] = lambda error: _FAILED,
    lifeline: int | None = None,
) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; return the exit code.

    A second signal ends the graceful stop at once. A ``lifeline`` is the end of a pipe
    to whatever started the node: when nobody holds the other end any more, the node
    stops as well. The code is ``code_of`` what the node could not be started or not go
    on with.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(partial(_named, config.node.id))
    level = logging.getLevelNamesMapping()[config.log.level.upper()]
    logging.basicConfig(level=level, handlers=[handler], force=True)
    allow_files()
    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config, lifeline))
    except LogError as error:
        _log.critical("the node stops: %s", error)  # noqa: TRY400, RUF100
        return code_of(error)
    return 0


def _named(node: int, record: logging.LogRecord) -> bool:
    """Give every line the node that says it."""
    vars(record).setdefault("node", node)
    return True


async def _serve(config: NodeConfig, lifeline: int | None) -> None:
    loop = asyncio.get_running_loop()
    stop, hurry = asyncio.Event(), asyncio.Event()

    def end() -> None:
        (hurry if stop.is_set() else stop).set()

    def end_alone(lifeline: int) -> None:
        loop.remove_reader(lifeline)
        _log.warning("the process that started the node is gone: the node stops")
        stop.set()

    on_end(loop, end)
    if lifeline is not None:
        loop.add_reader(lifeline, end_alone, lifeline)
    async with NodeServer(config) as server:
        await server.serve(stop, hurry)


def on_end(loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> None:
    """Call `end` on the signals that ask a process to end.

    SIGHUP comes when a terminal closes; where it is ignored it stays so, because that
    is how `nohup` keeps a process.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, end)
