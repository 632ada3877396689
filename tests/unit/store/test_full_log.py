"""What a log that becomes full in the middle of an append keeps of it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from braidlog import Log, Store
from braidlog.errors import LogFullError, TooLargeError
from unit.store.conftest import SEGMENT_BYTES, Opener

RECORD_BYTES = 10_000


@pytest.fixture
def node(opener: Opener) -> Store:
    return opener(wal_bytes_max=6 * SEGMENT_BYTES)


def as_list(log: Log, values: list[bytes]) -> object:
    return log.append_many(values)


def as_arrow(log: Log, values: list[bytes]) -> object:
    batches = [pa.record_batch({"value": [value]}) for value in values]
    return log.append_arrow(pa.Table.from_batches(batches))


@pytest.mark.parametrize("append", [as_list, as_arrow])
def test_the_pieces_that_fit_stay_and_are_counted(
    node: Store, append: Callable[[Log, list[bytes]], object]
) -> None:
    log = node.create_log("a")
    given = [b"%06d" % i + bytes(RECORD_BYTES) for i in range(1000)]
    with pytest.raises(LogFullError) as caught:
        append(log, given)
    node.sync()
    assert 0 < len(log) < len(given)
    assert [record.value for record in log] == given[: len(log)]
    assert caught.value.__notes__ == [
        f"the first {len(log)} records were appended, from position 1 on"
    ]


def append_until_full(log: Log, values: list[bytes]) -> None:
    while True:
        log.append_many(values)


def test_a_list_that_is_one_piece_goes_in_whole_or_not_at_all(node: Store) -> None:
    log = node.create_log("a")
    with pytest.raises(LogFullError) as caught:
        append_until_full(log, [bytes(RECORD_BYTES)] * 50)
    node.sync()
    assert len(log) > 0
    assert len(log) % 50 == 0
    assert not hasattr(caught.value, "__notes__")


def test_a_record_that_no_batch_takes_is_too_large_also_for_a_full_log(
    node: Store,
) -> None:
    # A trim would not help, so nobody should be told to trim and retry.
    log = node.create_log("a")
    with pytest.raises(LogFullError):
        append_until_full(log, [bytes(SEGMENT_BYTES // 4 - 1000)])
    for append in (log.append, log.submit):
        with pytest.raises(TooLargeError, match=f"{SEGMENT_BYTES // 4}"):
            append(bytes(SEGMENT_BYTES // 4))
