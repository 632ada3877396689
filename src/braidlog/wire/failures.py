"""Errors over the wire: code, message, details.

*Theory of operation.* A code says the class, everywhere and for ever. The details are
the public attributes of the error that are numbers or texts, such as `first`,
`expected`, `primary` or `epoch`. `error_codes` says which class a code means.

*Invariants.* An error comes back with its class, message, outcome and details. A code
of a newer version is kept, a detail is passed over, and neither fails. Only attributes
that the class has are set, and only to values of their type.
"""

from __future__ import annotations

from typing import Final

from braidlog.errors import LogError
from braidlog.wire.error_codes import error_of
from braidlog.wire.messages import Failed

__all__ = [
    "DETAILS_MAX",
    "NAME_MAX",
    "TEXT_MAX",
    "UnknownFailureError",
    "decode_failure",
    "encode_failure",
]

TEXT_MAX: Final = 1024
"""Characters of a message or detail: more is cut, a failure always fits a frame."""
DETAILS_MAX: Final = 8
"""Details of a failure: more, which no error here has, are left out."""
NAME_MAX: Final = 64
"""Characters of the name of a detail."""

_INT64: Final = range(-(2**63), 2**63)
_NO_DETAILS: Final = {"message", "outcome"}


class UnknownFailureError(LogError):
    """The other side failed in a way that this version does not know."""

    hint = "Upgrade braidlog to see what it means"

    def __init__(
        self, message: str = "", *, details: dict[str, int | str] | None = None
    ) -> None:
        """Keep the details as they came."""
        super().__init__(message)
        self.details = details or {}


def encode_failure(error: LogError) -> Failed:
    """Return the message for an error."""
    given = vars(error)
    if isinstance(error, UnknownFailureError):
        given = dict(error.details)
    details = [
        (_text(name)[:NAME_MAX], _text(value) if isinstance(value, str) else value)
        for name, value in given.items()
        if name not in _NO_DETAILS and not name.startswith("_") and _fits(value)
    ]
    unknown = error.outcome == "unknown"
    some = dict(details[:DETAILS_MAX])
    return Failed(error.code, _text(error.message), some, unknown)


def decode_failure(failed: Failed) -> LogError:
    """Return the error of a message; the caller raises it."""
    cls = error_of(failed.code)
    if cls is None:
        return _unknown(failed)
    error = cls(failed.message)
    known = vars(error)
    for name, value in failed.details.items():
        if name not in _NO_DETAILS and type(known.get(name)) is type(value):
            setattr(error, name, value)
    hint = failed.details.get("hint")
    if isinstance(hint, str):  # One of its own says more than that of the class.
        error.advising(hint)
    if failed.unknown and error.outcome != "unknown":
        error.outcome = "unknown"
    elif not failed.unknown and error.outcome == "unknown":
        # What a class says of itself is true as long as nobody knows less.
        error.outcome = "not_stored"
    return error


def _fits(value: object) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and value in _INT64
    return isinstance(value, str)


def _text(text: str) -> str:
    # Names of files may hold what UTF-8 cannot say.
    return text[:TEXT_MAX].encode("utf-8", "replace").decode()


def _unknown(failed: Failed) -> LogError:
    error = UnknownFailureError(failed.message, details=failed.details)
    # No class stands for the code, so the instance has it.
    vars(error)["code"] = failed.code
    error.outcome = "unknown" if failed.unknown else "not_stored"
    return error
