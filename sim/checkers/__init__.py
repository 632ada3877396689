"""Checkers: told what was observed, they raise `ViolationError` when it cannot be.

They know nothing of how a cluster works, only what it promises (docs/guarantees.md),
and run no code of it: observations are plain numbers and bytes.
"""

from sim.checkers.appends import AppendChecker, Outcome
from sim.checkers.claims import ClaimChecker
from sim.checkers.cuts import CutChecker, CutRun
from sim.checkers.epochs import EpochChecker
from sim.checkers.register import ANYTHING, IndexedChecker, Operation, check_register

__all__ = [
    "ANYTHING",
    "AppendChecker",
    "ClaimChecker",
    "CutChecker",
    "CutRun",
    "EpochChecker",
    "IndexedChecker",
    "Operation",
    "Outcome",
    "check_register",
]
