"""The rule of `braidlog rescue` holds in every history; what breaks it is found."""

import pytest

from property.faultlog.model import Bounds, Kind, Model, Protocol, Rule, Violation
from property.faultlog.variants import Loose, correct

SMALL = Bounds(failures=1, returns=1, rescues=1, records=1)
RETURN = Bounds(failures=2, returns=1, rescues=0, records=1)
LATER = Bounds(failures=3, returns=1, rescues=0, records=1)
RESCUED = Bounds(failures=2, returns=0, rescues=1, records=1)
TWICE = Bounds(failures=2, returns=0, rescues=2, records=1)
FORK = Bounds(failures=1, returns=0, rescues=0, records=1, forks=True)
FOUR = Bounds(nodes=4, failures=2, returns=0, rescues=1, records=1)
WIDE = Bounds(failures=2, returns=1, rescues=1, records=1)
UNACKNOWLEDGED = Bounds(failures=1, returns=0, rescues=0, records=2)
HOLDS = {
    "return": RETURN,
    "later": LATER,
    "twice": TWICE,
    "fork": FORK,
    "four": FOUR,
    "wide": WIDE,
    "unacknowledged": UNACKNOWLEDGED,
}


@pytest.mark.parametrize("name", HOLDS)
def test_the_rule_holds_in_every_history(name: str) -> None:
    assert Model(HOLDS[name], correct).explore() > 100


def test_the_variants_differ_from_the_rule_in_their_switch_alone() -> None:
    loose = Model(SMALL, Loose()).explore()
    assert loose == Model(SMALL, correct).explore()


RULES: dict[str, tuple[Rule, Bounds, Kind]] = {
    "accusations are added up": (Loose(adds_accusations=True), RETURN, Kind.CHOICE),
    "accusations leave nobody": (Loose(adds_accusations=True), LATER, Kind.LIVENESS),
    "the longest log wins": (Loose(takes_longest=True), UNACKNOWLEDGED, Kind.LOSS),
    "viability is ignored": (Loose(takes_unviable=True), SMALL, Kind.LOSS),
    "members may be absent": (
        Loose(needs=lambda here, live: here > 0),
        SMALL,
        Kind.LOSS,
    ),
    "a majority of them suffices": (
        Loose(needs=lambda here, live: 2 * here > live),
        RETURN,
        Kind.LOSS,
    ),
    "sequence before epoch": (
        Loose(number=lambda record: record.number[::-1]),
        RESCUED,
        Kind.LOSS,
    ),
    "sequence alone": (
        Loose(number=lambda record: record.number[1:]),
        RESCUED,
        Kind.LOSS,
    ),
    "epoch alone": (
        Loose(number=lambda record: record.number[:1], takes_forks=True),
        RETURN,
        Kind.LOSS,
    ),
    "a fork is not noticed": (Loose(takes_forks=True), FORK, Kind.LOSS),
}


@pytest.mark.parametrize("name", RULES)
def test_a_broken_rule_is_found(name: str) -> None:
    rule, bounds, kind = RULES[name]
    with pytest.raises(Violation):
        Model(bounds, rule, kinds=frozenset({kind}), sees_logs=True).explore()


KEEPS_EPOCH = Protocol(
    listed_record_at_once=True, epoch_step=0, sequence_of_rescue=lambda last: last + 1
)
PROTOCOLS: dict[str, tuple[Protocol, Bounds, Kind]] = {
    "acts first": (Protocol(acts_before_recording=True), SMALL, Kind.LOSS),
    "unlists first": (Protocol(unlists_first=True), SMALL, Kind.LOSS),
    "is viable without a copy": (Protocol(keeps_viability=True), SMALL, Kind.LOSS),
    "copies too early": (Protocol(copies_while_listed=True), SMALL, Kind.LOSS),
    "the listed record first": (
        Protocol(listed_record_at_once=True),
        RETURN,
        Kind.CHOICE,
    ),
    "and a rescue keeps the epoch": (KEEPS_EPOCH, WIDE, Kind.NUMBER),
    "a rescue resets the sequence": (Protocol(epoch_step=0), RESCUED, Kind.NUMBER),
    "and that loses records": (Protocol(epoch_step=0), RESCUED, Kind.LOSS),
}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_broken_protocol_is_found(name: str) -> None:
    protocol, bounds, kind = PROTOCOLS[name]
    with pytest.raises(Violation):
        Model(bounds, correct, protocol, frozenset({kind})).explore()


def test_listed_nodes_that_record_first_lose_nothing_all_the_same() -> None:
    protocol = Protocol(listed_record_at_once=True)
    Model(WIDE, correct, protocol, frozenset({Kind.LOSS})).explore()
