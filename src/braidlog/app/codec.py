"""Deterministic CBOR (RFC 8949, 4.2): one value, one sequence of bytes.

Arguments and results pass through it also within a process, so that a tuple is a list
for everybody or for nobody. NaN has one bit pattern, -0.0 is 0.0. Whatever has no order
of its own (sets) or no meaning elsewhere (objects) is refused with the path to it.
"""

from __future__ import annotations

import collections
import datetime
import fractions
import ipaddress
import re
import uuid
from decimal import Decimal
from typing import Any, Final

import cbor2

from braidlog.app.errors import EncodingError
from braidlog.errors import CorruptionError

__all__ = ["decode", "encode"]

_DEPTH_MAX: Final = 64
_CONTAINERS: Final = (list, tuple, dict)


def _refuse(encoder: cbor2.CBOREncoder, value: Any) -> Any:
    msg = f"{type(value).__name__} is not a value of the log"
    raise TypeError(msg)


def _float(encoder: cbor2.CBOREncoder, value: float) -> None:
    # Minus zero equals zero, so both are written as zero.
    encoder.encode_float(value + 0.0 if value else 0.0)


_ENCODERS: Final[dict[type, Any]] = {
    float: _float,
    **dict.fromkeys(
        [
            set,
            frozenset,
            complex,
            collections.deque,
            collections.ChainMap,
            fractions.Fraction,
            re.Pattern,
            ipaddress.IPv4Address,
            ipaddress.IPv6Address,
            ipaddress.IPv4Network,
            ipaddress.IPv6Network,
            ipaddress.IPv4Interface,
            ipaddress.IPv6Interface,
            cbor2.CBORTag,
            cbor2.CBORSimpleValue,
            type(cbor2.undefined),
        ],
        _refuse,
    ),
}


def encode(value: object) -> bytes:
    """Return the one encoding of ``value``.

    Raises:
        EncodingError: something in it is no value of the log; ``path`` says where.
    """
    try:
        if isinstance(value, _CONTAINERS):
            _check_depth(value, _DEPTH_MAX)
        return cbor2.dumps(value, canonical=True, encoders=_ENCODERS)
    except (cbor2.CBOREncodeError, TypeError, ValueError) as error:
        path, reason = _find(value, "", 0) or ("", str(error))
        msg = f"cannot encode the value{' at ' + path if path else ''}: {reason}"
        raise EncodingError(msg, path=path) from error


def _check_depth(value: Any, left: int) -> None:
    # The encoder recurses on the stack of the machine, which it would overrun.
    if left == 0:
        msg = f"nested deeper than {_DEPTH_MAX}"
        raise ValueError(msg)
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, _CONTAINERS):
            _check_depth(item, left - 1)


def decode(data: bytes | memoryview) -> Any:
    """Return the value of an encoding that `encode` made.

    Raises:
        CorruptionError: it is none.
    """
    try:
        return cbor2.loads(data)
    except (cbor2.CBORDecodeError, ValueError, TypeError) as error:
        msg = f"not an encoded value: {error}"
        raise CorruptionError(msg) from error


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
    plain = (type(None), bool, int, float, str, bytes, bytearray)
    known = (*plain, Decimal, datetime.date, uuid.UUID)
    if not isinstance(value, known):
        return path, f"{type(value).__name__} is not a value of the log"
    try:
        cbor2.dumps(value, canonical=True)
    except Exception as error:  # What it is called differs by type.
        return path, str(error)
    return None
