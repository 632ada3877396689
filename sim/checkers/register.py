"""Linearizability: of a register without numbers, and of states that have an index."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from sim.errors import MisuseError, ViolationError

__all__ = ["ANYTHING", "IndexedChecker", "Operation", "check_register"]

ANYTHING = object()
_STATES_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Operation:
    """One read or write of a register, with when it began and ended."""

    client: str
    write: bool
    value: Hashable
    begin: float
    # Infinite: a write whose outcome is unknown. Such reads are left out.
    end: float = math.inf
    # What a write found: it is a swap of this value.
    found: Hashable = ANYTHING


def check_register(operations: Sequence[Operation], initial: Hashable = None) -> None:
    """Find an order of the operations that explains all reads.

    The search is that of Wing and Gong with the memory of Lowe: an operation can be
    next if none that is left ended before it began, and a set of done operations with a
    value is tried once.

    Raises:
        ViolationError: there is none.
        MisuseError: the search is too long; check less at a time.
    """
    done_all = [op for op in operations if op.write or op.end < math.inf]
    ops = sorted(done_all, key=lambda op: (op.begin, op.end))
    certain = sum(1 << at for at, op in enumerate(ops) if op.end < math.inf)
    tried: set[tuple[int, Hashable]] = set()
    pending = [(0, initial)]
    best = 0
    while pending:
        done, value = pending.pop()
        if done & certain == certain:
            return
        best = max(best, (done & certain).bit_count())
        for after in _next(ops, done, value):
            if after not in tried:
                tried.add(after)
                pending.append(after)
        if len(tried) > _STATES_MAX:
            raise MisuseError(f"{len(ops)} operations are too many for the search")
    text = "\n".join(f"  {op}" for op in ops)
    total = certain.bit_count()
    msg = f"no order explains the reads (at most {best} of {total}):\n{text}"
    raise ViolationError(msg)


def _next(
    ops: Sequence[Operation], done: int, value: Hashable
) -> list[tuple[int, Hashable]]:
    candidates = []
    first_end = math.inf
    # All before the lowest zero bit are done.
    start = (~done & (done + 1)).bit_length() - 1
    for at in range(start, len(ops)):
        op = ops[at]
        # Sorted by begin: whatever follows begins later still.
        if op.begin > first_end:
            break
        if done >> at & 1:
            continue
        first_end = min(first_end, op.end)
        if op.found not in (ANYTHING, value) if op.write else op.value != value:
            continue
        candidates.append((at, op))
    candidates = [(at, op) for at, op in candidates if op.begin <= first_end]
    for at, op in candidates:
        if not op.write:
            # It changes nothing, so nothing is lost if it is next.
            return [(done | 1 << at, value)]
    return [(done | 1 << at, op.value) for at, op in candidates]


class IndexedChecker:
    """Reads of a state that carry the index it is at, as those of the metadata do.

    The index is the order, so it is enough that it respects time: what begins after
    something ended is not before it, and an index is one state for everybody.
    """

    def __init__(self) -> None:
        """Begin at index 0."""
        self._states: dict[int, Hashable] = {}
        self._highest = 0

    def floor(self) -> int:
        """Return the index that an operation that begins now must not be below."""
        return self._highest

    def ended(self, who: str, floor: int, index: int, state: Hashable = None) -> None:
        """Note a read, or a write that was decided at `index`.

        `floor` is what `floor()` returned when it began; a write is above it.
        """
        if index < floor:
            msg = f"{who} has index {index} and began when {floor} was known"
            raise ViolationError(msg)
        if state is not None:
            known = self._states.setdefault(index, state)
            if known != state:
                text = f"{who} has {state!r} at {index}, others {known!r}"
                raise ViolationError(text)
        self._highest = max(self._highest, index)
