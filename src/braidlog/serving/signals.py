"""The signals that ask a serving process for something."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable


def on_end(loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> None:
    """Call `end` on the signals that ask a process to end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, end)


def on_reload(loop: asyncio.AbstractEventLoop, reload: Callable[[], None]) -> None:
    """Call `reload` on SIGHUP, also where `nohup` had it ignored.

    It comes when a terminal closes, too: reading files again does no harm then.
    """
    loop.add_signal_handler(signal.SIGHUP, reload)
