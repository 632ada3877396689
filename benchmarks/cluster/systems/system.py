"""What the harness knows of a system."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cluster.load import Client
from benchmarks.cluster.plan import Plan


@dataclass(frozen=True, slots=True)
class Nodes:
    """Three processes that run."""

    address: Any
    """What a client needs, as JSON has it."""
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class System:
    """How a system is started, and spoken to."""

    nodes: str
    """Name of its processes; two systems may be two kinds of log of the same."""
    start: Callable[[Plan, Path, ExitStack], Nodes]
    """Start processes with their data in a folder, until the stack closes.

    Raises `Unavailable` where a program is missing.
    """
    client: Callable[[Any], Client]
    """Return a client, of an address."""
    reads: bool = True
    streams: bool = False
    """Whether a log can have several streams."""
    fails_over: bool = True
    warm_s: float = 0.0
    """For how long its processes take appends before they are measured."""
