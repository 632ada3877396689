"""The judge of histories: what it must refuse, and a dumb second one that agrees."""

from __future__ import annotations

import itertools
import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.history import Append, Look, violation


def append(value: str, begin: float, returned: float, position: int | None) -> Append:
    return Append(value, begin, returned, position)


def look(begin: float, returned: float, *values: str) -> Look:
    return Look(begin, returned, len(values) + 1, 1, values)


def test_calls_one_after_the_other() -> None:
    appends = [append("a", 0, 1, 1), append("b", 2, 3, 2)]
    looks = [look(0, 0.5), look(1.5, 1.8, "a"), look(4, 5, "a", "b")]
    assert violation(appends, looks, {1: "a", 2: "b"}) == ""


def test_an_older_look_after_a_newer_one_is_found() -> None:
    appends = [append("a", 0, 9, 1)]
    assert violation(appends, [look(1, 2, "a"), look(3, 4)], {1: "a"})


def test_a_look_that_misses_what_was_acknowledged_is_found() -> None:
    assert violation([append("a", 0, 1, 1)], [look(2, 3)], {1: "a"})


def test_a_look_that_sees_the_future_is_found() -> None:
    assert violation([append("a", 5, 6, 1)], [look(2, 3, "a")], {1: "a"})


def test_an_order_against_the_clock_is_found() -> None:
    appends = [append("a", 2, 3, 1), append("b", 0, 1, 2)]
    assert violation(appends, [], {1: "a", 2: "b"})


def test_what_got_no_answer_may_come_later_or_never() -> None:
    appends = [append("a", 0, 1, None), append("b", 2, 3, 1), append("c", 0, 1, None)]
    assert violation(appends, [], {1: "b", 2: "a"}) == ""


def test_lost_moved_and_strange_records_are_found() -> None:
    assert violation([append("a", 0, 1, 1)], [], {})
    assert violation([append("a", 0, 1, 2)], [], {1: "a"})
    assert violation([], [], {1: "a"})
    assert violation([append("a", 0, 1, 1)], [look(2, 3, "b")], {1: "a"})
    assert violation([append("a", 0, 1, 1)], [], {1: "a", 2: "a"})
    assert violation([Append("a", 0, 1, None, refused=True)], [], {1: "a"})


times = st.tuples(st.integers(0, 8), st.integers(0, 4)).map(
    lambda t: (t[0], t[0] + t[1])
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(times, st.booleans()), max_size=3),
    st.lists(st.tuples(times, st.integers(0, 3)), max_size=2),
)
def test_it_agrees_with_a_search_of_all_orders(
    stored: list[tuple[tuple[int, int], bool]], seen: list[tuple[tuple[int, int], int]]
) -> None:
    log = {position: str(position) for position in range(1, len(stored) + 1)}
    appends = [
        append(str(position), *when, position if answered else None)
        for position, (when, answered) in enumerate(stored, 1)
    ]
    looks = [
        look(*when, *(str(each) for each in range(1, min(count, len(log)) + 1)))
        for when, count in seen
    ]
    assert (violation(appends, looks, log) == "") == _search(appends, looks)


def _search(appends: list[Append], looks: list[Look]) -> bool:
    """Try each order of all calls with a log that executes them."""
    calls: list[Append | Look] = [*appends, *looks]
    for order in itertools.permutations(calls):
        length, now = 0, -math.inf
        for call in order:
            now = max(now, call.begin)
            answered = isinstance(call, Look) or call.position is not None
            if answered and now > call.returned:
                break
            if isinstance(call, Append):
                length += 1
                if call.value != str(length):
                    break
            elif call.end != length + 1:
                break
        else:
            return True
    return False
