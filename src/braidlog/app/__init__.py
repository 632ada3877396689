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
| ``looking`` | databases that are only looked at |
| ``marks`` | when snapshots are asked for, and when calls must wait |
| ``snapshots``, ``snapshotfiles``, ``restoring`` | snapshots and trimming |
| ``syncing``, ``breakage`` | making files durable, and what a disk does to them |
| ``source``, ``record`` | the log, and a record of it, as a host needs them |
| ``host``, ``waiting``, ``calls`` | a host over a log; blocking and async calls |
| ``effects`` | effect-logged calls of a host |
| ``stopping`` | ending a host that is still being opened |
| ``clustered``, ``hosting``, ``keeping``, ``copies`` | a host over a log of a cluster |
| ``server``, ``process``, ``status``, ``metrics`` | a host that others call |
| ``remote`` | calling an application whose hosts are elsewhere |
| ``replay``, ``replayed``, ``survey`` | states made again, or parts of them |
| ``target``, ``absent`` | where they are made |
| ``inputs``, ``rawinput``, ``starts`` | what replay reads: logs, snapshots |
| ``audit`` | a live state beside a replay |
"""

import typing as _typing

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
    LogBoundError,
    OutcomeUnknownError,
    ProcedureError,
    SnapshotDamagedError,
    SnapshotFailedError,
    StateDamagedError,
    StepBudgetError,
    UnknownProcedureError,
)
from braidlog.app.marks import Level, SnapshotSettings
from braidlog.app.snapshotfiles import Snapshot
from braidlog.app.snapshots import SnapshotStatus
from braidlog.app.stopping import Stop
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
    "Level",
    "LogBoundError",
    "OutcomeUnknownError",
    "PendingCall",
    "ProcedureError",
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
]

if _typing.TYPE_CHECKING:
    from braidlog.app.remote import connect, connect_async


def __getattr__(name: str) -> object:
    """Import the callers when they are asked for: they need an extra."""
    if name in ("connect_async", "connect"):
        from braidlog.app import remote

        return getattr(remote, name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
