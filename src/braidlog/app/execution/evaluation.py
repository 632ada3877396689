"""Running the code of one command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from braidlog.app.determinism.codec import encode
from braidlog.app.errors import Abort, EncodingError, GiveUp
from braidlog.app.execution.context import Context
from braidlog.app.execution.outcome import Status
from braidlog.app.execution.state import State
from braidlog.app.procedure import Procedure

RESULT_BYTES_MAX: Final = 1 << 20
"""A larger result fails its command. Part of what a command is: fixed for ever."""

_MEMORY: Final = "it ran out of memory"


class Ran(NamedTuple):
    """What a procedure did, apart from its changes."""

    status: Status
    body: bytes
    error: BaseException | None


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
        GiveUp: it took too long, or more memory than there is.
    """
    try:
        body = encode(procedure.call(context, *arguments))
        _check_size(body)
    except Abort as error:
        return _aborted(error)
    except MemoryError as error:
        # Most likely it asked for more than there is, and would again at each start.
        raise GiveUp(_MEMORY) from error
    except state.failures as error:
        doing = f"{procedure.name!r} could not be executed"
        raise state.explained(error, doing) from error
    except (GiveUp, KeyboardInterrupt, SystemExit):
        # They come from outside: registration refuses procedures that raise the others.
        raise
    except BaseException as error:  # Whatever it raised is its outcome.
        return failed(error)
    return Ran(Status.OK, body, None)


def _aborted(error: Abort) -> Ran:
    """Return the outcome of a procedure that refused.

    A message that cannot be logged makes it a failure: the same on every host.
    """
    try:
        return Ran(Status.ABORTED, encode(["Abort", error.message]), error)
    except EncodingError as wrong:
        wrong.add_note("the message of Abort must be text: raise Abort(str(error))")
        return failed(wrong)


def failed(error: BaseException) -> Ran:
    """Return the outcome of a command that an exception ended."""
    return Ran(Status.FAILED, encode([type(error).__qualname__, ""]), error)


def _check_size(body: bytes) -> None:
    if len(body) > RESULT_BYTES_MAX:
        raise EncodingError(
            f"the result has {len(body)} bytes, more than the limit of "
            f"{RESULT_BYTES_MAX}"
        )
