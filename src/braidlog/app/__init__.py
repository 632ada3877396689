"""Applications on the log: procedures whose calls are the log.

| module | what lives there |
|---|---|
| ``application``, ``procedure`` | registration: procedures, flags, catalog |
| ``content``, ``syntax``, ``pieces`` | which code a procedure is |
| ``lint``, ``syntaxrules``, ``setrules``, ``hazards`` | what its source shows |
| ``guard``, ``standins`` | how it runs: what it can reach |
| ``draws`` | its random numbers |
| ``fingerprint`` | versions and mathematics of the machine |
| ``watchdog`` | stops commands that take too long |
| ``testing`` | runs an application twice, as differently as can be |
| ``codec``, ``entries`` | deterministic CBOR; the kinds of records |
| ``executor``, ``book``, ``shared``, ``running`` | executing the log over any state |
| ``context``, ``outcome``, ``answers`` | what a procedure sees, and what it gives |
| ``state`` | what the executor needs of a state |
| ``sqlite``, ``database``, ``changes``, ``sqlrules`` | that state in SQLite |
| ``source`` | the log as a host needs it |
| ``host``, ``waiting``, ``calls`` | a host over a log; blocking and async calls |
| ``replay``, ``survey``, ``target``, ``absent`` | states made again, or parts of them |
| ``inputs``, ``rawinput``, ``starts`` | what replay reads: logs, directories, snapshots |
| ``audit`` | a live state beside a replay |
"""

from braidlog.app.application import Application
from braidlog.app.calls import AsyncHost, Host
from braidlog.app.context import Context
from braidlog.app.entries import CallId
from braidlog.app.errors import (
    Abort,
    ApplicationMismatchError,
    BusyError,
    CallExpiredError,
    ConflictError,
    DeterminismError,
    DeterminismWarning,
    DivergedError,
    EncodingError,
    EnvironmentMismatchError,
    ExecutionError,
    OutcomeUnknownError,
    ProcedureError,
    StepBudgetError,
    UnknownProcedureError,
)
from braidlog.app.waiting import PendingCall

__all__ = [
    "Abort",
    "Application",
    "ApplicationMismatchError",
    "AsyncHost",
    "BusyError",
    "CallExpiredError",
    "CallId",
    "ConflictError",
    "Context",
    "DeterminismError",
    "DeterminismWarning",
    "DivergedError",
    "EncodingError",
    "EnvironmentMismatchError",
    "ExecutionError",
    "Host",
    "OutcomeUnknownError",
    "PendingCall",
    "ProcedureError",
    "StepBudgetError",
    "UnknownProcedureError",
]
