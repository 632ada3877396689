"""Looks for a planted bug, seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sim.scenario import Outcome

__all__ = ["first_failure"]

_UNFIT = ("TypeError", "AttributeError", "NameError")


def first_failure(run: Callable[[int], Outcome], seeds: Iterable[int]) -> Outcome:
    """Return the first run that does not pass.

    A patch that no longer fits the code ends a node as well, and shows nothing.
    """
    for seed in dict.fromkeys(seeds):
        outcome = run(seed)
        if outcome.passed:
            continue
        error = outcome.error or ""
        assert not any(unfit in error for unfit in _UNFIT), error
        assert outcome.tail
        return outcome
    msg = "nobody noticed"
    raise AssertionError(msg)
