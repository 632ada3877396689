"""The rule of `braidlog rescue` holds in every history; what breaks it is found."""

import pytest

from property.faultlog.model import Bounds, Model, Protocol, Rule, Violation
from property.faultlog.variants import Loose, correct

SMALL = Bounds(failures=1, returns=1, rescues=1, records=1)
RETURN = Bounds(failures=2, returns=1, rescues=0, records=1)
TWICE = Bounds(failures=2, returns=0, rescues=2, records=1)
FORK = Bounds(failures=1, returns=0, rescues=0, records=1, forks=True)
FOUR = Bounds(nodes=4, failures=2, returns=0, rescues=1, records=1)


@pytest.mark.parametrize(
    "bounds",
    [SMALL, RETURN, TWICE, FORK, FOUR, Bounds()],
    ids=["small", "return", "twice", "fork", "four", "wide"],
)
def test_the_rule_holds_in_every_history(bounds: Bounds) -> None:
    print(Model(bounds, correct).explore())
