"""Running the code of one command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from braidlog.app.codec import encode
from braidlog.app.context import Context
from braidlog.app.errors import Abort, EncodingError
from braidlog.app.outcome import Status
from braidlog.app.procedure import Procedure
from braidlog.app.state import State

__all__ = ["RESULT_BYTES_MAX", "Ran", "evaluate", "failed"]

RESULT_BYTES_MAX: Final = 1 << 20
"""A larger result fails its command. Part of what a command is: fixed for ever."""


class Ran(NamedTuple):
    """What a procedure did, apart from its changes."""

    status: Status
    body: bytes
    error: Exception | None


def evaluate(
    procedure: Procedure,
    context: Context,
    arguments: Sequence[Any],
    state: State,
) -> Ran:
    """Run a procedure and encode what it returned, or what it raised.

    The ``state`` says what the machine raises. Of other exceptions only the type
    counts, and the message of an `Abort`: others may hold addresses. The exception
    itself is for the caller in this process.

    Raises:
        ExecutionError: the machine failed it, so it has no outcome yet.
        StateDamagedError: the same, because a database is damaged.
    """
    try:
        body = encode(procedure.call(context, *arguments))
        _check_size(body)
    except Abort as error:
        message = encode(["Abort", error.message])
        return Ran(Status.ABORTED, message, error)
    except state.failures as error:
        doing = f"{procedure.name!r} could not be executed"
        raise state.explained(error, doing) from error
    except Exception as error:  # Whatever it raised is its outcome.
        return failed(error)
    return Ran(Status.OK, body, None)


def failed(error: Exception) -> Ran:
    """Return the outcome of a command that an exception ended."""
    return Ran(Status.FAILED, encode([type(error).__qualname__, ""]), error)


def _check_size(body: bytes) -> None:
    if len(body) > RESULT_BYTES_MAX:
        msg = f"the result has {len(body)} bytes, over {RESULT_BYTES_MAX}"
        raise EncodingError(msg)
