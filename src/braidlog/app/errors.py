"""Errors of applications, split by what the caller does next.

ProcedureError             the procedure refused or failed: look at ``kind``
└─ Abort                   it said so itself; raised inside procedures
BusyError                  wait, then call again
ConflictError              others were faster too often: call again
OutcomeUnknownError        repeat with the same call id
EncodingError              a value is nothing that a log can hold
EnvironmentMismatchError   the log was written in another environment than this one
ApplicationMismatchError   the directory has another application or another shape
UnknownProcedureError      the log has a command whose code is not here
CallExpiredError           the call is too old to know whether it was executed
DeterminismError           a procedure asked for something that replay cannot repeat
DivergedError              this host computed something else than the log says
ExecutionError             the machine failed a command: see ``__cause__``
"""

from __future__ import annotations

from typing import Literal

from braidlog.errors import (
    ClosedError,
    CorruptionError,
    FormatError,
    InvalidArgumentError,
    LogError,
    UnavailableError,
)

__all__ = [
    "Abort",
    "ApplicationMismatchError",
    "BusyError",
    "CallExpiredError",
    "ConflictError",
    "DeterminismError",
    "DivergedError",
    "EncodingError",
    "EnvironmentMismatchError",
    "ExecutionError",
    "OutcomeUnknownError",
    "ProcedureError",
    "UnknownProcedureError",
]


class ProcedureError(LogError):
    """The procedure raised; nothing of what it did remains."""

    code = 110

    def __init__(
        self,
        message: str = "",
        *,
        procedure: str = "",
        kind: str = "",
        position: int = 0,
    ) -> None:
        """Name the procedure, the type of what it raised, and the command."""
        super().__init__(message)
        self.procedure = procedure
        self.kind = kind
        self.position = position


class Abort(ProcedureError):  # noqa: N818, RUF100
    """The procedure refused: raise it inside a procedure, and its caller gets it.

    The message is part of the outcome, so it must follow from the arguments and the
    state alone.
    """

    code = 111


class BusyError(UnavailableError):
    """The call got no position: too many are on their way."""

    code = 112
    hint = "Wait for answers, then call again"


class ConflictError(UnavailableError):
    """Other commands changed the partitions whenever the effects were computed."""

    code = 113
    hint = "Call again with the same call id, or log the command instead"


class OutcomeUnknownError(UnavailableError):
    """The answer did not come; the call may be executed or may still be."""

    code = 114
    hint = "Repeat it with the same call id: it is executed once"
    outcome: Literal["certain", "unknown"] = "unknown"


class EncodingError(InvalidArgumentError):
    """A value cannot be part of a command or a result."""

    code = 115
    hint = "Use None, bool, int, float, str, bytes, list, dict, Decimal, date or UUID"

    def __init__(self, message: str = "", *, path: str = "") -> None:
        """Say where in the value it is."""
        super().__init__(message)
        self.path = path


class ApplicationMismatchError(FormatError):
    """What is stored belongs to another application, or to another shape of it."""

    code = 116
    hint = "Open it with the application that made it, or use another directory"


class UnknownProcedureError(InvalidArgumentError):
    """No procedure has that name, or none has the code that the log names."""

    code = 117
    hint = (
        "Register it; for a command in the log keep the old function with retired=True"
    )


class CallExpiredError(InvalidArgumentError):
    """The result of a call this old may have been forgotten, so it is not executed."""

    code = 118
    hint = "Look at the state whether it was executed, then make a new call"


class DeterminismError(ProcedureError):
    """A procedure asked for something that a replay would not get again."""

    code = 119
    hint = "Take it from the context or from the arguments, or declare effects=True"


class DivergedError(CorruptionError):
    """A command gave something else here than the log says it gave."""

    code = 120
    hint = (
        "The partition is stopped. Restore it from a snapshot of a host that agrees,"
        " and find what the procedure takes from outside"
    )

    def __init__(
        self,
        message: str = "",
        *,
        position: int = 0,
        procedure: str = "",
        component: str = "",
        partitions: tuple[int, ...] = (),
    ) -> None:
        """Name the command and the first component that differs."""
        super().__init__(message)
        self.position = position
        self.procedure = procedure
        self.component = component
        self.partitions = partitions


class ExecutionError(ClosedError):
    """The host stopped: a disk, the memory or a library failed a command."""

    code = 121
    hint = "Fix the cause and open again: what was acknowledged is in the log"


class EnvironmentMismatchError(FormatError):
    """The outcomes in the log were made in another environment than this one."""

    code = 122
    hint = (
        "Replay in the environment that it names, or anyway: a difference that matters"
        " shows in the outcomes"
    )
