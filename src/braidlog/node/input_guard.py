"""What an error of one input means for the node: nothing, or its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVarTuple

from braidlog.errors import ClosedError, LogError

_log = logging.getLogger(__name__)

Given = TypeVarTuple("Given")


class InputGuard:
    """Lets inputs in one by one, and stops the node when it can keep no promise."""

    def __init__(self, node: int) -> None:
        """Guard a node that runs on the loop of the caller."""
        self._node = node
        self.failed: asyncio.Future[LogError] = (
            asyncio.get_running_loop().create_future()
        )
        """Set when the node cannot go on."""

    def run(self, call: Callable[[*Given], None], *given: *Given) -> None:
        """Let one input in; a message that is refused changes nothing."""
        try:
            call(*given)
        except Exception as error:
            self.bear(error)

    def bear(self, error: Exception) -> None:
        """Go on if an input was refused; else stop for good."""
        # A failed store or a broken invariant is no refusal.
        if isinstance(error, LogError) and not isinstance(error, ClosedError):
            _log.warning("a message was rejected: %s", error)
        else:
            self.stop(error)

    def stop(self, error: Exception) -> None:
        """Stop for good because of an error that no input may cause."""
        if isinstance(error, ClosedError):
            self.fail(error)
        else:
            _log.error("unforeseen", exc_info=error)
            self.fail(
                ClosedError(
                    f"the node met an error that it cannot handle (a bug): {error!r}"
                )
            )

    def fail(self, error: LogError) -> None:
        """Stop for good: the node can keep no promise any more."""
        if not self.failed.done():
            _log.critical("node %d stops because of an error: %s", self._node, error)
            self.failed.set_result(error)
