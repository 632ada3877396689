"""What can be a name: of a log, a cursor, an application, a procedure. Pure.

Names go into paths, command lines and listings. What means something else there is
refused for new names, wherever they come from: by the client, which can say so at once,
and by the leader of a cluster, which lets nothing else in. A name that an earlier
version let in is used as ever.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from braidlog.errors import InvalidArgumentError, TooLargeError

NAME_BYTES_MAX: Final = 255
"""Bytes of a name as UTF-8; `NAME_BYTES_MAX` of the core."""

# Control characters, line and paragraph separators, what changes the direction of text.
_CONTROL: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

_ALLOWED: Final = (
    f"A name has 1 to {NAME_BYTES_MAX} bytes of printable characters, without '/'; it "
    "does not begin with '-' and is not '.' or '..'"
)


def checked_name(name: object, what: str) -> str:
    """Return a name that something may have; ``what`` says of what it is.

    Raises:
        TypeError: it is no ``str``.
        InvalidArgumentError: it is empty, or no text.
        TooLargeError: it is too long.
    """
    if not isinstance(name, str):
        msg = f"the name of a {what} must be a str, not {type(name).__name__}"
        raise TypeError(msg)
    if not name:
        msg = f"the name of a {what} must not be empty"
        raise InvalidArgumentError(msg).advising(_ALLOWED)
    try:
        size = len(name.encode())
    except UnicodeEncodeError as reason:
        msg = f"{name!r} cannot be the name of a {what}: {reason.reason}"
        raise InvalidArgumentError(msg).advising(_ALLOWED) from reason
    if size > NAME_BYTES_MAX:
        msg = f"the name of a {what} has {size} bytes, at most {NAME_BYTES_MAX} fit"
        error = TooLargeError(msg, size=size, limit=NAME_BYTES_MAX)
        raise error.advising("Choose a shorter name")
    # Not the object of a subclass, which may change.
    return str.__str__(name)


def checked_new_name(name: object, what: str) -> str:
    """Return the name of something that is to be created.

    Raises:
        TypeError, InvalidArgumentError, TooLargeError: as `checked_name`.
    """
    plain = checked_name(name, what)
    control = any(unicodedata.category(each) in _CONTROL for each in plain)
    if control or plain.startswith("-") or "/" in plain or plain in {".", ".."}:
        msg = f"{plain!r} cannot be the name of a {what}"
        raise InvalidArgumentError(msg).advising(_ALLOWED)
    return plain
