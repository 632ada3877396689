"""What callers and hosts of applications say to one another.

Part of `braidlog.wire.messages`, under the same rules.
"""

from __future__ import annotations

from braidlog.wire.base import Message, Number

__all__ = [
    "AppStatus",
    "Call",
    "CallResult",
    "FetchSnapshot",
    "GetAppStatus",
    "Promote",
    "Resize",
    "SnapshotPart",
    "SnapshotProgress",
    "TakeSnapshot",
]


class Call(Message, frozen=True, array_like=True):
    """Caller to a host: call a procedure; the payload is [arguments, {name: value}].

    Arguments are in deterministic CBOR. What is not logged (read-only procedures) sees
    all that was committed when the call came, unless it may be staler.
    """

    KIND = 48
    call: bytes
    """The call id, 16 bytes: a repeated call is executed once."""
    procedure: str
    timeout_ms: Number = 0
    """How long a read may wait for the log to be applied; 0: the host decides."""
    stale_us: Number = 0
    """Answer from a state that was the newest so long ago; 0: none that is stale."""
    behind: Number = 0
    """Answer from a state that is so many positions behind."""


class CallResult(Message, frozen=True, array_like=True):
    """Answer: the outcome, with the encoded result or error in the payload."""

    KIND = 49
    position: Number
    """Of the command that gave the outcome; 0 if there is none in the log."""
    status: Number
    """A `braidlog.app.execution.outcome.Status`."""
    procedure: str
    applied: Number
    """How far the host is: what is called next may be issued behind it."""


class GetAppStatus(Message, frozen=True, array_like=True):
    """Ask a host how it is; `hashes` also for the state hashes, which reads all."""

    KIND = 50
    hashes: bool = False


class AppStatus(Message, frozen=True, array_like=True):
    """Answer: one host at one moment."""

    KIND = 51
    application: str
    partitions: Number
    host: bytes
    """Identity of the host, 16 bytes."""
    active: bool
    epoch: Number
    """Epoch of the active host, as far as this one has read."""
    active_host: bytes
    ready: bool
    why: str
    """What is missing for being ready; empty if nothing is."""
    applied: Number
    """Everything in the log up to here is executed and committed."""
    end: Number
    """First position that is not in the log, as far as the host knows."""
    first: Number
    """First position that the log still has."""
    calls: Number
    """Calls that were answered since the start."""
    waiting: Number
    """Calls that have no answer yet."""
    connections: Number
    executed: Number
    """Records that were applied since the start."""
    busy_us: Number
    """Time that took."""
    stopped: tuple[Number, ...]
    """Partitions that diverged from what the log says."""
    mismatches: Number
    """Outcomes that differed from those in the log."""
    kept: Number
    """Position that the state of this host is durable up to; its cursor."""
    snapshot: Number
    """Position of the newest snapshot; 0 if there is none."""
    snapshot_us: Number
    """When it was made, microseconds since the Unix epoch."""
    hashes: tuple[bytes, ...] = ()
    """State hash of each partition at `applied`, if they were asked for."""
    level: str = ""
    """How far the log has grown: open, snapshot, full; empty if it takes none."""
    since_bytes: Number = 0
    """Bytes of log since the newest snapshot."""
    since_us: Number = 0
    """Estimated time to replay them."""
    failures: Number = 0
    """Snapshots that failed since the last that did not."""
    alarms: tuple[str, ...] = ()
    """What an operator has to look at."""


class Promote(Message, frozen=True, array_like=True):
    """Make a host the active one; it is when the answer comes."""

    KIND = 52


class FetchSnapshot(Message, frozen=True, array_like=True):
    """Ask for a part of a copy of the state of a host.

    The first request has `copy` 0 and gets the first bytes of the first partition of a
    copy made for it. The copy goes when another one is asked for, or after a while.
    """

    KIND = 53
    copy: Number = 0
    partition: Number = 0
    offset: Number = 0
    bytes_max: Number = 0


class SnapshotPart(Message, frozen=True, array_like=True):
    """Answer: bytes of a file of the copy in the payload; empty behind its end."""

    KIND = 54
    copy: Number
    position: Number
    """All partitions are as of this position."""
    sizes: tuple[Number, ...]
    """Bytes of each partition's file."""
    hashes: tuple[bytes, ...]
    """State hash of each partition."""


class TakeSnapshot(Message, frozen=True, array_like=True):
    """Have a host take a snapshot of its own, or ask how far it is.

    With `job` 0 it begins one, or joins one that was asked for. The answer comes when
    the snapshot is there, or after a moment: then it is asked again, with the job.
    """

    KIND = 55
    job: Number = 0


class SnapshotProgress(Message, frozen=True, array_like=True):
    """Answer: how far a snapshot is. One that fails is answered with its error."""

    KIND = 56
    job: Number
    done: Number
    """Bytes that were copied, and bytes that were read back."""
    total: Number
    """Bytes to copy and to read back; 0 before they are known."""
    number: Number = 0
    """Of the snapshot in the directory of the host; 0 before it is there."""
    position: Number = 0
    bytes: Number = 0
    took_us: Number = 0
    first: Number = 0
    """First position of the log after the trim that followed."""


class Resize(Message, frozen=True, array_like=True):
    """Have a host give the application another number of partitions, on all hosts.

    The answer comes when the host has executed it, or after a moment as an error of a
    deadline: then it is asked again, which is harmless.
    """

    KIND = 57
    partitions: Number
