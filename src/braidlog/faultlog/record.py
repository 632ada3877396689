"""One record of a fault log and its 4 KiB slot.

    0     u32   magic         "BRFL"
    4     u32   format        1; 2 if a rescue put anything at 4007
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
    4007  u8[25] lost         a bit for each member that was given up, lowest first
    4032  u8[32] state        BLAKE2b-256 of what the rescue carried over, or zeros
    4064  u8[32] digest       BLAKE2b-256 of bytes 0..4064

The digest is checksum and link at once: the chain needs a hash that nobody meets by
chance, and one more checksum would say nothing that it does not.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, replace

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
FORMAT = 2
_PLAIN = 1
"""Format of all records but the first one after a rescue."""
CLUSTER_BYTES_MAX = 255
NO_DIGEST = bytes(DIGEST_BYTES)

_MAGIC = int.from_bytes(b"BRFL", "little")
_HEAD = struct.Struct("<IIQQQQBBHHH32s")
_BODY = SLOT_BYTES - DIGEST_BYTES
_VIABLE = 1
_LOST_BYTES = (MEMBERS_MAX + 7) // 8
_STATE = _BODY - DIGEST_BYTES
_LOST = _STATE - _LOST_BYTES


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
    lost: tuple[int, ...] = ()
    """Members that the rescue which wrote this gave up, though they were not listed:
    what only they held is lost."""
    state: bytes = NO_DIGEST
    """Digest of what that rescue carried over of the metadata repository."""

    def __post_init__(self) -> None:
        """Refuse what no node can say.

        Raises:
            TooLargeError: The name of the cluster is too long.
            InvalidArgumentError: The node is no member, or calls itself viable in a
                configuration that lists it, or members are lost and not listed.
        """
        size = len(self.cluster.encode(errors="surrogatepass"))
        if size > CLUSTER_BYTES_MAX:
            msg = (
                f"the name of the cluster has {size} bytes, at most "
                f"{CLUSTER_BYTES_MAX} fit"
            )
            raise TooLargeError(msg, size=size, limit=CLUSTER_BYTES_MAX)
        if not self.cluster or not self.cluster.isprintable():
            raise InvalidArgumentError(
                f"{self.cluster!r} cannot be the name of a cluster"
            )
        if self.node not in self.configuration.members:
            msg = f"node {self.node} is no member in {self.configuration.members}"
            raise InvalidArgumentError(msg)
        if self.viable and self.node in self.configuration.failed:
            msg = f"node {self.node} is listed as failed: its log is not viable"
            raise InvalidArgumentError(msg)
        given_up = [node for node in self.configuration.failed if node in self.lost]
        if tuple(given_up) != self.lost:
            raise InvalidArgumentError(f"lost {self.lost} are not listed as failed")
        if self.serial < 1 or {len(self.previous), len(self.state)} != {DIGEST_BYTES}:
            raise InvalidArgumentError(f"record {self.serial} has no place in a ring")

    @property
    def number(self) -> tuple[int, int]:
        """Return epoch and sequence of the configuration."""
        return self.configuration.number

    @property
    def format(self) -> int:
        """Return the lowest format that can say this."""
        return FORMAT if self.lost or self.state != NO_DIGEST else _PLAIN

    def with_back(self, configuration: Configuration) -> Configuration:
        """Return the next configuration, in which the node of this record is back.

        The record is the newest of its node, which shows that it took step 1.

        Raises:
            InvalidArgumentError: It did not.
        """
        node = self.node
        if node not in configuration.failed:
            raise InvalidArgumentError(f"node {node} is not listed as failed")
        if self.configuration != configuration or self.viable:
            raise InvalidArgumentError(
                f"node {node} has not recorded {configuration.number} and itself as not"
                " viable, so nobody may stop listing it"
            )
        failed = tuple(other for other in configuration.failed if other != node)
        sequence = configuration.sequence + 1
        return replace(configuration, sequence=sequence, failed=failed)

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
        record.format,
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
    said = (head + struct.pack(f"<{len(nodes)}Q", *nodes) + cluster).ljust(_LOST, b"\0")
    body = said + _bits(record) + record.state
    return body + _digest(body)


def _bits(record: FaultRecord) -> bytes:
    members = record.configuration.members
    lost = sum(1 << at for at, node in enumerate(members) if node in record.lost)
    return lost.to_bytes(_LOST_BYTES, "little")


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
        raise ForeignFormatError("the file is not a fault log", path=path)
    if fields[1] > FORMAT:
        msg = f"the fault log has format {fields[1]}; this version reads up to {FORMAT}"
        raise NewerFormatError(msg, path=path, found=fields[1], supported=FORMAT)
    try:
        record = _record(slot, fields[2:])
    except (InvalidArgumentError, UnicodeDecodeError) as error:
        msg = f"the record at {offset} is invalid: {error}"
        raise CorruptionError(msg, path=path, offset=offset) from None
    # One record has one encoding: no bit may stand where nothing was written.
    if encode(record) != slot:
        msg = f"the record at {offset} has unexpected bytes behind its fields"
        raise CorruptionError(msg, path=path, offset=offset)
    return record


def _record(slot: bytes, fields: tuple[int, ...]) -> FaultRecord:
    serial, node, epoch, sequence, flags, _, cluster_bytes, members, failed = fields[:9]
    if members > MEMBERS_MAX or failed > members or cluster_bytes > CLUSTER_BYTES_MAX:
        raise InvalidArgumentError("it counts more nodes than a slot holds")
    nodes = struct.unpack_from(f"<{members + failed}Q", slot, _HEAD.size)
    at = _HEAD.size + 8 * len(nodes)
    lost = int.from_bytes(slot[_LOST:_STATE], "little")
    return FaultRecord(
        cluster=slot[at : at + cluster_bytes].decode(),
        node=node,
        configuration=Configuration(epoch, sequence, nodes[:members], nodes[members:]),
        viable=bool(flags & _VIABLE),
        serial=serial,
        previous=slot[48:80],
        lost=tuple(node for at, node in enumerate(nodes[:members]) if lost >> at & 1),
        state=slot[_STATE:_BODY],
    )


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()
