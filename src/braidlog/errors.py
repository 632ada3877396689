"""Errors of the log, split by what the caller does next.

    LogError
    ├─ UnavailableError        wait or fix the system, then retry the same call
    │  ├─ LockedError          another process is the writer
    │  ├─ LogFullError         trim, then retry
    │  ├─ NotReadyError        the replica or group is starting: retry soon
    │  ├─ NotPrimaryError      send it to ``primary``
    │  ├─ ConnectionLostError  connect again, then retry
    │  ├─ QuotaExceededError   retry after ``retry_after_ms``
    │  └─ DeadlineError        the deadline passed; the call may still take effect
    ├─ TrimmedError            continue from ``first``
    ├─ LostRecordsError        continue from ``end``: a repair could not save them
    ├─ BeyondEndError          wait until ``next`` is written
    ├─ ConflictError           read what was appended meanwhile, and decide again
    ├─ SealedError             refresh the metadata, then retry
    ├─ ClosedError             open again
    │  └─ StoreFailedError     a write or sync failed: open again, then look
    ├─ FencedError             a newer epoch is in charge: stop
    ├─ NodeIdentityError       another directory has the node's id: an operator decides
    ├─ InvalidArgumentError    fix the call; nothing was changed
    │  ├─ TooLargeError
    │  │  └─ MetadataFullError delete logs or cursors, then retry
    │  ├─ PositionError        positions begin at 1
    │  ├─ NotFoundError
    │  │  └─ NotSharedError    let all processes see the same storage
    │  ├─ AlreadyExistsError
    │  ├─ ReadOnlyError
    │  ├─ LogInUseError        drop the tables first
    │  ├─ TableCursorError     leave this cursor to its table
    │  ├─ TablePinError        let the table store the records first
    │  ├─ UnauthorizedError    use another token
    │  ├─ OlderNodesError      upgrade the ``nodes``, then retry
    │  ├─ SequenceGapError     send ``expected`` next
    │  │  └─ UnknownProducerError look into the log, then begin the next epoch
    │  └─ SequenceExpiredError the record was stored; its position is forgotten
    ├─ FormatError             the files are not for this build
    │  ├─ ForeignFormatError
    │  └─ NewerFormatError
    ├─ ProtocolError           the other side speaks something else
    │  ├─ LocalProtocolError   this side broke the rules
    │  └─ RemoteProtocolError  the other side did; the connection is closed
    │     └─ ForeignPeerError  it speaks TLS, HTTP, SSH: change the address or setting
    ├─ InternalError           a bug: the node logged it, and serves the others
    └─ CorruptionError         an operator has to look at ``path``, ``offset``
       ├─ MissingFileError
       ├─ ArchiveDamagedError  put the file of the archive back from a copy
       └─ BackupDamagedError   use another backup, or put the file back from a copy

Every class has four attributes, which survive pickling:

- ``retryable``: whether the same call may succeed later without a change.
- ``outcome`` of a failed append. "not_stored": the record is not in the log and never
  will be; append it again if you still want it. "unknown": it may be in the log; repeat
  it with the same producer and sequence to find out. "stored": it was stored once;
  continue with the next sequence.
- ``code``: a stable number for the wire, never reused.
- ``hint``: what to do next; the last sentence of the message.
"""
# One file: the tree of errors is read as a whole.

from __future__ import annotations

from dataclasses import dataclass, field
from typing import (
    ClassVar,
    Final,
    Literal,
    Self,
    TypeAlias,
    dataclass_transform,
)

__all__ = [
    "AlreadyExistsError",
    "ArchiveDamagedError",
    "BackupDamagedError",
    "BeyondEndError",
    "ClosedError",
    "ConflictError",
    "ConnectionLostError",
    "CorruptionError",
    "DeadlineError",
    "FencedError",
    "ForeignFormatError",
    "ForeignPeerError",
    "FormatError",
    "InternalError",
    "InvalidArgumentError",
    "LocalProtocolError",
    "LockedError",
    "LogError",
    "LogFullError",
    "LogInUseError",
    "LostRecordsError",
    "MetadataFullError",
    "MissingFileError",
    "NewerFormatError",
    "NodeIdentityError",
    "NotFoundError",
    "NotPrimaryError",
    "NotReadyError",
    "NotSharedError",
    "OlderNodesError",
    "PositionError",
    "ProtocolError",
    "QuotaExceededError",
    "ReadOnlyError",
    "RemoteProtocolError",
    "SealedError",
    "SequenceExpiredError",
    "SequenceGapError",
    "StoreFailedError",
    "TableCursorError",
    "TablePinError",
    "TooLargeError",
    "TrimmedError",
    "UnauthorizedError",
    "UnavailableError",
    "UnknownProducerError",
]


_Outcome: TypeAlias = Literal["not_stored", "unknown", "stored"]
_NOT_STORED: Final[_Outcome] = "not_stored"


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class _Declared(Exception):
    """What a class declares with a type are keyword arguments of its constructor."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if vars(cls).get("__annotations__"):
            dataclass(kw_only=True, eq=False, repr=False)(cls)


class LogError(_Declared):
    """Root of every error that the log raises on purpose."""

    retryable: ClassVar[bool] = False
    code: ClassVar[int] = 1
    hint = ""
    outcome = _NOT_STORED

    # Everything has a default, because unpickling calls the class with the message
    # alone and then restores the attributes.
    message: str = field(default="", kw_only=False)
    """What happened; the class adds what to do next."""

    def __post_init__(self) -> None:
        """Let exceptions have the message as well."""
        super().__init__(self.message)

    def __str__(self) -> str:
        """Return the message followed by the hint."""
        between = " " if self.message.endswith("?") else ". "
        return between.join(part for part in (self.message, self.hint) if part)

    def advising(self, hint: str) -> Self:
        """Return this error with its own ``hint`` in place of that of its class."""
        self.hint = hint
        return self


class UnavailableError(LogError):
    """The system refused: a full disk, missing permission, a file that is not there."""

    retryable = True
    code = 10
    hint = "Fix what the system reports, then retry"
    path: str = ""
    """The file that the system refused, if there is one."""


class LockedError(UnavailableError):
    """Another process, or this one, has the directory open for writing."""

    code = 11
    hint = "Stop the other writer, or open with read_only=True"


class LogFullError(UnavailableError):
    """The log reached its maximum size; nothing was written.

    One exception: `Log.append_many` and `Log.submit_many` place more than 8 MiB (or
    than a segment, or ``unsynced_bytes_max``, if that is less) in pieces, and Arrow
    data is placed by its record batches. If the log becomes full in the middle, the
    pieces before it stay, and a note of the error (``__notes__``) says how many records
    from which position on.
    """

    code = 12
    hint = "Trim a log or open with a larger wal_bytes_max, then retry"
    used: int = 0
    """Bytes in use."""
    limit: int = 0
    """The bound."""


class DeadlineError(UnavailableError, TimeoutError):  # noqa: N801, RUF100
    """The deadline passed; an append may still become durable."""

    code = 13
    hint = "Wait longer, or repeat the append with the same producer and sequence"
    outcome = "unknown"


class NotReadyError(UnavailableError):
    """The replica, or the group that decides, is not serving yet."""

    code = 14
    hint = "Retry in a moment"


class NotPrimaryError(UnavailableError):
    """Appends of the stream go to another node."""

    code = 15
    hint = "Refresh the metadata, then send it to the primary"
    primary: int = 0
    """The primary that this node knows; 0 if none."""
    epoch: int = 0
    """Its epoch."""


class ConnectionLostError(UnavailableError, ConnectionError):
    """The connection broke before the answer came."""

    code = 16
    hint = "Connect again, and repeat appends with the same producer and sequence"
    outcome = "unknown"


class QuotaExceededError(UnavailableError):
    """The token has used up a quota of the node; nothing was done.

    Clients retry until the deadline of the call, and then raise this.
    """

    code = 17
    hint = "Retry later, or have the operator raise the quota of the token"
    quota: str = ""
    """Which one: ``bytes_per_s``, ``requests_per_s`` or ``connections``."""
    limit: int = 0
    """The quota."""
    retry_after_ms: int = 0
    """Milliseconds after which a retry may succeed."""

    def repeated(self, message: str) -> QuotaExceededError:
        """Return the same refusal with the words of who gave up retrying."""
        return QuotaExceededError(
            message,
            quota=self.quota,
            limit=self.limit,
            retry_after_ms=self.retry_after_ms,
        )


class TrimmedError(LogError, IndexError):
    """The position was trimmed away."""

    code = 20
    hint = "Read from the first position instead"
    first: int = 0
    """First position that can still be read."""


class LostRecordsError(LogError, IndexError):
    """The records are lost: a repair could not save them, and declared it.

    Their positions are not given to others. What comes before was read.
    """

    code = 23
    hint = "Read on from `end`, or with skip_holes=True"
    first: int = 0
    """First lost position."""
    end: int = 0
    """Position behind the last of them."""


class ConflictError(LogError):
    """The log does not end where the caller expects; nothing was appended."""

    code = 24
    hint = "Read what was appended meanwhile, and decide again"
    expected: int = 0
    """Position that the caller expected to be the next."""
    end: int = 0
    """Next position of the log."""


class BeyondEndError(LogError, IndexError):
    """The position is not written yet."""

    retryable = True
    code = 21
    hint = "`Log.wait` and `Log.subscribe` wait for it"
    next: int = 0
    """Position that the next record will get."""


class SealedError(LogError):
    """The stream takes no appends in this epoch."""

    retryable = True
    code = 22
    hint = "Refresh the metadata, then repeat with the same producer and sequence"

    def __init__(
        self, message: str = "", *, epoch: int = 0, unknown: bool = False
    ) -> None:
        """Give the epoch that ended, and whether the append may have been committed."""
        super().__init__(message)
        self.epoch = epoch
        self.outcome = "unknown" if unknown else "not_stored"


class ClosedError(LogError):
    """The handle was closed."""

    code = 30
    hint = "Open the directory again, or connect again"


class StoreFailedError(ClosedError):
    """A write or sync failed, so the store takes nothing more until it is reopened."""

    code = 31
    hint = "Open the directory again; acknowledged records are safe"


class FencedError(LogError):
    """The epoch of the caller is older than the current one."""

    code = 32
    hint = "Stop: a newer one took over"
    given: int = 0
    """Epoch of the call."""
    current: int = 0
    """Epoch in force."""
    owner: str = ""
    """Writer that owns the log now, if that is why."""


class NodeIdentityError(LogError):
    """A node has the id of another directory: nothing it says counts."""

    code = 33
    hint = (
        "Start the node with the directory that has this identity. If that "
        "is lost for good, stop the node and run `braidlog node readmit` "
        "with its id"
    )
    node: int = 0
    given: str = ""
    """Identity that the node shows."""
    known: str = ""
    """Identity that it is known by."""


class InvalidArgumentError(LogError, ValueError):
    """The call makes no sense; nothing was changed."""

    code = 40


class TooLargeError(InvalidArgumentError):
    """Something is over its limit; nothing was written."""

    code = 41
    hint = "Split it, or store it elsewhere and append a reference"
    size: int = 0
    limit: int = 0


class MetadataFullError(TooLargeError):
    """What a cluster knows of its logs and cursors has no room for more."""

    code = 49
    hint = "Delete unused logs or cursors, then retry"


class PositionError(InvalidArgumentError, IndexError):
    """No log has such a position, not even one that was trimmed."""

    code = 55
    hint = "Positions begin at 1; `log[-1]` is the last record"


class NotFoundError(InvalidArgumentError):
    """Nothing has that name."""

    code = 42
    hint = "Check the name or path"


class NotSharedError(NotFoundError):
    """A process does not see a file or directory that another one of its job sees.

    It runs on another machine, or in a container, and its path leads elsewhere.
    """

    code = 65
    hint = (
        "Let the driver and every worker mount the same storage under this path; a log "
        "of a cluster (`cluster=`) is read and written without a shared path"
    )
    path: str = ""
    worker: str = ""
    """Machine of the worker."""


class AlreadyExistsError(InvalidArgumentError):
    """Something has that name already."""

    code = 43
    hint = "Choose another name, or pass exist_ok=True"


class ReadOnlyError(InvalidArgumentError):
    """The directory was opened read-only."""

    code = 44
    hint = "Open it without read_only=True"


class OlderNodesError(InvalidArgumentError):
    """A node of the cluster is of a version that cannot store this; nothing was."""

    code = 68
    hint = (
        "Upgrade those nodes, or remove them from the cluster, then append it again; "
        "records without null values are not affected"
    )
    nodes: tuple[int, ...] = ()


class LogInUseError(InvalidArgumentError):
    """Tables follow the log, so it cannot be deleted."""

    code = 56
    hint = "Drop the tables first"
    tables: tuple[str, ...] = ()


class TableCursorError(InvalidArgumentError):
    """The cursor belongs to a table, which moves it by itself."""

    code = 57
    hint = "Use a cursor of your own; dropping the table deletes this one"
    table: str = ""


class TablePinError(InvalidArgumentError):
    """A table still needs the records: they are not in its files yet."""

    code = 58
    hint = "Call `flush` of the table, or drop it, then trim again"
    table: str = ""
    position: int = 0


class SequenceGapError(InvalidArgumentError):
    """The producer skipped a sequence number; nothing was written."""

    code = 45
    hint = "Send the expected sequence first"
    expected: int = 0
    """Sequence that must come next."""


class UnknownProducerError(SequenceGapError):
    """The log knows nothing of a producer that goes on, or repeats an append.

    So many others stored since that it was forgotten, or it never stored here. What it
    sends is refused, as it could be stored twice. ``outcome`` says whether an earlier
    attempt may have stored it.
    """

    code = 48
    hint = (
        "Read the log to see which records are stored, then continue in "
        "the producer's next epoch"
    )


class SequenceExpiredError(InvalidArgumentError):
    """The sequence was stored once, so long ago that its position is no longer known.

    It may have been trimmed since.
    """

    code = 46
    outcome = "stored"
    hint = "The record is stored: do not send it again"
    first: int = 0
    """Oldest sequence whose position is known."""


class UnauthorizedError(InvalidArgumentError, PermissionError):
    """The token or the certificate does not allow this, or there is none."""

    code = 47
    hint = (
        "Use a token whose role allows this, or trust the authority of the certificate"
    )


class FormatError(LogError):
    """The files are not what this build reads and writes."""

    code = 50
    path: str = ""


class ForeignFormatError(FormatError):
    """The file belongs to another program."""

    code = 51
    hint = (
        "Check the path. If it is right, the file is damaged: `braidlog "
        "verify` shows how"
    )


class NewerFormatError(FormatError):
    """A newer version wrote the file."""

    code = 52
    hint = "Upgrade braidlog to open it"
    found: int = 0
    """Version found."""
    supported: int = 0
    """Newest version that this build reads."""


class ProtocolError(LogError):
    """What came over a connection is not the protocol."""

    code = 80
    hint = "Check that both sides are Braidlog of compatible versions"


class LocalProtocolError(ProtocolError):
    """This side tried to send what the protocol forbids; nothing was sent."""

    code = 81
    hint = "This is a bug in the calling program"


class RemoteProtocolError(ProtocolError):
    """The other side sent what the protocol forbids; the connection is closed."""

    code = 82


class ForeignPeerError(RemoteProtocolError):
    """Something else than a node listens there, or one side alone uses TLS."""

    code = 83
    hint = (
        "Check the address, and whether both sides use TLS: `ssl=` of a client, "
        "[security] certificate of a node"
    )
    speaks: str = ""
    """TLS, HTTP, SSH, or nothing that is known."""


class InternalError(LogError):
    """The other side met a bug while it served this request; it serves the others."""

    code = 66
    hint = "The log of the node has the traceback: please report it"
    outcome = "unknown"


class CorruptionError(LogError):
    """Durable bytes are not what was written; nothing was cut."""

    code = 60
    hint = "`braidlog repair` shows what would be lost and works on a copy"
    path: str = ""
    offset: int = 0
    """First byte that cannot be trusted."""


class MissingFileError(CorruptionError):
    """A file that the manifest lists is gone or too short."""

    code = 61
    hint = "Restore the file, or let `braidlog repair` show what would be lost"


class ArchiveDamagedError(CorruptionError):
    """A file of an archive is gone, or is not what was archived."""

    code = 64
    hint = (
        "Restore the file from a copy; the log may still have records that "
        "are not trimmed"
    )


class BackupDamagedError(CorruptionError):
    """A file of a backup is gone, or is not what was written."""

    code = 67
    hint = (
        "Use another backup, or put the file back from a copy; "
        "`braidlog backup verify` names everything that is damaged"
    )
