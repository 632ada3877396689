"""Making a host the active one when nobody says so: the thread beside it.

There are two reasons. The host should be the active one, and the log had no room for
the entry that says so: it is tried again until a trim made room. Or the active host
is silent: then `succession` decides.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from braidlog.app.execution.succession import Succession, View
from braidlog.errors import DeadlineError, LogError, LogFullError
from braidlog.store.threads import start_thread

if TYPE_CHECKING:
    from braidlog.app.host.runner import Runner

_log = logging.getLogger(__name__)

_AGAIN_S: Final = 1.0
# Closing the host waits so long at most. What was read is read: it goes on from there.
_PROMOTE_S: Final = 5.0


class Seeing(Protocol):
    """Who can say what is to be seen of the hosts."""

    def __call__(self, active: bytes, epoch: int) -> View:
        """Return what there is to see, given who is active.

        Raises:
            LogError: nothing could be seen.
        """


class Promoter:
    """Promotes a host; a thread of its own, if there can be a reason at all."""

    def __init__(
        self,
        runner: Runner,
        succession: Succession | None = None,
        see: Seeing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to look, through ``see``, if there is a rule."""
        self._runner = runner
        self._succession = succession
        self._see = see
        self._clock = clock
        self._stopping = threading.Event()
        self._said = ""
        self._thread: threading.Thread | None = None
        if see is not None or runner.role.waiting:
            self._thread = start_thread("braidlog-promoter", self._serve)

    @property
    def alarms(self) -> tuple[str, ...]:
        """What an operator has to look at."""
        return (self._said,) if self._said else ()

    def _serve(self) -> None:
        pause = _AGAIN_S if self._succession is None else self._succession.pause_s
        while not self._stopping.wait(pause):
            role = self._runner.role
            if self._runner.failure is not None:
                return
            if role.waiting:
                self._promote()
            elif self._succession is None:
                self._say("")
            elif role.active:
                self._succession.begin_again()
                self._say("")
            elif self._due():
                self._succeed()

    def _due(self) -> bool:
        assert self._succession is not None, "checked by the caller"
        assert self._see is not None, "there with the rule"
        role = self._runner.role
        try:
            view = self._see(role.active_host, role.epoch)
        except LogError as error:
            _log.warning("could not read which hosts are alive: %s", error)
            return self._succession.look(self._clock(), None)
        due = self._succession.look(self._clock(), view)
        if not due:
            self._say("")
        return due

    def _succeed(self) -> None:
        assert self._succession is not None, "checked by the caller"
        silent = f"the active host {self._runner.role.active_host.hex()[:8]} is silent"
        why = self._runner.unfit()
        if why:
            self._say(f"{silent}, and this one does not take over by itself: {why}")
            return
        _log.warning("%s; this host takes over", silent)
        self._promote()

    def _promote(self) -> None:
        try:
            self._runner.promote(_PROMOTE_S)
        except DeadlineError:
            return  # It has to catch up, or the cluster is away: at the next look.
        except LogFullError:
            self._say(
                "it is not the active host, because the log is full: take a snapshot,"
                " or see what holds the log"
            )
        except LogError as error:
            if self._succession is not None:
                self._succession.begin_again()
            if not self._stopping.is_set():
                _log.warning("could not make this host active: %s", error)
        else:
            self._say("")

    def _say(self, alarm: str) -> None:
        if alarm and alarm != self._said:
            _log.warning("%s", alarm)
        self._said = alarm

    def close(self) -> None:
        """Promote nobody any more; one that is under way ends first."""
        self._stopping.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()
