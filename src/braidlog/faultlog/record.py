"""One record of a fault log and its 4 KiB slot.

    0     u32   magic         "BRFL"
    4     u32   format        1
    8     u64   serial        number of the record in its ring, from 1
    16    u64   node          whose ring it is
    24    u64   epoch
    32    u64   sequence
    40    u8    flags         1: viable
    41    u8    reserved
    42    u16   cluster_bytes
    44    u16   members_count
    46    u16   failed_count
    48    u8[32] previous     digest of the record before, zeros if there is none
    80          members, failed: u64 each; the name of the cluster in UTF-8; zeros
    4064  u8[32] digest       BLAKE2b-256 of bytes 0..4064

The digest is checksum and link at once: the chain needs a hash that nobody meets by
chance, and one more checksum would say nothing that it does not.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from braidlog.errors import (
    CorruptionError,
    ForeignFormatError,
    InvalidArgumentError,
    NewerFormatError,
    TooLargeError,
)
from braidlog.faultlog.configuration import MEMBERS_MAX, Configuration

__all__ = [
    "CLUSTER_BYTES_MAX",
    "DIGEST_BYTES",
    "FORMAT",
    "NO_DIGEST",
    "SLOT_BYTES",
    "FaultRecord",
    "decode",
    "digest_of",
    "encode",
]

SLOT_BYTES = 4096
DIGEST_BYTES = 32
FORMAT = 1
CLUSTER_BYTES_MAX = 255
NO_DIGEST = bytes(DIGEST_BYTES)

_MAGIC = int.from_bytes(b"BRFL", "little")
_HEAD = struct.Struct("<IIQQQQBBHHH32s")
_BODY = SLOT_BYTES - DIGEST_BYTES
_VIABLE = 1


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """What one node knew, durably, before it acted."""

    cluster: str
    node: int
    configuration: Configuration
    viable: bool
    """Whether the log of this node has everything that was acknowledged to it."""
    serial: int = 1
    previous: bytes = NO_DIGEST

    def __post_init__(self) -> None:
        """Refuse what no node can say.

        Raises:
            TooLargeError: The name of the cluster is too long.
            InvalidArgumentError: The node is no member, or calls itself viable in a
                configuration that lists it.
        """
        size = len(self.cluster.encode(errors="surrogatepass"))
        if size > CLUSTER_BYTES_MAX:
            msg = f"a cluster name of {size} bytes is too long, {CLUSTER_BYTES_MAX} max"
            raise TooLargeError(msg, size=size, limit=CLUSTER_BYTES_MAX)
        if not self.cluster or not self.cluster.isprintable():
            raise InvalidArgumentError(f"{self.cluster!r} is no name of a cluster")
        if self.node not in self.configuration.members:
            msg = f"node {self.node} is no member in {self.configuration.members}"
            raise InvalidArgumentError(msg)
        if self.viable and self.node in self.configuration.failed:
            msg = f"node {self.node} is listed as failed: its log is not viable"
            raise InvalidArgumentError(msg)
        if self.serial < 1 or len(self.previous) != DIGEST_BYTES:
            raise InvalidArgumentError(f"record {self.serial} has no place in a ring")

    @property
    def number(self) -> tuple[int, int]:
        """Return epoch and sequence of the configuration."""
        return self.configuration.number

    def same(self, configuration: Configuration, viable: bool) -> bool:
        """Tell whether it says just this."""
        return self.configuration == configuration and self.viable == viable


def encode(record: FaultRecord) -> bytes:
    """Return the slot of a record."""
    configuration = record.configuration
    cluster = record.cluster.encode()
    nodes = (*configuration.members, *configuration.failed)
    head = _HEAD.pack(
        _MAGIC,
        FORMAT,
        record.serial,
        record.node,
        configuration.epoch,
        configuration.sequence,
        _VIABLE if record.viable else 0,
        0,
        len(cluster),
        len(configuration.members),
        len(configuration.failed),
        record.previous,
    )
    body = (head + struct.pack(f"<{len(nodes)}Q", *nodes) + cluster).ljust(_BODY, b"\0")
    return body + _digest(body)


def digest_of(record: FaultRecord) -> bytes:
    """Return the digest under which the next record names this one."""
    return encode(record)[_BODY:]


def decode(slot: bytes, *, path: str = "", offset: int = 0) -> FaultRecord:
    """Return the record of a slot; `path` and `offset` are for the message.

    Raises:
        ForeignFormatError: The slot belongs to something else.
        NewerFormatError: A newer version wrote it.
        CorruptionError: It is not what was written.
    """
    if len(slot) != SLOT_BYTES:
        msg = f"a slot has {SLOT_BYTES} bytes, not {len(slot)}"
        raise CorruptionError(msg, path=path, offset=offset)
    # Before magic and version: a flipped bit in them is damage, not another format.
    if _digest(slot[:_BODY]) != slot[_BODY:]:
        msg = f"the digest of the record at {offset} does not match"
        raise CorruptionError(msg, path=path, offset=offset)
    fields = _HEAD.unpack_from(slot)
    if fields[0] != _MAGIC:
        raise ForeignFormatError("this is no fault log", path=path)
    if fields[1] > FORMAT:
        msg = f"the fault log has format {fields[1]}, this build reads {FORMAT}"
        raise NewerFormatError(msg, path=path, found=fields[1], supported=FORMAT)
    try:
        record = _record(slot, fields[2:])
    except (InvalidArgumentError, UnicodeDecodeError) as error:
        msg = f"the record at {offset} cannot be: {error}"
        raise CorruptionError(msg, path=path, offset=offset) from None
    # One record has one encoding: no bit may stand where nothing was written.
    if encode(record) != slot:
        msg = f"the record at {offset} has bytes that mean nothing"
        raise CorruptionError(msg, path=path, offset=offset)
    return record


def _record(slot: bytes, fields: tuple[int, ...]) -> FaultRecord:
    serial, node, epoch, sequence, flags, _, cluster_bytes, members, failed = fields[:9]
    if members > MEMBERS_MAX or failed > members or cluster_bytes > CLUSTER_BYTES_MAX:
        raise InvalidArgumentError("it counts more than a slot holds")
    nodes = struct.unpack_from(f"<{members + failed}Q", slot, _HEAD.size)
    at = _HEAD.size + 8 * len(nodes)
    return FaultRecord(
        cluster=slot[at : at + cluster_bytes].decode(),
        node=node,
        configuration=Configuration(epoch, sequence, nodes[:members], nodes[members:]),
        viable=bool(flags & _VIABLE),
        serial=serial,
        previous=slot[48:80],
    )


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()
