"""Lengths that callers claim: compared first, never believed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from braidlog import Log
from braidlog.errors import InvalidArgumentError, TooLargeError
from braidlog.testing import MemoryStore
from unit.store.conftest import Opener

HUGE = 1 << 60


class Claims(Sequence[Any]):
    """Has some items, and says that they are as many as somebody likes."""

    def __init__(self, items: list[Any], claimed: int) -> None:
        self.items = items
        self.claimed = claimed
        self.taken = 0

    def __len__(self) -> int:
        return self.claimed

    def __getitem__(self, index: Any) -> Any:
        item = self.items[index]
        self.taken += 1
        return item


@pytest.fixture(params=["disk", "memory"])
def any_log(request: pytest.FixtureRequest, opener: Opener) -> Any:
    node: Any = opener() if request.param == "disk" else MemoryStore()
    return node.create_log("orders")


@pytest.mark.parametrize("claimed", [0, 1, 3, 1 << 16])
def test_an_append_has_what_is_there_and_not_what_is_claimed(
    any_log: Any, claimed: int
) -> None:
    assert any_log.append_many(Claims([b"a", b"b"], claimed)) == range(1, 3)
    assert [record.value for record in any_log] == [b"a", b"b"]


# A list of Python raises MemoryError at once for what it is told to have room for.
def test_a_huge_claim_reserves_nothing(log: Log) -> None:
    assert log.append_many(Claims([b"a", b"b"], HUGE)) == range(1, 3)


@pytest.mark.parametrize("values", [range(1 << 40), range(1 << 70)], ids=["40", "70"])
def test_more_numbers_than_memory_has_room_for(any_log: Any, values: range) -> None:
    with pytest.raises((TypeError, MemoryError, OverflowError)):
        any_log.append_many(values)
    assert any_log.append(b"") == 1


@pytest.mark.parametrize("name", ["keys", "timestamps", "headers"])
@pytest.mark.parametrize("count", [1, 3, HUGE])
def test_lengths_are_compared_before_an_item_is_read(
    any_log: Any, name: str, count: int
) -> None:
    values, column = Claims([b"a", b"b"], 2), Claims([None], count)
    with pytest.raises(InvalidArgumentError, match=f"{count} {name}"):
        any_log.append_many(values, **{name: column})
    assert values.taken == column.taken == 0
    assert any_log.append(b"") == 1


@pytest.mark.parametrize("name", ["keys", "timestamps", "headers"])
def test_what_goes_on_for_ever_is_refused(any_log: Any, name: str) -> None:
    endless = itertools.repeat(None)
    with pytest.raises(InvalidArgumentError, match=f"more than 2 {name}|2 values"):
        any_log.append_many([b"a", b"b"], **{name: endless})
    assert any_log.append(b"") == 1


def test_an_error_of_a_length_is_the_callers_own(any_log: Any) -> None:
    class Broken(Claims):
        def __len__(self) -> int:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        any_log.append_many(Broken([], 0))


def appends() -> dict[str, Callable[[Any, Any], object]]:
    """Return ways in which a buffer gets into a record."""
    return {
        "value": lambda log, big: log.append(big),
        "key": lambda log, big: log.append(b"", key=big),
        "header": lambda log, big: log.append(b"", headers=[("a", big)]),
        "values": lambda log, big: log.append_many([big]),
        "keys": lambda log, big: log.append_many([b""], keys=[big]),
        "headers": lambda log, big: log.append_many([b""], headers=[[("a", big)]]),
    }


@pytest.mark.parametrize("how", appends())
def test_a_view_that_repeats_one_byte(any_log: Any, how: str) -> None:
    big = np.broadcast_to(np.uint8(0), (1 << 40,))
    with pytest.raises(TooLargeError, match="exceeds the limit"):
        appends()[how](any_log, big)
    assert any_log.append(b"") == 1


def test_a_dictionary_that_repeats_one_value(log: Log) -> None:
    rows = 1 << 20
    indexes = pa.array(np.zeros(rows, np.int8))
    value = pa.DictionaryArray.from_arrays(indexes, [b"x" * (16 << 20)])
    with pytest.raises(InvalidArgumentError, match=f"{rows << 24} bytes"):
        log.append_arrow(pa.record_batch({"value": value}))
    assert log.append(b"") == 1
