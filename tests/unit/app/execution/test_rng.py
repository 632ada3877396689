"""The random numbers of procedures never change, and are fair."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b

import pytest

from braidlog.app.errors import StepBudgetError
from braidlog.app.execution.rng import Draws

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
GOLDEN_MORE = (
    [
        [91, 3, 98, 96, 48],
        ["a", "b"],
        [585, 550, 875, 463],
        45,
        1974732841480978655096434,
    ],
    14,
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
    with pytest.raises(ValueError, match="empty sequence"):
        draws.choice([])
    assert draws.uuid().version == 4


def test_the_numbers_are_blake2b_in_counter_mode() -> None:
    # Written apart from the implementation, after docs/formats.md.
    blocks = b"".join(
        blake2b(i.to_bytes(8, "little"), key=SEED).digest() for i in range(3)
    )
    words = [int.from_bytes(blocks[at : at + 8], "little") for at in range(0, 192, 8)]
    draws = Draws(SEED)
    assert draws.random() == (words[0] >> 11) / 2**53
    assert draws.randint(0, (1 << 63) - 1) == words[1] % (1 << 63)
    assert draws.randint(0, 9) == words[2] % 10
    wide = words[3] << 64 | words[4]
    assert draws.randint(0, (1 << 127) - 1) == wide % (1 << 127)
    assert draws.bytes(20) == blocks[40:60]
    assert draws.randrange(10, 0, -3) == 10 - 3 * (words[8] % 4)
    assert draws.choice("abc") == "abc"[words[9] % 3]
    assert draws.count == 10


def test_more_golden_numbers() -> None:
    draws = Draws(SEED)
    found = [
        draws.sample(range(100), 5),
        draws.sample("ab", 2),
        [draws.randrange(1000) for _ in range(4)],
        draws.randrange(5, 50, 5),
        draws.randrange(1 << 80, 1 << 81),
    ]
    assert (found, draws.count) == GOLDEN_MORE


def test_samples_have_each_item_once() -> None:
    draws = Draws(SEED)
    for _ in range(50):
        assert sorted(draws.sample(range(9), 9)) == list(range(9))
    assert draws.sample([], 0) == []
    assert {draws.randrange(0, 10, 3) for _ in range(200)} == {0, 3, 6, 9}
    with pytest.raises(ValueError, match="cannot draw 3 of 2"):
        draws.sample("ab", 3)
    with pytest.raises(ValueError, match=r"range\(3, 3"):
        draws.randrange(3, 3)


def test_a_command_draws_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braidlog.app.execution.rng.DRAWS_MAX", 16)
    draws = Draws(SEED)
    draws.bytes(16 * 8)
    with pytest.raises(StepBudgetError, match="at most 16"):
        draws.random()
