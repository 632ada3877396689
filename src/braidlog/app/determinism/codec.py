"""Deterministic CBOR (RFC 8949, 4.2): one value, one sequence of bytes.

Arguments and results pass through it also within a process, so that a tuple is a list
for everybody or for nobody. NaN has one bit pattern, -0.0 is 0.0. Whatever has no order
of its own (sets) or no meaning elsewhere (objects) is refused with the path to it.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from decimal import Decimal
from operator import itemgetter
from typing import Any, Final

from cbor2 import CBORDecodeError, CBOREncodeError, dumps, loads

from braidlog.app.errors import EncodingError
from braidlog.errors import CorruptionError

_DEPTH_MAX: Final = 64
_LEAVES: Final = (
    bool,
    int,
    str,
    bytes,
    bytearray,
    Decimal,
    datetime.date,
    uuid.UUID,
    type(None),
)
_ARRAY: Final = 0x80
_MAP: Final = 0xA0
_SHORT: Final = 24
_ARRAYS: Final = [bytes([_ARRAY | count]) for count in range(_SHORT)]
_SMALL: Final = [dumps(number) for number in range(1024)]


def encode(value: object) -> bytes:
    """Return the one encoding of ``value``.

    Raises:
        EncodingError: something in it is no value of the log; ``path`` says where.
    """
    parts: list[bytes] = []
    try:
        _put(value, parts.append, _DEPTH_MAX)
    except (CBOREncodeError, TypeError, ValueError) as error:
        path, reason = _find(value, "", 0) or ("", str(error))
        msg = f"cannot encode the value{' at ' + path if path else ''}: {reason}"
        raise EncodingError(msg, path=path) from error
    return b"".join(parts)


def _put(value: Any, add: Callable[[bytes], None], left: int) -> None:
    # Containers are written here and leaves by the library, whose encoder takes
    # several times as long for a container and recurses on the stack of the machine.
    kind = type(value)
    if kind is list or kind is tuple:
        _put_array(value, add, left)
    elif kind is int or kind is str:
        add(dumps(value))
    elif isinstance(value, float):
        # Minus zero equals zero, so both are written as zero.
        add(dumps(float(value) if value else 0.0, canonical=True))
    elif isinstance(value, dict):
        _put_map(value, add, left)
    elif isinstance(value, (list, tuple)):
        _put_array(value, add, left)
    elif isinstance(value, _LEAVES):
        add(dumps(value, canonical=True))
    else:
        raise TypeError(f"{kind.__name__} cannot be stored in the log")


def _put_array(value: Any, add: Callable[[bytes], None], left: int) -> None:
    count = len(value)
    add(_ARRAYS[count] if left and count < _SHORT else _head(_ARRAY, count, left))
    for item in value:
        kind = type(item)
        if kind is int:
            add(_SMALL[item] if 0 <= item < len(_SMALL) else dumps(item))
        elif kind is str or kind is bytes:
            add(dumps(item))
        else:
            _put(item, add, left - 1)


def _put_map(value: Any, add: Callable[[bytes], None], left: int) -> None:
    add(_head(_MAP, len(value), left))
    for key, item in sorted(
        ((encode(key), item) for key, item in value.items()), key=itemgetter(0)
    ):
        add(key)
        _put(item, add, left - 1)


def _head(kind: int, count: int, left: int) -> bytes:
    if left == 0:
        raise ValueError(f"nested deeper than {_DEPTH_MAX}")
    if count < _SHORT:
        return (kind | count).to_bytes(1, "big")
    head = bytearray(dumps(count))  # An integer with the same argument.
    head[0] |= kind
    return bytes(head)


def decode(data: bytes | memoryview) -> Any:
    """Return the value of an encoding that `encode` made.

    Raises:
        CorruptionError: it is none.
    """
    try:
        return loads(data)
    except (CBORDecodeError, ValueError, TypeError) as error:
        raise CorruptionError(f"not an encoded value: {error}") from error


def _find(value: object, path: str, depth: int) -> tuple[str, str] | None:
    """Return path and reason of the first part that cannot be encoded."""
    if depth > _DEPTH_MAX:
        return path, f"nested deeper than {_DEPTH_MAX}"
    if isinstance(value, dict):
        for key, item in value.items():
            found = _find(key, f"{path}{{{key!r}}}", depth + 1)
            found = found or _find(item, f"{path}[{key!r}]", depth + 1)
            if found:
                return found
        return None
    if isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            if found := _find(item, f"{path}[{number}]", depth + 1):
                return found
        return None
    return _leaf(value, path)


def _leaf(value: object, path: str) -> tuple[str, str] | None:
    try:
        ignored: list[bytes] = []
        _put(value, ignored.append, 1)
    except Exception as error:  # What it is called differs by type.
        return path, str(error)
    return None
