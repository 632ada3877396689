"""Says what retention may let go of: of streams and shards that this node leads.

The metadata repository decides: a log has many streams, and no node sees all of them
(`braidlog.metarepo.machine.retention`). What was said is said again when it changed,
and from time to time all the same, because a pin that held it may be gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

import msgspec

from braidlog.errors import InvalidArgumentError, LogError
from braidlog.metarepo.machine.retention import SIZES_MAX
from braidlog.node.config import NodeConfig
from braidlog.node.requests.forwarding import Execution
from braidlog.store.catalog import LogOptions
from braidlog.wire.commands import Retain, encode
from braidlog.wire.messages import Message

_log = logging.getLogger(__name__)

_AGAIN: Final = 6
"""Looks after which the same is said again."""


class Retained(Protocol):
    """What this node may speak for: a stream it is primary of, a shard it leads."""

    stream: int
    options: bytes
    """Of the log."""

    def young(self, timestamp: int) -> int:
        """Return a position before which all is older; 0 if none is known."""

    def sizes(self, points_max: int) -> tuple[tuple[int, int], ...]:
        """Return (position, bytes from there on), positions rising."""


class Retention:
    """Looks at all primaries from time to time."""

    def __init__(
        self,
        config: NodeConfig,
        primaries: Callable[[], Iterable[Retained]],
        wall_clock: Callable[[], int],
        execute: Execution,
    ) -> None:
        """Prepare; ``execute`` executes a command on the leader."""
        self._interval = config.timing.retention_ms / 1000
        self._primaries = primaries
        self._wall_clock = wall_clock
        self._execute = execute
        self._looked = 0.0
        self._said: dict[int, tuple[Retain, int]] = {}
        self._bad: dict[int, bytes] = {}
        """Streams whose options cannot be read, and those options."""

    def tick(self, now: float) -> None:
        """Let time pass."""
        if now - self._looked < self._interval:
            return
        self._looked = now
        wall = self._wall_clock()
        found = {each.stream: each for each in self._primaries()}
        for gone in self._said.keys() - found.keys():
            del self._said[gone]
        for gone in self._bad.keys() - found.keys():
            del self._bad[gone]
        for primary in found.values():
            try:
                self._look(primary, wall)
            except LogError as error:  # One stream must not keep the others.
                _log.warning(
                    "retention of stream %d could not be applied: %s",
                    primary.stream,
                    error,
                )

    def _look(self, primary: Retained, wall: int) -> None:
        options = self._options(primary)
        if options.retention_ms is None and options.retention_bytes is None:
            self._said.pop(primary.stream, None)
            return
        keep = 0
        if options.retention_ms is not None:
            keep = primary.young(wall - options.retention_ms * 1000)
        sizes = primary.sizes(SIZES_MAX) if options.retention_bytes else ()
        largest = options.retention_bytes or 0
        command = Retain(primary.stream, primary.options, keep, largest, sizes)
        said, looks = self._said.get(primary.stream, (None, 0))
        if said == command and looks < _AGAIN:
            self._said[primary.stream] = command, looks + 1
            return
        self._said[primary.stream] = command, 0
        now = msgspec.structs.replace(command, now=wall)
        answered = partial(self._answered, primary.stream)
        self._execute(b"", encode(now), answered)

    def _options(self, primary: Retained) -> LogOptions:
        """Return the options of a stream; what cannot be read keeps everything.

        Earlier versions took any bytes, and what was taken stays in the state.
        """
        try:
            options = LogOptions.decode(primary.options)
        except InvalidArgumentError as error:
            if self._bad.get(primary.stream) != primary.options:
                self._bad[primary.stream] = primary.options
                _log.warning(
                    "the options of stream %d are invalid, so its records are kept: "
                    "%s. Set the retention of its log again with `braidlog log set`",
                    primary.stream,
                    error.message,
                    extra={"stream": primary.stream},
                )
            return LogOptions()
        self._bad.pop(primary.stream, None)
        return options

    def _answered(self, stream: int, answer: Message | LogError, _: memoryview) -> None:
        if isinstance(answer, LogError):
            _log.debug(
                "retention of stream %d could not be applied: %s", stream, answer
            )
            self._said.pop(stream, None)  # It is said again at the next look.
