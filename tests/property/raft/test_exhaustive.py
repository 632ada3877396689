"""All states of a small group: the rules hold in each, and planted bugs break them.

`BRAIDLOG_RAFT_STATES=3000000` visits groups of three terms and of slow disks too.
"""

import os

import pytest

from braidlog.raft import RaftInvariantError
from property.raft.checkers import ViolationError
from property.raft.exhaustive import Bounds, Explorer
from property.raft.mutations import PLANTED

STATES = int(os.environ.get("BRAIDLOG_RAFT_STATES", "0"))
AT_ONCE = Bounds(terms=2)
CRASHING = Bounds(terms=1, crashes=1, slow=True)
MORE = [
    Bounds(terms=2, proposals=1, states=STATES),
    Bounds(terms=2, crashes=1, states=STATES),
    Bounds(terms=2, crashes=1, slow=True, states=STATES),
    Bounds(terms=3, states=STATES),
]
LARGER = MORE if STATES else []


@pytest.mark.timeout(3600 if STATES else 120)
@pytest.mark.parametrize("bounds", [AT_ONCE, CRASHING, *LARGER], ids=str)
def test_the_rules_hold_in_every_state(bounds: Bounds) -> None:
    found = Explorer(bounds).run()
    assert found.complete or bounds in LARGER
    assert found.committed > 1000


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("any log gets votes", AT_ONCE),
        ("a conflict is kept", AT_ONCE),
        ("two votes in a term", AT_ONCE),
        ("votes leave early", CRASHING),
        ("the vote is not stored", CRASHING),
        ("appends are answered early", CRASHING),
        ("own entries count early", CRASHING),
    ],
)
def test_a_planted_bug_breaks_a_rule(
    name: str, bounds: Bounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    next(each for each in PLANTED if each.name == name).mutate(monkeypatch)
    with pytest.raises((ViolationError, RaftInvariantError)):
        Explorer(bounds).run()
