"""Majorities against a dumb second version that tries every set of nodes."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from braidlog.raft.quorum import Halves, Vote, agreed, holds, majority, tally

NODES = st.lists(st.integers(1, 7), max_size=7, unique=True).map(tuple)
HALVES = st.tuples(NODES, NODES)


def quorums(halves: Halves) -> list[set[int]]:
    nodes = sorted({*halves[0], *halves[1]})
    sets = [set(c) for n in range(len(nodes) + 1) for c in combinations(nodes, n)]
    return [
        chosen
        for chosen in sets
        if all(2 * len(chosen & set(half)) > len(half) for half in halves if half)
        and any(halves)
    ]


@given(HALVES, st.dictionaries(st.integers(1, 7), st.integers(0, 5)))
def test_agreed_is_what_some_quorum_reached(
    halves: Halves, reached: dict[int, int]
) -> None:
    got = agreed(halves, lambda node: reached.get(node, 0))
    naive = [min(reached.get(n, 0) for n in q) for q in quorums(halves)]
    assert got == max(naive, default=0)
    assert got == agreed(halves[::-1], lambda node: reached.get(node, 0))


@given(HALVES, st.dictionaries(st.integers(1, 7), st.booleans()))
def test_a_vote_is_won_by_a_quorum_and_lost_without_one(
    halves: Halves, votes: dict[int, bool]
) -> None:
    granted = {node for node, vote in votes.items() if vote}
    refused = {node for node, vote in votes.items() if not vote}
    won = any(q <= granted for q in quorums(halves))
    possible = any(not q & refused for q in quorums(halves))
    expected = Vote.WON if won else Vote.PENDING if possible else Vote.LOST
    assert tally(halves, votes) is expected
    assert holds(halves, granted) == won


def test_majorities() -> None:
    assert [majority(size) for size in range(1, 8)] == [1, 2, 2, 3, 3, 4, 4]


def test_without_voters_nothing_is_decided() -> None:
    assert agreed(((), ()), lambda node: 9) == 0
    assert tally(((), ()), {1: True}) is Vote.LOST
