"""The directory of a node that does not run, as a rescue sees and leaves it.

A rescue reads what the node knows of the metadata repository, and leaves what the next
one begins with in the file ``RESCUED``, whose digest the fault log names:

    0   u32     magic   "BRSC"
    4   u32     format  1
    8   u8[32]  digest  BLAKE2b-256 of what follows
    40          MessagePack: `metarepo.succession.GroupStart`
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Final

import msgspec

from braidlog import _native, durable
from braidlog.errors import CorruptionError, NewerFormatError, UnavailableError
from braidlog.metarepo.succession import Copy, GroupStart
from braidlog.node.repository.raft_log import entries_of, hard_name
from braidlog.raft import Entry, Stored, codec
from braidlog.store.node_store import GROUP_PREFIX

FILE_NAME: Final = "RESCUED"

_MAGIC: Final = int.from_bytes(b"BRSC", "little")
_FORMAT: Final = 1
_HEAD: Final = struct.Struct("<II32s")
_READ_BYTES: Final = 4 << 20

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(GroupStart)


def read_copy(directory: Path, node: int, *, locked: bool = False) -> Copy | None:
    """Return the log of the repository in a directory; None if it has none.

    Changes nothing. Of a directory that a node runs on it may be old; with `locked` the
    caller holds the lock, so that none does.

    Raises:
        LogError: the directory cannot be read.
    """
    follower = _native.Follower.open(directory, locked=locked)
    try:
        names = [n for n in follower.state() if n.startswith(GROUP_PREFIX)]
        numbers = [n.removeprefix(GROUP_PREFIX) for n in names]
        made = [
            int(number)
            for number in numbers
            if number.isdecimal() and _options(follower, f"{GROUP_PREFIX}{number}")
        ]
        if not made:
            return None
        return Copy(node, max(made), _load(follower, max(made)))
    finally:
        follower.close()


def _options(follower: _native.Follower, name: str) -> bytes:
    row = follower.entry(name)
    return bytes(row[3]) if row is not None else b""


def _load(follower: _native.Follower, group: int) -> Stored:
    name = f"{GROUP_PREFIX}{group}"
    row = follower.entry(name)
    base = codec.decode_base(_options(follower, name))
    hard = codec.decode_hard_state(_options(follower, hard_name(group)))
    entries: list[Entry] = []
    if row is not None:
        stream = row[1]
        first, _, end, _ = follower.view(stream).range()
        begin = max(first, base.index + 1)
        while begin < end:
            for at, count, data in follower.read(stream, begin, end, _READ_BYTES):
                entries += (e for e in entries_of(at, data) if begin <= e.index < end)
                begin = at + count
    return Stored(base, tuple(entries), hard)


def digest_of(seed: GroupStart) -> bytes:
    """Return what the fault log says of a seed."""
    return _digest(_encoder.encode(seed))


def write_seed(directory: Path, seed: GroupStart) -> None:
    """Write a seed into a directory; durable on return, whole or not at all.

    Raises:
        UnavailableError: the system refused.
    """
    data = _encoder.encode(seed)
    path = directory / FILE_NAME
    try:
        durable.replace(path, _HEAD.pack(_MAGIC, _FORMAT, _digest(data)) + data)
    except OSError as error:
        raise UnavailableError(f"{path}: {error.strerror}", path=str(path)) from error


def read_seed(directory: Path, digest: bytes) -> GroupStart:
    """Return the seed that the fault log of the directory names.

    Raises:
        CorruptionError: it is not there, or not what was written.
        NewerFormatError: a newer version wrote it.
    """
    path = directory / FILE_NAME
    try:
        written = path.read_bytes()
    except OSError as error:
        why = error.strerror
        msg = (
            f"{path}: {why}. The rescue wrote this file, and the node needs it to start"
        )
        raise CorruptionError(msg, path=str(path)) from error
    data = written[_HEAD.size :]
    if len(written) < _HEAD.size or _digest(data) != digest:
        msg = (
            f"{path} differs from what the rescue wrote, according to the "
            "node's fault log"
        )
        raise CorruptionError(msg, path=str(path))
    magic, version, _ = _HEAD.unpack_from(written)
    if magic == _MAGIC and version > _FORMAT:
        msg = f"{path} has format {version}; this version reads up to {_FORMAT}"
        raise NewerFormatError(msg, path=str(path), found=version, supported=_FORMAT)
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read: {error}"
        raise CorruptionError(msg, path=str(path)) from error


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()
