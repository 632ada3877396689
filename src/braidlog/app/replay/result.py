"""What a replay tells: how far it is, what differed, what it did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """A command that gave something else than the log says."""

    position: int
    procedure: str
    component: str
    partitions: tuple[int, ...]

    def __str__(self) -> str:
        """Say it in one line."""
        return (
            f"the command at {self.position} ({self.procedure}) had a different outcome"
            f" than the log says; first difference: {self.component}"
        )


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """How far a replay is."""

    position: int
    end: int
    """The position that it goes to."""
    commands_per_second: float
    seconds_left: float


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did."""

    application: str
    source: str
    start: int
    """Position of the state that it began from; 0 for none."""
    position: int
    """Everything up to here is in the state, and nothing beyond."""
    time: int
    """Timestamp of that position, in microseconds; 0 if nothing was read."""
    records: int
    commands: int
    log_bytes: int
    """Of the values of records."""
    seconds: float
    commands_per_second: float
    compared: int
    """Outcomes that the log names."""
    differences: tuple[Difference, ...]
    environment: tuple[str, ...]
    missing: int
    """Positions that no copy of the log has."""
    hashes: dict[int, bytes]
    """State hash of each partition that was replayed."""
    total_hash: bytes = b""
    """Of all partitions together; empty unless another number of them was asked for."""
