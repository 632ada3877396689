"""The process of `braidlog serve`: signals, logging, exit codes."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from braidlog.errors import LogError
from braidlog.node.config import NodeConfig
from braidlog.node.server import NodeServer

__all__ = ["JsonFormatter", "allow_files", "run"]

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
    config: NodeConfig, code_of: Callable[[LogError], int] = lambda error: _FAILED
) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    That is ``code_of`` what the node could not be started or not go on with.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    allow_files()
    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config))
    except LogError as error:
        _log.critical("the node stops: %s", error)  # noqa: TRY400, RUF100
        return code_of(error)
    return 0


def allow_files() -> None:
    """Let the process have as many files as it may: connections and segments are some.

    The soft limit is often 1024, below `connections_max`; without descriptors a node
    could not make the next file of its log either.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            _log.warning("the limit of open files stays %d: %s", soft, error)


async def _serve(config: NodeConfig) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with NodeServer(config) as server:
        await server.serve(stop)
