"""From an outcome to what the caller gets: a value or an error."""

from __future__ import annotations

from typing import Any

from braidlog.app.determinism.codec import decode
from braidlog.app.errors import Abort, CallExpiredError, DivergedError, ProcedureError
from braidlog.app.execution.outcome import Outcome, Status


def answer(outcome: Outcome) -> Any:
    """Return what a call gave, or raise what it raised.

    Raises:
        Abort: the procedure refused.
        ProcedureError: the procedure raised something else, or was given up.
        CallExpiredError: the call is too old to be executed.
        DivergedError: a partition of the call is stopped.
    """
    if outcome.status == Status.OK:
        return decode(outcome.body)
    procedure, position = outcome.procedure, outcome.position
    if outcome.status == Status.EXPIRED:
        raise CallExpiredError(
            f"the call {outcome.call.hex()} of {procedure!r} came too late: "
            "its earlier result may be forgotten"
        )
    if outcome.status == Status.STOPPED:
        msg = (
            f"{procedure!r} was not executed: it touches a partition that has diverged"
        )
        raise DivergedError(msg, position=position, procedure=procedure)
    kind, message = decode(outcome.body)
    if outcome.status == Status.ABORTED:
        raise Abort(message, procedure=procedure, kind=kind, position=position)
    if outcome.status == Status.GIVEN_UP:
        msg = f"{procedure!r} was aborted by the host: {message}"
        raise ProcedureError(
            msg, procedure=procedure, kind="GivenUp", position=position
        )
    detail = f": {outcome.error}" if outcome.error is not None else ""
    msg = f"{procedure!r} raised {kind}{detail}"
    raise ProcedureError(
        msg, procedure=procedure, kind=kind, position=position
    ) from outcome.error
