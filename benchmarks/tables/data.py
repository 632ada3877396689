"""Keys and values: keys in random order, values that are JSON of 100 bytes.

Half of a value is random letters, so that it compresses about as programs' records do.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

KEY_BYTES = 16
VALUE_BYTES = 100
CITIES = 1_000

_HEAD, _MIDDLE, _TAIL = b'{"city":"c', b'","price":', b',"note":"'
_DIGITS = 6
_NOTE = VALUE_BYTES - len(_HEAD) - len(_MIDDLE) - len(_TAIL) - 2 * _DIGITS - 2

Numbers = npt.NDArray[np.uint64]


def order(seed: int, count: int) -> Numbers:
    """Return the numbers below ``count``, shape ``(count,)``, in random order."""
    numbers = np.arange(count, dtype=np.uint64)
    np.random.default_rng(seed).shuffle(numbers)
    return numbers


def sorted_by_key(count: int) -> Numbers:
    """Return the numbers below ``count``, shape ``(count,)``, in the order of keys."""
    return np.argsort(_mixed(np.arange(count, dtype=np.uint64))).astype(np.uint64)


def _mixed(numbers: Numbers) -> Numbers:
    # An odd factor permutes the numbers of 64 bits, so neighbours are far apart.
    return numbers * np.uint64(0x9E3779B97F4A7C15)


def keys(numbers: Numbers) -> npt.NDArray[np.uint8]:
    """Return a key of hexadecimal digits for each number, shape ``(n, 16)``."""
    mixed = _mixed(numbers)
    shifts = np.arange(60, -4, -4, dtype=np.uint64)
    nibbles = (mixed[:, None] >> shifts) & np.uint64(15)
    digits: npt.NDArray[np.uint8] = np.frombuffer(b"0123456789abcdef", np.uint8)
    found: npt.NDArray[np.uint8] = digits[nibbles]
    return found


def values(seed: int, numbers: Numbers) -> npt.NDArray[np.uint8]:
    """Return a value for each number, shape ``(n, 100)``."""
    count, rng = len(numbers), np.random.default_rng(seed)
    parts = (
        _text(_HEAD, count),
        _decimal(numbers % np.uint64(CITIES)),
        _text(_MIDDLE, count),
        # JSON has no number that begins with 0.
        _decimal(numbers % np.uint64(900_000) + np.uint64(100_000)),
        _text(_TAIL, count),
        rng.integers(97, 123, (count, _NOTE), np.uint8),
        _text(b'"}', count),
    )
    return np.concatenate(parts, axis=1)


def _text(text: bytes, count: int) -> npt.NDArray[np.uint8]:
    return np.broadcast_to(np.frombuffer(text, np.uint8), (count, len(text)))


def _decimal(numbers: Numbers) -> npt.NDArray[np.uint8]:
    powers = np.uint64(10) ** np.arange(_DIGITS - 1, -1, -1, dtype=np.uint64)
    digits = numbers[:, None] // powers % np.uint64(10) + np.uint64(48)
    return digits.astype(np.uint8)


def column(rows: npt.NDArray[np.uint8]) -> pa.Array:
    """Return rows of equal length as an Arrow column."""
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def batches(seed: int, numbers: Numbers, group: int) -> Iterator[pa.RecordBatch]:
    """Yield keys and values of the numbers, ``group`` records at a time."""
    for begin in range(0, len(numbers), group):
        part = numbers[begin : begin + group]
        columns = {
            "key": column(keys(part)),
            "value": column(values(seed + begin, part)),
        }
        yield pa.record_batch(columns)


def chosen(seed: int, count: int, end: int) -> Numbers:
    """Return ``count`` random numbers below ``end``, some of them more than once."""
    return np.random.default_rng(seed).integers(0, end, count, np.uint64)


def key_list(numbers: Numbers) -> list[bytes]:
    """Return the keys of the numbers as Python has them."""
    found: list[bytes] = column(keys(numbers)).to_pylist()
    return found
