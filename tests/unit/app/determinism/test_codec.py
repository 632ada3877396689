"""One value has one encoding; what has none is refused with the path to it."""

from __future__ import annotations

import datetime
import math
import struct
import uuid
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.app.determinism.codec import decode, encode
from braidlog.app.errors import EncodingError
from braidlog.errors import CorruptionError

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_values_come_back(value: Any) -> None:
    assert decode(encode(value)) == value
    assert encode(decode(encode(value))) == encode(value)


def test_tuples_are_lists() -> None:
    assert decode(encode((1, (2, 3)))) == [1, [2, 3]]


def test_the_order_of_a_dict_is_that_of_its_keys() -> None:
    assert encode({"b": 1, "aa": 2, "a": 3}) == encode({"a": 3, "aa": 2, "b": 1})
    assert [*decode(encode({"b": 1, "aa": 2, "a": 3}))] == ["a", "b", "aa"]


def test_zero_and_nan_have_one_encoding() -> None:
    other_nan = struct.unpack(">d", bytes.fromhex("7ff8000000000001"))[0]
    assert encode([-0.0, {"x": -0.0}]) == encode([0.0, {"x": 0.0}])
    assert encode(other_nan) == encode(math.nan) == encode(-math.nan)


@pytest.mark.parametrize(
    "value",
    [
        Decimal("1.10"),
        uuid.UUID(int=7),
        datetime.date(2020, 1, 2),
        datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),
        1 << 200,
        -(1 << 200),
    ],
)
def test_more_values(value: Any) -> None:
    assert decode(encode(value)) == value


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({1}, ""),
        ([1, {"a": [2, {3}]}], "[1]['a'][1]"),
        ({"x": object()}, "['x']"),
        (["\ud800"], "[0]"),
        ([datetime.datetime(2020, 1, 2)], "[0]"),  # noqa: DTZ001
        ({frozenset(): 1}, "{frozenset()}"),
        ([1j], "[0]"),
    ],
)
def test_what_cannot_be_encoded_is_named(value: object, path: str) -> None:
    with pytest.raises(EncodingError) as caught:
        encode(value)
    assert caught.value.path == path


def test_depth_is_bounded() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(EncodingError, match="nested deeper"):
        encode(value)
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(EncodingError):
        encode(circle)


def test_what_is_no_encoding_is_corrupt() -> None:
    with pytest.raises(CorruptionError):
        decode(b"\x82\x01")
