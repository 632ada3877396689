"""JSON documents that say which format they have, and their checksum. Pure.

    {"checksum": "...", "format": 1, "<key>": {...}}

The checksum is BLAKE2b-128 of the body in its compact form, with sorted keys: whoever
reads a document makes that form again and compares.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar, get_origin, get_type_hints

from braidlog.errors import CorruptionError, InvalidArgumentError, NewerFormatError

T = TypeVar("T")

_CHECKED: Final = (int, str, bool, bytes, tuple)


def hashing(data: bytes = b"") -> hashlib.blake2b:
    """Begin a checksum: what ``b2sum -l 128`` prints is its hexadecimal form."""
    return hashlib.blake2b(data, digest_size=16)


def checksum_of(data: bytes) -> str:
    """Return the checksum of bytes."""
    return hashing(data).hexdigest()


def _plain(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def encode(key: str, version: int, body: dict[str, Any]) -> bytes:
    """Return a document as it is stored."""
    whole = {"format": version, key: body, "checksum": checksum_of(_plain(body))}
    return _plain(whole) + b"\n"


def decode(
    data: bytes,
    path: str,
    key: str,
    version: int,
    build: Callable[[dict[str, Any]], T],
    *,
    what: str,
    damaged: type[CorruptionError],
) -> T:
    """Return what ``build`` makes of the body that was stored at a path.

    Raises:
        NewerFormatError: a later version wrote it.
        CorruptionError: it is not ``what`` was written; of the class ``damaged``.
    """
    try:
        whole = json.loads(data)
        found = whole["format"]
    except (ValueError, TypeError, KeyError):
        found = None
    if not isinstance(found, int) or found < 1:
        raise damaged(f"{path} is not {what}", path=path)
    if found > version:
        msg = (
            f"{path} has format {found}, but this version reads up to "
            f"{version}: upgrade Braidlog"
        )
        raise NewerFormatError(msg, path=path, found=found, supported=version)
    try:
        body = whole[key]
        if checksum_of(_plain(body)) != whole["checksum"]:
            raise damaged(f"the checksum of {path} does not match", path=path)
        return build(body)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise damaged(f"{path} is not {what}: {error}", path=path) from error


def typed(kind: type[T], values: dict[str, Any]) -> T:
    """Make a dataclass, and check that its values are of the types that it says.

    Raises:
        TypeError, InvalidArgumentError: they are not.
    """
    made = kind(**values)
    hashable: Any = kind
    for name, plain in _checked_fields(hashable):
        if not isinstance(getattr(made, name), plain):
            raise InvalidArgumentError(f"{name} is {getattr(made, name)!r}")
    return made


@cache
def _checked_fields(kind: type[Any]) -> tuple[tuple[str, type[Any]], ...]:
    """Return the fields whose types are checked: finding them out takes long."""
    hints = get_type_hints(kind).items()
    found = ((name, get_origin(hint) or hint) for name, hint in hints)
    return tuple((name, plain) for name, plain in found if plain in _CHECKED)
