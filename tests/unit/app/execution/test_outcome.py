"""Digests: fixed bytes for fixed changes, whatever can be in a state."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from braidlog.app.execution.outcome import bytes_of_changes, digest_of

ROWS = [
    [18, "account", 5, 5, [5, -3, 1.5, None, b"\x00", "ä"]],
    [9, "t", [1], None, []],
]


def test_the_bytes_of_changes_are_fixed() -> None:
    """A golden value: another one would be a difference to every log there is."""
    assert bytes_of_changes(ROWS).hex() == (
        "929512a76163636f756e7405059605fdcb3ff8000000000000c0c40100a2c3a4"
        "9509a1749101c090"
    )
    digest = digest_of(0, bytes_of_changes(ROWS), b"\x01", 2, 3)
    assert digest.hex() == "e9f6b68cca51d1ea153f24a4d1af834400b11b0203"


@pytest.mark.parametrize("value", [1 << 200, {"b": 1, "a": 2}, uuid.UUID(int=5)])
def test_values_of_other_states(value: Any) -> None:
    once = bytes_of_changes([["put", "key", value]])
    if isinstance(value, dict):
        value = dict(reversed(value.items()))
    assert bytes_of_changes([["put", "key", value]]) == once
    assert bytes_of_changes([["put", "key", None]]) != once
