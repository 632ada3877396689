import pytest

from braidlog.types import Producer


@pytest.mark.parametrize(
    ("number", "epoch"), [(0, 1), (-1, 1), (1 << 64, 1), (1, -1), (1, 1 << 32)]
)
def test_producer_refuses_numbers_out_of_range(number: int, epoch: int) -> None:
    with pytest.raises(ValueError, match="is not in"):
        Producer(number, epoch)


def test_producer_is_a_value() -> None:
    assert Producer(7) == Producer(7, epoch=1)
    assert len({Producer(7), Producer(7)}) == 1
