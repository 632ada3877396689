"""The signals that ask a serving process to end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable


def on_end(loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> None:
    """Call `end` on the signals that ask a process to end.

    SIGHUP comes when a terminal closes; where it is ignored it stays so, because that
    is how `nohup` keeps a process.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, end)
