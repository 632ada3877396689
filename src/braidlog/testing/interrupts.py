"""Signals that must not come between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let what asks the process to end be handled behind the block, not within.

    An interrupt between the start of a process and the note of its number would leave
    a process that nobody ends. Signals are handled in the main thread alone, so the
    blocks of other threads are let run as they are.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, _: Any) -> None:
        came.append(number)

    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    # What is ignored, or has the system's handler, stays as it is.
    ours = {number: each for number, each in handlers.items() if callable(each)}
    for number in ours:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
        for first in came[:1]:
            signal.raise_signal(first)
