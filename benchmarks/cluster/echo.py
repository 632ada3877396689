"""One process of the floor: ``python -m benchmarks.cluster.echo PORT FILE [PORT]...``.

What comes in is sent on to the backups, written and synced; then the sender is told how
many bytes are safe everywhere. Bytes are not looked at: there is no order to agree on,
nobody who takes over, and nothing can be read again.
"""

import asyncio
import os
import struct
import sys
from pathlib import Path
from typing import Any

import uvloop

_FILE_BYTES = 64 << 20
_COUNT = struct.Struct("<Q")


class Disk:
    """A zero-filled file that is written in a circle."""

    def __init__(self, path: Path) -> None:
        """Fill it."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        os.pwrite(self._file, bytes(_FILE_BYTES), 0)
        os.fsync(self._file)
        self._at = 0

    def store(self, data: bytes) -> None:
        """Write and sync."""
        if self._at + len(data) > _FILE_BYTES:
            self._at = 0
        os.pwrite(self._file, data, self._at)
        os.fdatasync(self._file)
        self._at += len(data)


class Backup(asyncio.Protocol):
    """The connection of a primary to a backup."""

    def __init__(self) -> None:
        """Know of nothing that is safe there."""
        self.safe = 0
        self.primary: Server | None = None
        self.transport: Any = None
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Get the socket."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Take the newest count."""
        self._data += data
        whole = len(self._data) // 8 * 8
        if whole:
            (self.safe,) = _COUNT.unpack_from(self._data, whole - 8)
            self._data = self._data[whole:]
        if self.primary is not None:
            self.primary.answer()


class Server(asyncio.Protocol):
    """The connection of whoever sends."""

    def __init__(self, disk: Disk, backups: list[Backup]) -> None:
        """Serve with these."""
        self._disk = disk
        self._backups = backups
        self._base = [backup.safe for backup in backups]
        self._safe = self._told = 0
        self._transport: Any = None
        for backup in backups:
            backup.primary = self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Get the socket."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Send on, store, answer."""
        for backup in self._backups:
            backup.transport.write(data)
        self._disk.store(data)
        self._safe += len(data)
        self.answer()

    def answer(self) -> None:
        """Tell how much is safe everywhere."""
        counts = [
            backup.safe - base
            for backup, base in zip(self._backups, self._base, strict=True)
        ]
        safe = min([self._safe, *counts])
        if safe > self._told:
            self._told = safe
            self._transport.write(_COUNT.pack(safe))


async def main(port: int, path: Path, backups: list[int]) -> None:
    """Serve for ever."""
    loop = asyncio.get_running_loop()
    disk = Disk(path)
    links = []
    for each in backups:
        _, link = await loop.create_connection(Backup, "127.0.0.1", each)
        links.append(link)
    server = await loop.create_server(lambda: Server(disk, links), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), Path(sys.argv[2]), list(map(int, sys.argv[3:]))))
