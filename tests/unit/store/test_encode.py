"""Batches outside of a log."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from braidlog import _native
from braidlog.errors import CorruptionError, InvalidArgumentError, TooLargeError

VALUES = [b"a", b"", b"ccc"]


def test_what_is_encoded_comes_back() -> None:
    data = _native.encode_batch(
        VALUES,
        keys=[b"k", None, b""],
        timestamps=[5, 3, 9],
        headers=[[("h", b"1")], None, []],
        producer=(9, 2),
        sequence=41,
    )
    batch = _native.Batch(data)
    assert (batch.count, len(batch), batch.nbytes) == (3, 3, len(data))
    assert (batch.producer, batch.producer_epoch, batch.sequence) == (9, 2, 41)
    assert batch.timestamps == (3, 9)
    assert bytes(batch) == data
    assert _native.batch_header(data) == (3, len(data), 9, 2, 41, 3, 9)
    records = [record.as_tuple() for record in batch.records(100)]
    assert records == [
        (100, 5, b"k", b"a", (("h", b"1"),)),
        (101, 3, None, b"", ()),
        (102, 9, b"", b"ccc", ()),
    ]
    assert [r.value for r in batch.records(1, 1, 2)] == [b""]
    assert [r.position for r in batch.records(1, 2, 99)] == [3]
    assert list(batch.records(1, 3)) == []


def test_without_timestamps_it_is_now() -> None:
    before, after = _native.Batch(_native.encode_batch([b"a"])).timestamps
    assert before == after > 1_600_000_000_000_000


@pytest.mark.parametrize("compression", ["none", "zstd", "lz4"])
def test_compression(compression: str) -> None:
    data = _native.encode_batch([b"x" * 9000], compression=compression)
    assert (len(data) < 1000) is (compression != "none")
    assert next(_native.Batch(data).records(1)).value == b"x" * 9000


def test_every_byte_is_verified() -> None:
    data = _native.encode_batch(VALUES, timestamps=1)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(CorruptionError):
            _native.Batch(damaged)
    for other in (b"", data[:-1], data + b"\0"):
        with pytest.raises(CorruptionError):
            _native.Batch(other)


def test_what_makes_no_batch_is_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        _native.encode_batch([])
    with pytest.raises(InvalidArgumentError):
        _native.encode_batch([b"a"], producer=(1, 1))
    with pytest.raises(InvalidArgumentError):
        _native.encode_batch([b"a"], compression="best")
    with pytest.raises(TooLargeError):
        _native.encode_batch([bytes(17 << 20)])
    with pytest.raises(InvalidArgumentError):
        _native.Batch(_native.encode_batch([b"a"])).records((1 << 64) - 1)


def test_arrow_goes_in_and_comes_out() -> None:
    table = pa.table({"value": [b"%d" % i * 100 for i in range(1000)]})
    batches = _native.encode_arrow(
        table, producer=(9, 1), sequence=5, batch_bytes=16 << 10
    )
    assert len(batches) > 3
    sequence, found = 5, []
    for data in batches:
        batch = _native.Batch(data)
        assert batch.sequence == sequence
        sequence += batch.count
        out = pa.record_batch(batch.arrow(sequence, columns=["position", "value"]))
        assert out.column("position")[0].as_py() == sequence
        found += out.column("value").to_pylist()
    assert found == table.column("value").to_pylist()
    part = pa.record_batch(_native.Batch(batches[0]).arrow(10, 2, 4))
    assert part.column("position").to_pylist() == [12, 13]


Headers = tuple[tuple[str, bytes], ...]
Piece = tuple[
    Sequence[bytes],
    Sequence[bytes | None] | None,
    Sequence[int] | int,
    Sequence[Headers] | None,
]
PIECES: list[Piece] = [
    ([b"a", b""], None, 5, None),
    ([b"b"], [b"k"], [7], [(("h", b"1"),)]),
    ((b"c", b"d"), [None, b""], [5, 5], None),
    ([b"e"], None, 5, [()]),
]


@pytest.mark.parametrize("count", range(1, 5))
@pytest.mark.parametrize("first", range(4))
def test_pieces_are_one_batch_of_their_records(first: int, count: int) -> None:
    pieces = PIECES[first : first + count]
    rows: list[tuple[bytes, bytes | None, int, Headers]] = []
    for values, keys, times, headers in pieces:
        some = len(values)
        stamps = [times] * some if isinstance(times, int) else times
        columns = values, keys or [None] * some, stamps, headers or [()] * some
        rows += zip(*columns, strict=True)
    values, keys, times, headers = zip(*rows, strict=True)
    whole = _native.encode_batch(values, keys, times, headers, (9, 2), 41)
    assert _native.encode_pieces(pieces, (9, 2), 41) == whole


def test_pieces_that_are_larger_than_what_is_kept_for_the_next() -> None:
    for size in (3 << 20, 10):
        data = _native.encode_pieces([([b"x" * size], None, 1, None)], (9, 2), 1)
        assert [len(each.value) for each in _native.Batch(data).records(1)] == [size]


def test_pieces_with_columns_of_different_lengths_are_refused() -> None:
    wrong: list[Piece] = [
        ([b"a"], [None, None], 1, None),
        ([b"a"], None, [1, 2], None),
        ([b"a"], None, 1, [(), ()]),
    ]
    for piece in wrong:
        with pytest.raises(InvalidArgumentError, match="for 1 values"):
            _native.encode_pieces([([], None, 1, None), piece], (9, 2), 1)
    with pytest.raises(TypeError):
        _native.encode_pieces([(b"a", None, 1, None)], (9, 2), 1)
    with pytest.raises(InvalidArgumentError):
        _native.encode_pieces([], (9, 2), 1)


def test_bytes_of_a_list_are_those_of_all_and_of_the_longest() -> None:
    assert _native.bytes_of([b"a", b"", b"ccc"]) == (4, 3)
    assert _native.bytes_of([]) == (0, 0)
    assert _native.bytes_of([b"a", bytearray(b"b")]) is None
