from typing import Any

import pytest

from braidlog.errors import InvalidArgumentError
from braidlog.types import Producer


@pytest.mark.parametrize(
    ("number", "epoch"), [(0, 1), (-1, 1), (1 << 64, 1), (1, -1), (1, 1 << 32)]
)
def test_producer_refuses_numbers_out_of_range(number: int, epoch: int) -> None:
    with pytest.raises(InvalidArgumentError, match=r"must be from .* got"):
        Producer(number, epoch)


@pytest.mark.parametrize("number", ["1", 1.0, None, True])
def test_numbers_of_a_producer_are_ints(number: Any) -> None:
    with pytest.raises(TypeError, match="Producer: id must be an int, not"):
        Producer(number)
    with pytest.raises(TypeError, match="Producer: epoch must be an int, not"):
        Producer(1, number)


def test_producer_is_a_value() -> None:
    assert Producer(7) == Producer(7, epoch=1)
    assert len({Producer(7), Producer(7)}) == 1
