"""Random histories of one stream, each the same under its seed."""

import pytest

from property.logstream.simulation import STORMS, run

SEEDS = 8


@pytest.mark.parametrize("storm", STORMS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_or_moved(seed: int, storm: str) -> None:
    run(seed, STORMS[storm])


def test_a_copy_that_lacks_only_trimmed_commits_gets_on() -> None:
    run(386, STORMS["trims"])


def test_a_seed_does_the_same_twice() -> None:
    first, second = (run(3, STORMS["crashes"]) for _ in range(2))
    assert first.checker.truth == second.checker.truth
    assert first.group.letters == second.group.letters


def test_something_happens() -> None:
    seen = run(1, STORMS["lossy"]).checker
    assert len(seen.acknowledged) > 5
