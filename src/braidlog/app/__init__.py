"""Applications on the log: procedures whose calls are the log.

| folder | what lives there |
|---|---|
| ``application`` | an application as a program uses it |
| ``serve`` | a host that other processes call |
| ``replay`` | states made again, and audits |
| ``host`` | executing a log in a thread; blocking and asyncio calls |
| ``snapshots`` | when they are taken, their files, restoring, copies for others |
| ``caller`` | calling hosts in other processes |
| ``log`` | the log in a directory or a cluster, as a host needs it |
| ``state`` | the state in SQLite |
| ``execution`` | executing records over any state; pure |
| ``procedure`` | a function and what it declares |
| ``determinism`` | which code a procedure is, and what it may reach; pure |
| ``testing`` | runs an application twice, as differently as can be |

Each imports only what stands below it (``testing`` stands beside ``serve``).
"""

import typing as _typing

from braidlog.app.application import Application
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
    LogBoundError,
    OutcomeUnknownError,
    ProcedureError,
    ResizeRefusedError,
    SnapshotDamagedError,
    SnapshotFailedError,
    StateDamagedError,
    StepBudgetError,
    UnknownProcedureError,
)
from braidlog.app.execution.context import Context
from braidlog.app.execution.entries import CallId
from braidlog.app.host.call_table import PendingCall
from braidlog.app.host.host import AsyncHost, Host
from braidlog.app.log.stop import Stop
from braidlog.app.snapshots.files import Snapshot
from braidlog.app.snapshots.policy import Level, SnapshotSettings
from braidlog.app.snapshots.snapshotter import SnapshotStatus
from braidlog.app.state.keyed import KeyedTable, keyed_table

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
    "KeyedTable",
    "Level",
    "LogBoundError",
    "OutcomeUnknownError",
    "PendingCall",
    "ProcedureError",
    "ResizeRefusedError",
    "Snapshot",
    "SnapshotDamagedError",
    "SnapshotFailedError",
    "SnapshotSettings",
    "SnapshotStatus",
    "StateDamagedError",
    "StepBudgetError",
    "Stop",
    "UnknownProcedureError",
    "connect",
    "connect_async",
    "keyed_table",
]

if _typing.TYPE_CHECKING:
    from braidlog.app.caller.caller import connect, connect_async


def __getattr__(name: str) -> object:
    """Import the callers when they are asked for: they need an extra."""
    if name in ("connect_async", "connect"):
        from braidlog.app.caller import caller

        return getattr(caller, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
