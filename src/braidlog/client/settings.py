"""Bounds and times of a client."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from braidlog._native import now_us
from braidlog.errors import InvalidArgumentError

IN_FLIGHT_MAX: Final = 7
"""A node remembers the last 8 places of a producer in a stream: of what may be rolled
back each, and one that is committed."""
_MAY_BE_ZERO: Final = {"linger_s", "read_node"}


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Limits and timeouts of a client: sizes in bytes, times in seconds."""

    timeout_s: float = 30.0
    """Longest time of an append or command, retries included."""
    attempt_timeout_s: float = 5.0
    """Longest time of one attempt; then the client tries another node."""
    hedge_s: float = 0.25
    """After this time without an answer to a request for metadata or a command, the
    client asks a second node too."""
    connect_timeout_s: float = 3.0
    """Longest time to open one connection."""
    refused_s: float = 1.5
    """Longest time of the first contact while every address refuses connections."""
    linger_s: float = 0.0
    """Longest time that the first record of a batch waits for others while no batch is
    in flight."""
    batch_bytes_max: int = 1 << 20
    """Bytes at which a batch is closed. Each batch costs a round of messages between
    the nodes, so few large batches are cheap; but to read one record of a batch, a
    reader has to read all of it."""
    batch_records_max: int = 16384
    """Records at which a batch is closed."""
    record_bytes_max: int = 15 << 20
    """Largest record. One record must fit a frame after it is encoded."""
    in_flight_max: int = 4
    """Largest number of full batches of one stream in flight, at most 7."""
    outstanding_bytes_max: int = 64 << 20
    """Bytes of one log that may be appended without an outcome yet; further appends
    wait."""
    read_node: int = 0
    """Read records from this node only, to compare replicas; 0 for any node."""
    prefetch_bytes: int = 4 << 20
    """Bytes of each stream that a subscription or a read buffers ahead."""
    poll_s: float = 10.0
    """Longest time that a node may delay an answer about metadata without a change."""
    read_wait_s: float = 2.0
    """Longest time that a node may delay the answer to a read without new records; then
    the client asks another replica, which may have more."""
    table_reads_max: int = 256
    """Questions about tables that are under way at a time; further ones wait."""
    metadata_pause_s: float = 0.1
    """How long a client asks for no more changes of the metadata after it heard of two
    that came within this time."""
    retry_first_s: float = 0.02
    """Pause before the first retry; later pauses grow."""
    retry_max_s: float = 1.0
    """Longest pause between retries."""
    entropy: Callable[[int], bytes] = field(default=secrets.token_bytes)
    """Return the given number of random bytes."""
    clock: Callable[[], int] = field(default=now_us)
    """Microseconds since the Unix epoch, for timestamps of records."""

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if callable(value):
                continue
            low_enough = value >= 0 if name in _MAY_BE_ZERO else value > 0
            if not low_enough:
                msg = f"{name} must be greater than 0, got {value}"
                raise InvalidArgumentError(msg)
        if self.record_bytes_max > self.outstanding_bytes_max:
            raise InvalidArgumentError(
                f"outstanding_bytes_max = {self.outstanding_bytes_max} must be at "
                f"least record_bytes_max = {self.record_bytes_max}, to hold the "
                "largest record"
            )
        if self.in_flight_max > IN_FLIGHT_MAX:
            msg = f"in_flight_max must be at most {IN_FLIGHT_MAX}"
            raise InvalidArgumentError(f"{msg}, got {self.in_flight_max}")

    def share(self) -> float:
        """Return a random number in 0..1."""
        return int.from_bytes(self.entropy(2), "little") / (1 << 16)
