"""The worked cases of the rule, and its words."""

import itertools

import pytest

from braidlog.errors import InvalidArgumentError
from braidlog.faultlog import (
    Decision,
    FaultRecord,
    Refuse,
    Unreadable,
    Wait,
    decide,
)
from unit.faultlog.worlds import decided, record, records

FOUR = (1, 2, 3, 4)
K1 = {1: (1, 3), 2: (2, 4)}


@pytest.mark.parametrize(
    ("story", "valid"),
    [
        ("A,B,C:0", (1, 2, 3)),  # all died together
        ("A,C:1B B:0", (1, 3)),  # one failed before
        ("A,C:1B", (1, 3)),  # and is not there
        ("A:1B B:3A C:3A", (2, 3)),  # they accuse each other
        ("A:1B B:1B C:1B", (1, 3)),  # it marked itself
        ("A,C:2 B:2*", (1, 3)),  # it is back, without its log
        ("A:1B B,C:0", (1, 3)),  # half of them heard of a failure
        ("C:2AB", (3,)),  # the last one alone
        ("C:2AB A:5C B:5C", (1, 2)),  # the greatest number, of whoever it is
        ("A:5C B,C:e2.0A", (2, 3)),  # a former epoch counts nothing
        ("A:9 B:e2.1A C:e2.0A", (2, 3)),
    ],
)
def test_decisions(story: str, valid: tuple[int, ...]) -> None:
    verdict = decided(story)
    assert isinstance(verdict, Decision)
    assert verdict.valid == valid
    known = [item.configuration.epoch for item in records(story).values()]
    assert verdict.configuration.number == (max(known) + 1, 0)
    assert verdict.configuration.members == (1, 2, 3)
    assert verdict.configuration.live == valid


def test_two_of_four_suffice_where_the_others_are_listed() -> None:
    for story in ("A:1B B,C:4AD D:3A", "B,C:4AD"):
        verdict = decided(story, members=FOUR, streams=K1)
        assert isinstance(verdict, Decision)
        assert verdict.valid == (2, 3)


@pytest.mark.parametrize(
    ("story", "missing"),
    [
        ("A:1B B:3A", (3,)),
        ("B,C:0", (1,)),
        ("B:0", (1, 3)),
        ("A:1B", (3,)),
        ("B:3C C:6B", (1,)),
    ],
)
def test_waits(story: str, missing: tuple[int, ...]) -> None:
    verdict = decided(story)
    assert isinstance(verdict, Wait)
    assert verdict.missing == missing
    assert [text.split()[1] for text in verdict.why] == [str(n) for n in missing]


def test_an_unreadable_node_is_as_good_as_absent() -> None:
    present: dict[int, FaultRecord | Unreadable] = {**records("A,C:1B")}
    present[2] = Unreadable("no ring")
    assert isinstance(decide(present), Decision)
    present[3] = Unreadable("both copies are damaged")
    verdict = decide(present)
    assert isinstance(verdict, Wait)
    assert verdict.missing == (3,)
    assert "both copies are damaged" in verdict.why[0]
    nothing = decide({1: Unreadable("gone")})
    assert isinstance(nothing, Wait)
    assert (nothing.authority, nothing.missing) == (None, (1,))
    assert decide({}) == Wait(None, (), ("none of the fault logs can be read",))


def test_a_fork_is_refused() -> None:
    verdict = decided("A:1B B:1A", members=(1, 2))
    assert isinstance(verdict, Refuse)
    assert verdict.nodes == (1, 2)
    assert "node 1 lists 2 as failed of 1, 2; node 2 lists 1" in verdict.why[0]
    one = record(1, 1, members=(1, 2))
    other = record(2, 1, members=(1, 2, 3))
    assert isinstance(decide({1: one, 2: other}), Refuse)


def test_an_old_fork_does_not_matter() -> None:
    verdict = decided("A:1B B:1A C:2AB")
    assert isinstance(verdict, Decision)
    assert verdict.valid == (3,)


def test_viability_makes_no_fork() -> None:
    assert isinstance(decided("A:2 B:2* C:2"), Decision)


def test_without_a_viable_log_it_is_refused() -> None:
    verdict = decided("A,B:3C* C:1")
    assert isinstance(verdict, Refuse)
    assert verdict.nodes == (1, 2)


def test_an_uncovered_stream_is_refused_with_who_could_help() -> None:
    streams = {7: (1, 3), 8: (2,), 9: (2, 1)}
    verdict = decided("A,C:1B B:0", streams=streams)
    assert isinstance(verdict, Refuse)
    assert verdict.nodes == (2,)
    assert verdict.why == ("stream 8 has no valid replica; its last replicas are 2",)


def test_several_clusters_are_refused() -> None:
    verdict = decide({1: record(1), 2: record(2), 3: record(3, cluster="blue")})
    assert isinstance(verdict, Refuse)
    assert verdict.why == (
        "the directories belong to several clusters: 'blue', 'green'",
    )


def test_a_node_that_is_no_member_any_more_decides_nothing() -> None:
    old = record(4, 5, members=FOUR)
    now = records("A,B:e2.0 C:e2.0")
    verdict = decide({**now, 4: old})
    assert isinstance(verdict, Decision)
    assert verdict.valid == (1, 2, 3)


def test_a_record_of_another_node_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="node 2 has a record of 1"):
        decide({2: record(1)})


def test_the_order_in_which_nodes_are_named_does_not_matter() -> None:
    found = records("A:1B B:3A C:3A")
    verdicts = [decide(dict(o)) for o in itertools.permutations(found.items())]
    assert all(verdict == verdicts[0] for verdict in verdicts)


def test_a_rescue_that_half_wrote_its_record_goes_on() -> None:
    first = decided("A,C:1B B:0")
    assert isinstance(first, Decision)
    again = decided("A:e2.0B C:1B B:0")
    assert isinstance(again, Decision)
    assert again.valid == first.valid
    assert isinstance(decided("A:e2.0B B:0"), Wait)
    assert isinstance(decided("C:1B B:0"), Wait)
