"""Bounds and times of the tables of a node."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TableSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """Bytes, seconds, and what else is bounded."""

    flush_s: float = 30.0
    """What was applied is in files after so long: until then the log keeps it."""
    merge_pause_s: float = 1.0
    """Between looks whether files have to be merged."""
    memory_bytes_max: int = 512 << 20
    """What all tables have in memory together, not in files; each may have a share."""
    retry_s: float = 0.1
    """Pause after a first failure; later pauses grow."""
    retry_max_s: float = 5.0
    patience_s: float = 6.0
    """Longest time in which another node has to answer."""
    repair_s: float = 30.0
    """Other hosts are asked for a copy for so long before a table is made anew of the
    log, which takes longer."""
    wait_max_s: float = 60.0
    """Longest time that a request waits for a position."""
    waiters_max: int = 100_000
    """Requests that wait for a position, of all tables and connections."""
    waiters_of_one_max: int = 8192
    """Those of one connection."""
    working_max: int = 1024
    """Requests that wait for a worker or have one."""
    working_of_one_max: int = 256
    """Those of one connection."""
    keys_max: int = 16_384
    """Keys of one request."""
    rows_max: int = 65_536
    """Rows of one answer."""
    answer_bytes_max: int = 4 << 20
    """Bytes of the rows of one answer; one row may have more."""
    parts_max: int = 1024
    """Parts of a table that is divided: their first keys have room in an answer."""
    part_bytes: int = 1 << 20
    """Bytes of a part of a file that is copied."""
    pins_max: int = 16
    """Versions that others copy, of all tables."""
    pins_of_one_max: int = 8
    """Those of one connection."""
    pin_s: float = 60.0
    """A version is kept for so long after its last part was asked for."""
    leases_max: int = 1024
    """Positions of one table that are kept readable."""
    leases_of_one_max: int = 64
    """Those that one connection began to keep."""
    leases_of_one_connection_max: int = 4096
    """Leases of one connection, of all positions of all tables."""
    lease_max_s: float = 120.0
    checks_max: int = 16
    """Tables that are read whole for somebody, or wait for that."""
    check_s: float = 30.0
    """One is read on for so long after it was last asked about."""
    workers: int = 2
    """Threads that apply and read tables."""
    slow_workers: int = 5
    """Threads that write, copy and open them: of each of merging, building and checking
    one is under way at a time, so that flushes find a thread."""
