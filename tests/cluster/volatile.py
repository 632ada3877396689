"""A file system below a real process that forgets what was not synced; needs root.

    python -m cluster.volatile MOUNTPOINT

It speaks the kernel's FUSE protocol itself, because no package carries libfuse, and
keeps all files in memory twice: as they are, and as they would be after a power cut.
Commands come as lines on standard input, each is answered by a line `done`:

- `cut SEED`: lose the power. Of the writes to a file that no `fsync` followed each one
  is kept, lost or torn between two sectors, whatever came before or after it; of the
  changes to directories a prefix stays, as a journal would keep it.
- `slow SECONDS`: let each sync take so much longer, until the next such command.
- `lie`: answer each sync from now on and make nothing durable, as broken disks do.
  A test that cuts the power has to notice it.

The end of standard input unmounts it. A program whose process is killed keeps its
unsynced writes in any ordinary file system, so only this shows what a sync is for.
Protocol: `include/uapi/linux/fuse.h`, version 7.31. The ways to lose writes are those
of `native/core/src/vfs/memory/crash.rs`.
"""
# One file: it runs as a process of its own, which imports nothing of the tests.

from __future__ import annotations

import ctypes
import errno
import heapq
import os
import random
import select
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

__all__ = ["VolatileDisk", "why_not"]

_SECTOR: Final = 512
_WRITE_MAX: Final = 1 << 20
_ROOT: Final = 1
_SIZE: Final = 1 << 3  # FATTR_SIZE
_MODE: Final = 1 << 0  # FATTR_MODE
_DIRECT_IO: Final = 1 << 0  # FOPEN_DIRECT_IO: nothing stays in the page cache
# FUSE_ATOMIC_O_TRUNC, FUSE_BIG_WRITES, FUSE_MAX_PAGES
_FLAGS: Final = 1 << 3 | 1 << 5 | 1 << 22
_MNT_DETACH: Final = 2
_NO_REPLACE: Final = 1  # RENAME_NOREPLACE

_IN: Final = struct.Struct("<IIQQIIIHH")
_OUT: Final = struct.Struct("<IiQ")
_INIT: Final = struct.Struct("<IIIIHHIIHHIIH22x")
_ATTR: Final = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY: Final = struct.Struct("<QQQQII")
_STATFS: Final = struct.Struct("<QQQQQIIII24x")


def why_not() -> str:
    """Return why there can be no such file system here; empty if there can."""
    if os.geteuid() != 0:
        return "mounting needs root"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "there is no /dev/fuse"
    return ""


class VolatileDisk:
    """Such a file system at a path, in a process of its own, until it is closed."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def cut(self, seed: int) -> None:
        """Lose the power: whoever used the file system must be dead."""
        self._say(f"cut {seed}")

    def slow(self, seconds: float) -> None:
        """Let each sync take so much longer from now on."""
        self._say(f"slow {seconds}")

    def lie(self) -> None:
        """Make nothing durable from now on."""
        self._say("lie")

    def close(self) -> None:
        """Unmount; everything is forgotten."""
        # A path that is still in use is unmounted when it is not any more.
        subprocess.run(["umount", "-l", self._path], check=False, capture_output=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()

    def _say(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command.encode() + b"\n")
        self._process.stdin.flush()
        self._wait()

    def _wait(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line == b"done\n", f"the file system of {self._path} ended: {line!r}"


# -- the process -------------------------------------------------------------------


class _Refused(Exception):
    """What is answered with an error number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(slots=True)
class _Inode:
    """A file or a directory: as it is, and as a power cut leaves it."""

    number: int
    mode: int
    live: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes in order: offset and bytes; None for a change of the length to offset."""
    entries: dict[bytes, int] = field(default_factory=dict)
    durable_entries: dict[bytes, int] = field(default_factory=dict)

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)


# What one call changes in directories, all or nothing: directory, name, inode or none.
_Transaction = list[tuple[int, bytes, int | None]]


def _apply(data: bytearray, offset: int, written: bytes | None) -> None:
    if written is None:
        if offset < len(data):
            del data[offset:]
        else:
            data.extend(bytes(offset - len(data)))
        return
    if offset > len(data):
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(written)] = written


class _Tree:
    """All files, and what of them is durable."""

    def __init__(self) -> None:
        self.inodes = {_ROOT: _Inode(_ROOT, stat.S_IFDIR | 0o755)}
        self.journal: list[_Transaction] = []
        self._next = _ROOT + 1

    def make(self, parent: int, name: bytes, mode: int) -> _Inode:
        if name in self.inodes[parent].entries:
            raise _Refused(errno.EEXIST)
        inode = _Inode(self._next, mode)
        self._next += 1
        self.inodes[inode.number] = inode
        self.change([(parent, name, inode.number)])
        return inode

    def find(self, parent: int, name: bytes) -> _Inode:
        number = self.inodes[parent].entries.get(name)
        if number is None:
            raise _Refused(errno.ENOENT)
        return self.inodes[number]

    def change(self, transaction: _Transaction) -> None:
        for directory, name, number in transaction:
            _set(self.inodes[directory].entries, name, number)
        self.journal.append(transaction)

    def write(self, inode: _Inode, offset: int, written: bytes | None) -> None:
        _apply(inode.live, offset, written)
        inode.unsynced.append((offset, written))

    def sync(self, inode: _Inode) -> None:
        """Make a file's bytes durable, or what happened up to now to a directory."""
        for offset, written in inode.unsynced:
            _apply(inode.durable, offset, written)
        inode.unsynced.clear()
        if inode.is_directory:
            touching = (
                index
                for index, transaction in enumerate(self.journal, 1)
                if any(directory == inode.number for directory, _, _ in transaction)
            )
            self._settle(max(touching, default=0))

    def cut(self, chance: random.Random) -> None:
        """Leave what a loss of power may leave."""
        self._settle(chance.randint(0, len(self.journal)))
        self.journal.clear()
        for inode in self.inodes.values():
            for offset, written in inode.unsynced:
                kept = self._kept(offset, written, chance)
                if kept != b"":
                    _apply(inode.durable, offset, kept)
            inode.unsynced.clear()
            inode.live = bytearray(inode.durable)
            inode.entries = dict(inode.durable_entries)

    def _kept(
        self, offset: int, written: bytes | None, chance: random.Random
    ) -> bytes | None:
        """Return what stays of a write; nothing is `b""`."""
        fate = chance.choice(["lost", "kept", "torn"])
        if written is None:
            # A length that only partly changed is none that the file ever had.
            return None if fate == "kept" else b""
        if fate == "torn":
            sectors = (offset + len(written)) // _SECTOR - offset // _SECTOR
            end = (offset // _SECTOR + chance.randint(0, sectors)) * _SECTOR
            return written[: max(0, end - offset)]
        return written if fate == "kept" else b""

    def _settle(self, count: int) -> None:
        for transaction in self.journal[:count]:
            for directory, name, number in transaction:
                _set(self.inodes[directory].durable_entries, name, number)
        del self.journal[:count]


def _set(entries: dict[bytes, int], name: bytes, number: int | None) -> None:
    if number is None:
        entries.pop(name, None)
    else:
        entries[name] = number


class _Server:
    """Answers the kernel."""

    def __init__(self, device: int) -> None:
        self.tree = _Tree()
        self.slow = 0.0
        self.lies = False
        self._device = device
        self._later: list[tuple[float, int, int, bytes]] = []
        self._buffer = bytearray(_WRITE_MAX + 4096)
        self._calls: dict[int, Callable[[int, memoryview], bytes]] = {
            1: self._lookup,
            3: self._getattr,
            4: self._setattr,
            9: self._mkdir,
            10: self._unlink,
            11: self._rmdir,
            12: self._rename,
            14: self._open,
            15: self._read,
            16: self._write,
            17: self._statfs,
            18: self._nothing,
            25: self._nothing,
            26: self._init,
            27: self._open,
            28: self._readdir,
            29: self._nothing,
            35: self._create,
            45: self._rename2,
        }

    def step(self) -> float | None:
        """Answer what is due; return how long nothing has to be done."""
        while self._later and self._later[0][0] <= time.monotonic():
            _, unique, node, answer = heapq.heappop(self._later)
            if not self.lies:
                self.tree.sync(self.tree.inodes[node])
            self._answer(unique, 0, answer)
        return self._later[0][0] - time.monotonic() if self._later else None

    def serve(self) -> bool:
        """Take one request; return False when the file system is unmounted."""
        try:
            size = os.readv(self._device, [self._buffer])
        except OSError as error:
            return error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN)
        message = memoryview(self._buffer)[:size]
        _, opcode, unique, node, *_ = _IN.unpack_from(message)
        body = message[_IN.size :]
        if opcode in (2, 36, 42):  # FORGET, INTERRUPT and BATCH_FORGET have no answer.
            return True
        if opcode in (20, 30):
            self._sync(unique, node, b"")
            return True
        call = self._calls.get(opcode)
        try:
            if call is None:
                raise _Refused(errno.ENOSYS)
            answer = call(node, body)
        except _Refused as refused:
            self._answer(unique, refused.number, b"")
        else:
            # Of a file that is open for synchronous writes the kernel leaves it to us.
            if opcode == 16 and struct.unpack_from("<I", body, 32)[0] & os.O_DSYNC:
                self._sync(unique, node, answer)
            else:
                self._answer(unique, 0, answer)
        return True

    def _sync(self, unique: int, node: int, answer: bytes) -> None:
        heapq.heappush(
            self._later, (time.monotonic() + self.slow, unique, node, answer)
        )

    def _answer(self, unique: int, number: int, body: bytes) -> None:
        # Who asked may have been killed meanwhile: ENOENT.
        with suppress(FileNotFoundError):
            header = _OUT.pack(_OUT.size + len(body), -number, unique)
            os.writev(self._device, [header, body])

    def _nothing(self, _: int, body: memoryview) -> bytes:
        del body
        return b""

    def _init(self, _: int, body: memoryview) -> bytes:
        _, _, ahead, flags = struct.unpack_from("<IIII", body)
        pages = _WRITE_MAX // 4096
        wanted = flags & _FLAGS
        return _INIT.pack(
            7, 31, ahead, wanted, 16, 12, _WRITE_MAX, 1, pages, 0, 0, 0, 0
        )

    def _attributes(self, inode: _Inode) -> bytes:
        size = len(inode.live)
        blocks, links = -(-size // _SECTOR), 1 + inode.is_directory
        times = (0, 0, 0, 0, 0, 0)
        return _ATTR.pack(
            inode.number, size, blocks, *times, inode.mode, links, 0, 0, 0, 4096, 0
        )

    def _entry(self, inode: _Inode) -> bytes:
        return _ENTRY.pack(inode.number, 0, 0, 0, 0, 0) + self._attributes(inode)

    def _lookup(self, parent: int, body: memoryview) -> bytes:
        return self._entry(self.tree.find(parent, _name(body)))

    def _getattr(self, node: int, _: memoryview) -> bytes:
        return bytes(16) + self._attributes(self.tree.inodes[node])

    def _setattr(self, node: int, body: memoryview) -> bytes:
        inode = self.tree.inodes[node]
        valid, _, _, size = struct.unpack_from("<IIQQ", body)
        (mode,) = struct.unpack_from("<I", body, 68)
        if valid & _SIZE:
            self.tree.write(inode, size, None)
        if valid & _MODE:
            inode.mode = stat.S_IFMT(inode.mode) | stat.S_IMODE(mode)
        return self._getattr(node, body)

    def _mkdir(self, parent: int, body: memoryview) -> bytes:
        (mode,) = struct.unpack_from("<I", body)
        inode = self.tree.make(parent, _name(body[8:]), stat.S_IFDIR | mode)
        return self._entry(inode)

    def _create(self, parent: int, body: memoryview) -> bytes:
        _, mode = struct.unpack_from("<II", body)
        inode = self.tree.make(parent, _name(body[16:]), mode)
        return self._entry(inode) + struct.pack("<QII", inode.number, _DIRECT_IO, 0)

    def _open(self, node: int, body: memoryview) -> bytes:
        (flags,) = struct.unpack_from("<I", body)
        if flags & os.O_TRUNC:
            self.tree.write(self.tree.inodes[node], 0, None)
        return struct.pack("<QII", node, _DIRECT_IO, 0)

    def _unlink(self, parent: int, body: memoryview) -> bytes:
        self.tree.find(parent, name := _name(body))
        self.tree.change([(parent, name, None)])
        return b""

    def _rmdir(self, parent: int, body: memoryview) -> bytes:
        if self.tree.find(parent, name := _name(body)).entries:
            raise _Refused(errno.ENOTEMPTY)
        self.tree.change([(parent, name, None)])
        return b""

    def _rename(self, parent: int, body: memoryview) -> bytes:
        (target,) = struct.unpack_from("<Q", body)
        return self._renamed(parent, target, 0, body[8:])

    def _rename2(self, parent: int, body: memoryview) -> bytes:
        target, flags = struct.unpack_from("<QI", body)
        return self._renamed(parent, target, flags, body[16:])

    def _renamed(
        self, parent: int, target: int, flags: int, names: memoryview
    ) -> bytes:
        old, new, _ = bytes(names).split(b"\0", 2)
        inode = self.tree.find(parent, old)
        if flags & ~_NO_REPLACE:
            raise _Refused(errno.EINVAL)
        if flags and new in self.tree.inodes[target].entries:
            raise _Refused(errno.EEXIST)
        self.tree.change([(parent, old, None), (target, new, inode.number)])
        return b""

    def _read(self, node: int, body: memoryview) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        return bytes(self.tree.inodes[node].live[offset : offset + size])

    def _write(self, node: int, body: memoryview) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        self.tree.write(self.tree.inodes[node], offset, bytes(body[40 : 40 + size]))
        return struct.pack("<II", size, 0)

    def _statfs(self, _: int, body: memoryview) -> bytes:
        del body
        free = 1 << 20
        return _STATFS.pack(free, free, free, free, free, 4096, 255, 4096, 0)

    def _readdir(self, node: int, body: memoryview) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        inode = self.tree.inodes[node]
        names = [(b".", node), (b"..", node), *sorted(inode.entries.items())]
        found = b""
        for index, (name, number) in enumerate(names[offset:], offset + 1):
            kind = stat.S_IFMT(self.tree.inodes[number].mode) >> 12
            row = struct.pack("<QQII", number, index, len(name), kind) + name
            row += bytes(-len(row) % 8)
            if len(found) + len(row) > size:
                break
            found += row
        return found


def _name(body: memoryview) -> bytes:
    return bytes(body).split(b"\0", 1)[0]


def _mount(path: str, device: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40755,user_id=0,group_id=0,allow_other"
    given = (b"volatile", os.fsencode(path), b"fuse.volatile", 0, options.encode())
    if libc.mount(*given) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


def _main() -> None:
    device = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK)
    _mount(sys.argv[1], device)
    server = _Server(device)
    poll = select.poll()
    poll.register(device, select.POLLIN)
    poll.register(0, select.POLLIN)
    os.write(1, b"done\n")
    while True:
        wait = server.step()
        ready = dict(poll.poll(None if wait is None else max(0.0, wait * 1000)))
        if device in ready and not server.serve():
            return
        if 0 in ready:
            words = os.read(0, 1000).decode().split()
            if not words:
                return
            if words[0] == "cut":
                server.tree.cut(random.Random(int(words[1])))
            elif words[0] == "lie":
                server.lies = True
            else:
                server.slow = float(words[1])
            os.write(1, b"done\n")


if __name__ == "__main__":
    _main()
