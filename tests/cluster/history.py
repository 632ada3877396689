"""Whether a history of calls to a log is linearizable.

A history is what clients called, when each call began and when it returned, and what it
answered. It is linearizable if each call can be given one moment between its begin and
its return such that the answers are those of one log that executes the calls in the
order of these moments (Herlihy and Wing, *Linearizability*, 1990).

Of a log this is decided in one pass, because positions tell the order of the appends:
the record at position p came before that at p + 1, and a call that saw the end e came
behind the append of e - 1 and before that of e. In this order each call needs a moment
that is not before the one of its predecessor. The earliest such moment is the latest
begin of all calls up to it, and there is none if that is past its return.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Append", "Look", "violation"]


@dataclass(frozen=True, slots=True)
class Append:
    """An append: of a value, whose position is None if it got no answer.

    `refused` if it was told for certain that the value is not in the log.
    """

    value: str
    begin: float
    returned: float
    position: int | None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """A call that saw a log's end, and the values from a position up to it."""

    begin: float
    returned: float
    end: int
    first: int
    values: tuple[str, ...]


def violation(
    appends: Iterable[Append], looks: Iterable[Look], log: Mapping[int, str]
) -> str:
    """Return what is wrong with a history that left this log; empty if nothing is.

    `log` has the value at each position, from 1 on. Values are unique.
    """
    calls = {each.value: each for each in appends}
    if len(set(log.values())) < len(log):
        return "a value is at two positions"
    for call in calls.values():
        if call.position is not None and log.get(call.position) != call.value:
            found = log.get(call.position)
            return f"{call} was acknowledged, but {found!r} is at its position"
    # Place of each call in the order: appends at 2p, who saw the end e between.
    order: list[tuple[int, float, float, object]] = []
    for position, value in log.items():
        if (append := calls.get(value)) is None:
            return f"nobody appended {value!r}, which is at {position}"
        if append.refused:
            return f"{append} was refused, and is at {position}"
        # One without an answer may have been stored at any later time.
        until = math.inf if append.position is None else append.returned
        order.append((2 * position, append.begin, until, append))
    for look in looks:
        if len(look.values) != max(0, look.end - look.first):
            return f"{look} does not have one value for each position"
        for position, value in enumerate(look.values, look.first):
            if log.get(position) != value:
                return f"{look} saw {value!r} at {position}: {log.get(position)!r}"
        order.append((2 * look.end - 1, look.begin, look.returned, look))
    order.sort(key=lambda each: each[:2])
    latest, cause = -math.inf, None
    for _, begin, returned, each in order:
        if begin > latest:
            latest, cause = begin, each
        if latest > returned:
            return f"{each} returned before {cause} began, which precedes it in the log"
    return ""
