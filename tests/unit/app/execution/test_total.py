"""The total hash: the same for the same rows, however they are spread."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import cbor2
from hypothesis import given
from hypothesis import strategies as st

from braidlog.app.determinism.codec import encode
from braidlog.app.execution.total import TableTally, Tally, total_hash

Row = tuple[str, int, str]

ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3), st.text(max_size=2)),
    max_size=12,
)


def tallied(parts: Sequence[Sequence[Row]]) -> bytes:
    tallies = []
    for part in parts:
        tally = Tally(b"schema", {"a": TableTally(), "b": TableTally()})
        for table, *row in part:
            tally.tables[table].add(table, row)
        tallies.append(tally)
    return total_hash(tallies)


@given(rows=ROWS, data=st.data())
def test_any_order_and_any_spread_has_the_same_hash(rows: list[Row], data: Any) -> None:
    count = data.draw(st.integers(1, 4))
    places = data.draw(st.lists(st.integers(0, count - 1), min_size=len(rows)))
    spread: list[list[Row]] = [[] for _ in range(count)]
    for row, place in zip(data.draw(st.permutations(rows)), places, strict=False):
        spread[place].append(row)
    assert tallied(spread) == tallied([rows])


@given(one=ROWS, other=ROWS)
def test_other_rows_have_another_hash(one: list[Row], other: list[Row]) -> None:
    assert (tallied([one]) == tallied([other])) == (sorted(one) == sorted(other))


def test_the_definition() -> None:
    """Fixed for ever: hashes of years ago are compared with those of today."""
    table = TableTally()
    number = 0
    for row in ([1, "x"], [2, None]):
        table.add("a", row)
        digest = blake2b(cbor2.dumps(["a", *row]), digest_size=32).digest()
        number += int.from_bytes(digest, "little")
    total = (number % (1 << 256)).to_bytes(32, "little")
    content = encode([b"schema", [["a", 2, total]]])
    expected = blake2b(content, digest_size=16).digest()
    assert total_hash([Tally(b"schema", {"a": table})]) == expected
    assert expected.hex() == "5a317ba98809fac06f8256ef93512dca"


def test_rows_that_all_have_count_once_and_only_if_they_are_alike() -> None:
    def tally(*values: int) -> Tally:
        table = TableTally()
        for value in values:
            table.add("a", [value])
        return Tally(b"schema", {"a": table})

    alike = total_hash([tally(1, 2), tally(2, 1), tally(1, 2)], ["a"])
    assert alike == total_hash([tally(1, 2)], ["a"])
    assert alike != total_hash([tally(1, 2), tally(1), tally(1, 2)], ["a"])
