"""Directories of tables on a disk in memory, as `DirectoryFiles` has real ones.

A copy becomes what is in use by one durable rename; what was in use is moved away
first, so a crash in between leaves a copy that is whole and ready.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from string import hexdigits
from typing import TYPE_CHECKING

from braidlog import _native
from braidlog.errors import MissingFileError
from braidlog.wire.rows import PinnedFile

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["DiskFiles"]

_ID_DIGITS = 32


class DiskFiles:
    """Tables in the sub-directories of one directory of a disk."""

    def __init__(self, disk: _native.MemoryDisk, root: str) -> None:
        """Use a directory, which is made when it is needed."""
        self.disk = disk
        self._root = root
        self.installed = 0
        """Copies that were put in use in this life."""

    def path(self, table: bytes, what: str = "") -> str:
        """Return where a table is that is in use, or what there is of it otherwise."""
        return f"{self._root}/{table.hex()}{what}"

    def _there(self, path: str) -> bool:
        parent, _, name = path.rpartition("/")
        return name in self.disk.names(parent)

    def tables(self) -> list[bytes]:
        """Return the tables of which there is something; remove what is trash."""
        found: dict[bytes, None] = {}
        for name in self.disk.names(self._root):
            identity, _, what = name.partition(".")
            if what == "trash":
                self.disk.remove_tree(f"{self._root}/{name}")
            elif len(identity) == _ID_DIGITS and not {*identity} - {*hexdigits}:
                found[bytes.fromhex(identity)] = None
        return list(found)

    def has(self, table: bytes) -> bool:
        """Tell whether a table is here. A copy that became whole is put in use."""
        self._finish(table)
        return self._there(self.path(table))

    def _finish(self, table: bytes) -> None:
        ready = self.path(table, ".ready")
        if self._there(ready):
            self._throw(self.path(table))
            self.disk.rename(ready, self.path(table))

    def _throw(self, path: str) -> None:
        """Take a directory away, so that nothing of it is ever met in part."""
        if not self._there(path):
            return
        trash = f"{path.partition('.')[0]}.trash"
        if self._there(trash):
            self.disk.remove_tree(trash)
        self.disk.rename(path, trash)
        self.disk.remove_tree(trash)

    def trash(self, table: bytes) -> None:
        """Take everything of a table away. It may be repeated."""
        for what in (".ready", ".copy", ""):
            self._throw(self.path(table, what))

    def _copied(self, table: bytes) -> dict[str, int]:
        """Return the files of a copy, below its directory."""
        below = self.path(table, ".copy") + "/"
        return {
            path.removeprefix(below): size
            for path, size in self.disk.files()
            if path.startswith(below)
        }

    def staged(self, table: bytes, files: Sequence[PinnedFile]) -> dict[str, int]:
        """Begin or go on with a copy: drop what is not of these files."""
        sizes = {file.path: file.bytes for file in files}
        found = self._copied(table)
        for path, size in found.items():
            if size > sizes.get(path, -1):
                self.disk.remove_tree(self.path(table, f".copy/{path}"))
        return {p: s if (s := found.get(p, 0)) <= sizes[p] else 0 for p in sizes}

    def write(self, table: bytes, path: str, offset: int, data: Buffer) -> None:
        """Write a part of a file behind what there is of it."""
        self.disk.write(self.path(table, f".copy/{path}"), offset, bytes(data))

    def check(self, table: bytes, file: PinnedFile) -> bool:
        """Tell whether a file is whole; one that is not is dropped."""
        where = self.path(table, f".copy/{file.path}")
        if not self._there(where):
            self.disk.write(where, 0, b"")
        content = bytes(self.disk.read(where))
        whole = (len(content), zlib.crc32(content)) == (file.bytes, file.checksum)
        if not whole:
            self.disk.remove_tree(where)
        return whole

    def install(self, table: bytes, files: Sequence[PinnedFile]) -> None:
        """Make the copy durable, and put it in the place of what is there."""
        found = self._copied(table)
        for file in files:
            if file.path not in found:
                msg = f"{file.path!r} was not copied"
                raise MissingFileError(msg, path=file.path)
        self.disk.sync_tree(self.path(table, ".copy"))
        self.disk.rename(self.path(table, ".copy"), self.path(table, ".ready"))
        self._finish(table)
        self.installed += 1
