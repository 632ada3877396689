"""What callers give, checked before anything is done with it. Pure."""

from __future__ import annotations

import math
from typing import Final

from braidlog.errors import InvalidArgumentError, TooLargeError

__all__ = ["checked_name", "checked_timeout"]

# `NAME_BYTES_MAX` of the core; as UTF-8.
_NAME_BYTES_MAX: Final = 255


def checked_name(name: object, what: str) -> str:
    """Return the name that a log or cursor is to get; ``what`` says which.

    Raises:
        TypeError: it is no ``str``.
        InvalidArgumentError: it is empty, or no text.
        TooLargeError: it is too long.
    """
    if not isinstance(name, str):
        msg = f"a {what} name must be a str, not {name!r}"
        raise TypeError(msg)
    if not name:
        msg = f"a {what} name must not be empty"
        raise InvalidArgumentError(msg)
    try:
        size = len(name.encode())
    except UnicodeEncodeError as reason:
        msg = f"{name!r} cannot be a {what} name: {reason.reason}"
        raise InvalidArgumentError(msg) from None
    if size > _NAME_BYTES_MAX:
        msg = f"{what} name of {size} exceeds the limit of {_NAME_BYTES_MAX}"
        error = TooLargeError(msg, size=size, limit=_NAME_BYTES_MAX)
        # That of the class is for records.
        error.hint = "Choose a shorter one"  # type: ignore[misc]
        raise error
    # Not the object of a subclass, which may change.
    return str.__str__(name)


def checked_timeout(timeout: float | None) -> float | None:
    """Return how many seconds to wait, as a number that can be added to a clock.

    Raises:
        TypeError: it is no number.
        InvalidArgumentError: it is not a number (NaN).
    """
    if timeout is None:
        return None
    if math.isnan(timeout):
        msg = f"{timeout!r} is not a number of seconds"
        raise InvalidArgumentError(msg)
    return float(timeout)
