"""The node's fault log: what it is told to record, in a thread, one at a time.

A record waits for two syncs, and the loop goes on meanwhile. The repository sends
nothing that depends on it before the node says that it is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from braidlog.errors import FencedError, LogError
from braidlog.faultlog.configuration import Configuration
from braidlog.faultlog.record import FaultRecord
from braidlog.node.errors import left_behind
from braidlog.node.rescue.fault_log import FaultLog
from braidlog.store.threads import in_thread
from braidlog.wire.messages import Faults, Message, Recorded

_log = logging.getLogger(__name__)


class FaultRecorder:
    """Records what comes; the newest of what came meanwhile is next."""

    def __init__(
        self,
        log: FaultLog,
        *,
        recorded: Callable[[Recorded], None],
        failed: Callable[[LogError], None],
    ) -> None:
        """Call `recorded` after each record, `failed` if there can be no more."""
        self._log = log
        self._recorded = recorded
        self._failed = failed
        self._next: tuple[Configuration, bool] | None = None
        """The configuration to record, and whether this node is complete in it."""
        self._task: asyncio.Task[None] | None = None
        for note in log.notes:
            _log.warning("the fault log: %s", note)

    @property
    def newest(self) -> FaultRecord | None:
        """Return the newest record."""
        return self._log.newest

    def says(self) -> Recorded | None:
        """Return what the repository is told; None if nothing was recorded yet."""
        newest = self._log.newest
        if newest is None:
            return None
        return Recorded(self._log.node, *newest.number, newest.viable)

    def answer(self, message: Recorded) -> Message | None:
        """Return what to tell a node whose record is of another fault epoch, if it is.

        Who has not heard of a rescue must not go on as if there was none.
        """
        newest = self._log.newest
        if newest is None or message.epoch == newest.configuration.epoch:
            return None
        if message.epoch > newest.configuration.epoch:
            return self.says()
        new = newest.configuration
        return Faults(*new.number, new.members, new.failed, viable=False)

    def take(self, message: Faults) -> None:
        """Record a configuration, soon; fail if a rescue did not write to this node.

        Raises:
            InvalidArgumentError: No cluster can have this configuration.
            TooLargeError: It has too many members.
        """
        # Before it waits: a message that makes no sense is refused to its sender, while
        # an error of the task below stops the node.
        configuration = Configuration(
            message.epoch, message.sequence, message.members, message.failed
        )
        newest = self._log.newest
        if newest is not None and message.epoch > newest.configuration.epoch:
            self._failed(left_behind(self._log.node, message))
            return
        self._next = (configuration, message.viable)
        if self._task is None:
            self._task = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Let the record that is under way end, and close the log."""
        self._next = None
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        self._log.close()

    async def _work(self) -> None:
        try:
            while (next_ := self._next) is not None:
                self._next = None
                await in_thread(self._record, *next_)
                if (said := self.says()) is not None:
                    self._recorded(said)
        except LogError as error:
            self._failed(error)
        finally:
            self._task = None

    def _record(self, configuration: Configuration, viable: bool) -> None:
        listed = self._log.node in configuration.failed
        newest = self._log.newest
        viable = viable or (newest is not None and newest.viable)
        try:
            self._log.record(configuration, viable=viable and not listed)
        except FencedError as error:
            # Of a leader that is none any more.
            _log.debug(
                "a configuration of an earlier leader was not recorded: %s", error
            )
