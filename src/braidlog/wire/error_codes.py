"""Which error each code on the wire means: the registry of all errors of the package.

*Theory of operation.* A code says the class, everywhere and for ever. The table gives
the home of each class as text, because most are in layers above this one. A class is
imported when its code arrives, so what a process can decode does not depend on what
it has imported before.

*Invariants.* Every class of the package with a code of its own is in the table, once,
under that code; a class without one goes over the wire as its base. A code is never
given to another class.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from braidlog.errors import LogError

__all__ = ["ERRORS", "error_at", "error_of"]

ERRORS: Final = {
    1: "braidlog.errors:LogError",
    10: "braidlog.errors:UnavailableError",
    11: "braidlog.errors:LockedError",
    12: "braidlog.errors:LogFullError",
    13: "braidlog.errors:DeadlineError",
    14: "braidlog.errors:NotReadyError",
    15: "braidlog.errors:NotPrimaryError",
    16: "braidlog.errors:ConnectionLostError",
    17: "braidlog.errors:QuotaExceededError",
    20: "braidlog.errors:TrimmedError",
    21: "braidlog.errors:BeyondEndError",
    22: "braidlog.errors:SealedError",
    23: "braidlog.errors:LostRecordsError",
    24: "braidlog.errors:ConflictError",
    30: "braidlog.errors:ClosedError",
    31: "braidlog.errors:StoreFailedError",
    32: "braidlog.errors:FencedError",
    33: "braidlog.errors:NodeIdentityError",
    40: "braidlog.errors:InvalidArgumentError",
    41: "braidlog.errors:TooLargeError",
    42: "braidlog.errors:NotFoundError",
    43: "braidlog.errors:AlreadyExistsError",
    44: "braidlog.errors:ReadOnlyError",
    45: "braidlog.errors:SequenceGapError",
    46: "braidlog.errors:SequenceExpiredError",
    47: "braidlog.errors:UnauthorizedError",
    48: "braidlog.errors:UnknownProducerError",
    49: "braidlog.errors:MetadataFullError",
    50: "braidlog.errors:FormatError",
    51: "braidlog.errors:ForeignFormatError",
    52: "braidlog.errors:NewerFormatError",
    55: "braidlog.errors:PositionError",
    56: "braidlog.errors:LogInUseError",
    57: "braidlog.errors:TableCursorError",
    58: "braidlog.errors:TablePinError",
    60: "braidlog.errors:CorruptionError",
    61: "braidlog.errors:MissingFileError",
    62: "braidlog.client.read.merge:MergeGapError",
    63: "braidlog.node.errors:DamagedNodeError",
    64: "braidlog.errors:ArchiveDamagedError",
    65: "braidlog.errors:NotSharedError",
    66: "braidlog.errors:InternalError",
    67: "braidlog.errors:BackupDamagedError",
    68: "braidlog.errors:OlderNodesError",
    70: "braidlog.raft.errors:NotLeaderError",
    71: "braidlog.raft.errors:TailFullError",
    72: "braidlog.raft.errors:ReadsFullError",
    73: "braidlog.raft.errors:TransferringError",
    74: "braidlog.raft.errors:ChangeRefusedError",
    75: "braidlog.raft.errors:RemovedNodeError",
    76: "braidlog.raft.errors:RaftInvariantError",
    77: "braidlog.raft.errors:MembershipError",
    78: "braidlog.raft.errors:RaftMessageError",
    79: "braidlog.metarepo.machine.errors:RepositoryInvariantError",
    80: "braidlog.errors:ProtocolError",
    81: "braidlog.errors:LocalProtocolError",
    82: "braidlog.errors:RemoteProtocolError",
    83: "braidlog.errors:ForeignPeerError",
    90: "braidlog.logstream.errors:ReplicaInvariantError",
    92: "braidlog.faultlog.errors:ForkedError",
    93: "braidlog.node.errors:LeftBehindError",
    94: "braidlog.node.errors:UnfinishedRescueError",
    110: "braidlog.app.errors:ProcedureError",
    111: "braidlog.app.errors:Abort",
    112: "braidlog.app.errors:BusyError",
    113: "braidlog.app.errors:ConflictError",
    114: "braidlog.app.errors:OutcomeUnknownError",
    115: "braidlog.app.errors:EncodingError",
    116: "braidlog.app.errors:ApplicationMismatchError",
    117: "braidlog.app.errors:UnknownProcedureError",
    118: "braidlog.app.errors:CallExpiredError",
    119: "braidlog.app.errors:DeterminismError",
    120: "braidlog.app.errors:DivergedError",
    121: "braidlog.app.errors:ExecutionError",
    125: "braidlog.app.errors:StepBudgetError",
    126: "braidlog.app.errors:EnvironmentMismatchError",
    127: "braidlog.app.errors:GivenUpError",
    130: "braidlog.app.errors:LogBoundError",
    131: "braidlog.app.errors:SnapshotFailedError",
    132: "braidlog.app.errors:SnapshotDamagedError",
    134: "braidlog.app.errors:ResizeRefusedError",
    133: "braidlog.app.errors:StateDamagedError",
    140: "braidlog.spark.source.payloads:MalformedPayloadError",
    141: "braidlog.spark.sink.ledger.lost:StagedFileError",
    142: "braidlog.spark.sink.ledger.lost:LostFilesError",
}
"""Code -> module and name of the class."""

_CODES: Final = {home: code for code, home in ERRORS.items()}


def error_of(code: int) -> type[LogError] | None:
    """Return the class of a code.

    None if this version does not know the code, or if the package that the class
    belongs to needs an extra that is not installed here.
    """
    home = ERRORS.get(code)
    if home is None:
        return None
    module, _, name = home.partition(":")
    try:
        found: type[LogError] = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        # Without the extra. A module of our own that is missing is a bug, and raised.
        if (error.name or "").partition(".")[0] == "braidlog":
            raise
        return None
    return found


def error_at(module: str, name: str) -> type[LogError] | None:
    """Return the class that a traceback names so; None as for `error_of`."""
    code = _CODES.get(f"{module}:{name}")
    return None if code is None else error_of(code)
