"""The random numbers of procedures never change, and are fair."""

from __future__ import annotations

from collections import Counter

import pytest

from braidlog.app.draws import Draws

SEED = bytes(range(16))
GOLDEN = (
    [
        0.86926182299456,
        6,
        "c",
        "8fe0f51b3c",
        "4cf09008-0b62-4a6f-9cf6-39f8e699a132",
        183199237354165083692342108608,
    ],
    [4, 5, 0, 2, 3, 1, 7, 6],
    15,
)


def test_the_numbers_are_fixed_for_ever() -> None:
    draws = Draws(SEED)
    found = [
        draws.random(),
        draws.randint(1, 6),
        draws.choice("abcdef"),
        draws.bytes(5).hex(),
        str(draws.uuid()),
        draws.randint(0, 1 << 100),
    ]
    shuffled = list(range(8))
    draws.shuffle(shuffled)
    assert (found, shuffled, draws.count) == GOLDEN


def test_a_seed_gives_the_same_numbers_and_another_one_others() -> None:
    assert [Draws(SEED).bytes(100)] * 2 == [Draws(SEED).bytes(100) for _ in range(2)]
    assert Draws(SEED).bytes(100) != Draws(SEED[::-1]).bytes(100)


def test_numbers_are_in_range_and_each_comes() -> None:
    draws = Draws(SEED)
    seen = Counter(draws.randint(-1, 1) for _ in range(3000))
    assert sorted(seen) == [-1, 0, 1]
    assert all(900 < count < 1100 for count in seen.values())
    assert all(0 <= draws.random() < 1 for _ in range(1000))
    assert draws.randint(5, 5) == 5
    assert 0 <= draws.randint(0, 1 << 70) <= 1 << 70


def test_nothing_to_draw_from() -> None:
    draws = Draws(SEED)
    with pytest.raises(ValueError, match="from 2 to 1"):
        draws.randint(2, 1)
    with pytest.raises(ValueError, match="nothing"):
        draws.choice([])
    assert draws.uuid().version == 4
