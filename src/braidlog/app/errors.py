"""Errors of applications, split by what the caller does next.

ProcedureError             the procedure refused or failed: look at ``kind``
└─ Abort                   it said so itself; raised inside procedures
BusyError                  wait, then call again
└─ LogBoundError           the log must be trimmed first: a snapshot is on its way
ConflictError              others were faster too often: call again
OutcomeUnknownError        repeat with the same call id
EncodingError              a value is nothing that a log can hold
ApplicationMismatchError   the directory has another application or another shape
UnknownProcedureError      the log has a command whose code is not here
CallExpiredError           the call is too old to know whether it was executed
DeterminismError           a procedure asked for something that replay cannot repeat
DivergedError              this host computed something else than the log says
SnapshotFailedError        fix the disk; the log is kept, and it is tried again
SnapshotDamagedError       a snapshot is not what was written: look at ``path``
StepBudgetError            a procedure did more than a command may
ResizeRefusedError         the rows allow no other number of partitions
EnvironmentMismatchError   commands were logged under other versions
GivenUpError               the watchdog stopped a command
ExecutionError             the machine failed a command: look at ``path``
StateDamagedError          a database of a state is damaged: look at ``path``
"""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.app.findings import Difference, Finding
from braidlog.errors import (
    ClosedError,
    CorruptionError,
    FormatError,
    InvalidArgumentError,
    LogError,
    UnavailableError,
)


class ProcedureError(LogError):
    """The procedure raised an exception; none of its changes remain."""

    code = 110
    procedure: str = ""
    kind: str = ""
    """Type of what it raised."""
    position: int = 0
    """Of the command."""


class Abort(ProcedureError):  # noqa: N818, RUF100
    """The procedure refused the call. Raise it in a procedure; its caller gets it.

    The message is part of the outcome, so it must follow from the arguments and the
    state alone.
    """

    code = 111


class BusyError(UnavailableError):
    """Too many calls are waiting; this one was not logged."""

    code = 112
    hint = "Wait until pending calls are answered, then call again"


class LogBoundError(BusyError):
    """The log has grown to its hard mark; the call was not logged."""

    code = 130
    hint = (
        "Call again after the next snapshot; if calls are still refused,"
        " Host.snapshot_status() shows what keeps the log from being trimmed"
    )


class ConflictError(UnavailableError):
    """Other commands changed the partitions each time the effects were computed."""

    code = 113
    hint = "Call again with the same call id, or log the command instead"


class OutcomeUnknownError(UnavailableError):
    """The host failed; the call may have been executed, or may still be."""

    code = 114
    hint = "Repeat the call with the same call id; it is executed once"
    outcome = "unknown"


class EncodingError(InvalidArgumentError):
    """A value cannot be stored in a command or a result."""

    code = 115
    hint = "Use None, bool, int, float, str, bytes, list, dict, Decimal, date or UUID"
    path: str = ""
    """Where in the value it is."""


class ApplicationMismatchError(FormatError):
    """The stored data belongs to another application, or has other partitions."""

    code = 116
    hint = "Open it with the application that made it, or use another directory"


class UnknownProcedureError(InvalidArgumentError):
    """No procedure has that name, or the code that the log names."""

    code = 117
    hint = (
        "Register the procedure; for a command that is in the log, keep "
        "the old function with retired=True"
    )


class CallExpiredError(InvalidArgumentError):
    """The call is so old that its result may be forgotten; it was not executed."""

    code = 118
    hint = "Check in the state whether the call was executed, then make a new call"


class DeterminismError(ProcedureError):
    """A procedure uses something that a replay would not get again."""

    code = 119
    hint = "Take the value from the context or the arguments, or declare effects=True"

    def __init__(
        self,
        message: str = "",
        *,
        procedure: str = "",
        kind: str = "",
        findings: Sequence[Finding] = (),
    ) -> None:
        """Name what was reached for, or all that the lint found."""
        super().__init__(message, procedure=procedure, kind=kind)
        self.findings = tuple(findings)


class DeterminismWarning(UserWarning):
    """A procedure uses something that may differ in a replay."""


class DivergedError(CorruptionError):
    """A command had a different outcome here than the log says."""

    code = 120
    hint = (
        "The partition is stopped. Find what the procedure reads from outside the log,"
        " then restore the partition from a snapshot of a host that agrees"
    )
    position: int = 0
    """Of the command."""
    procedure: str = ""
    component: str = ""
    """The first that differs."""
    partitions: tuple[int, ...] = ()


class ExecutionError(ClosedError):
    """The host stopped, because the disk, memory or a library failed a command."""

    code = 121
    hint = "Fix the cause, then open the host again; acknowledged calls are in the log"
    path: str = ""
    """Directory whose disk failed, if it was one."""


class StateDamagedError(CorruptionError):
    """A database of the state is damaged; log and snapshots are not affected."""

    code = 133
    hint = (
        "Check the disk, then move the state directory away; the next "
        "open rebuilds it from a snapshot and the log"
    )


class SnapshotFailedError(UnavailableError):
    """No snapshot was taken. Nothing was trimmed; older snapshots still exist."""

    code = 131
    hint = "Fix the cause (often a full disk), then take the snapshot again"


class SnapshotDamagedError(CorruptionError):
    """A snapshot does not match its checksums."""

    code = 132
    hint = "Check the disk; if the host still runs, take another snapshot"


class StepBudgetError(ProcedureError):
    """A procedure took more steps than a command may; every host refuses it alike."""

    code = 125
    hint = "Split the work over several calls, or declare effects=True"


class ResizeRefusedError(InvalidArgumentError):
    """The application cannot get that number of partitions; nothing was changed."""

    code = 134
    hint = (
        "Name in row_keys= the column of each table that has the partition key of its"
        " rows, as calls pass it"
    )


class EnvironmentMismatchError(InvalidArgumentError):
    """Commands to execute here were logged under other versions."""

    code = 126
    hint = (
        "Open a host with the environment that logged them and take a snapshot there,"
        " or open with environment='report' and compare outcomes"
    )

    def __init__(
        self, message: str = "", *, differences: Sequence[Difference] = ()
    ) -> None:
        """Name every fact that differs."""
        super().__init__(message)
        self.differences = tuple(differences)


class GiveUp(BaseException):  # noqa: N818, RUF100
    """Raised inside a procedure that takes too long; passes ``except Exception``."""


class GivenUpError(ClosedError):
    """A command was stopped in the middle; the executor cannot go on.

    Whoever feeds it rolls it back, logs an `AbortEntry`, and opens a new executor that
    knows of it. So the command ends in the same way on every host.
    """

    code = 127
    position: int = 0
    """Of the command."""
    reason: str = ""
