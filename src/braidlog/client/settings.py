"""Bounds and times of a client."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from braidlog.client.producer import ProducerLimits
from braidlog.errors import InvalidArgumentError

__all__ = ["ClientSettings"]

IN_FLIGHT_MAX: Final = 7
"""A node remembers the last 8 places of a producer in a stream: of what may be rolled
back each, and one that is committed."""
_MAY_BE_ZERO: Final = {"linger_s", "read_node"}


def _now_us() -> int:
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Limits and timeouts of a client: sizes in bytes, times in seconds."""

    timeout_s: float = 30.0
    """How long an append or command may take, repeats included."""
    attempt_timeout_s: float = 5.0
    """How long one attempt may take before it is made again elsewhere."""
    hedge_s: float = 0.25
    """How long a node may take for metadata or a command until another is asked too."""
    connect_timeout_s: float = 3.0
    refused_s: float = 1.5
    """How long the first contact goes on while every address refuses connections."""
    linger_s: float = 0.0
    """How long the first record of a batch waits for others when nothing is under
    way."""
    batch_bytes_max: int = 1 << 20
    """Each batch costs a round of messages between the nodes, so few large ones are
    cheap; whoever reads one record of a batch has to read all of it."""
    batch_records_max: int = 16384
    record_bytes_max: int = 15 << 20
    """One record must fit a frame, whatever its size is once encoded."""
    in_flight_max: int = 4
    """Full batches of one stream that are under way, at most 7."""
    outstanding_bytes_max: int = 64 << 20
    """What was appended and is not settled, per log; appends wait for room."""
    read_node: int = 0
    """Read records from this node only, to compare replicas; 0 for any."""
    prefetch_bytes: int = 4 << 20
    """What a reader keeps of each stream ahead of what was asked for."""
    poll_s: float = 10.0
    """How long a node may hold back an answer because there is nothing new."""
    read_wait_s: float = 2.0
    """The same for reads; another replica, which may know more, is asked then."""
    metadata_pause_s: float = 0.1
    """Shortest time between two answers of the watch over the metadata."""
    retry_first_s: float = 0.02
    retry_max_s: float = 1.0
    entropy: Callable[[int], bytes] = field(default=secrets.token_bytes)
    """Gives so many random bytes."""
    clock: Callable[[], int] = field(default=_now_us)
    """Microseconds since the Unix epoch, for timestamps of records."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if callable(value):
                continue
            low_enough = value >= 0 if name in _MAY_BE_ZERO else value > 0
            if not low_enough:
                msg = f"{name} must be greater than 0, got {value}"
                raise InvalidArgumentError(msg)
        if self.record_bytes_max > self.outstanding_bytes_max:
            msg = (
                f"outstanding_bytes_max = {self.outstanding_bytes_max} must be at "
                f"least record_bytes_max = {self.record_bytes_max}, to hold the "
                "largest record"
            )
            raise InvalidArgumentError(msg)
        if self.in_flight_max > IN_FLIGHT_MAX:
            msg = f"in_flight_max must be at most {IN_FLIGHT_MAX}"
            raise InvalidArgumentError(f"{msg}, got {self.in_flight_max}")

    @property
    def producer_limits(self) -> ProducerLimits:
        """When batches are closed."""
        return ProducerLimits(
            linger_s=self.linger_s,
            batch_bytes_max=self.batch_bytes_max,
            batch_records_max=self.batch_records_max,
            in_flight_max=self.in_flight_max,
        )

    def share(self) -> float:
        """Return a random number in 0..1."""
        return int.from_bytes(self.entropy(2), "little") / (1 << 16)
