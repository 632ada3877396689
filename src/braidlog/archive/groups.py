"""Row groups of a data file, each read whole and checked before anything is decoded.

Parquet has checksums of pages, and none of what stands before a page and says what it
is, nor of the footer. So the manifest has the checksum of the footer, and the footer,
among its named values, that of each row group: ``braidlog.row_groups`` is a list of
offset, length and checksum. What a reader decodes has passed both. Other readers of
Parquet pay no attention to it.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from braidlog.archive.layout import ArchivedFile
from braidlog.documents import checksum_of
from braidlog.errors import ArchiveDamagedError

if TYPE_CHECKING:
    from typing_extensions import Buffer

ROW_GROUPS: Final = "braidlog.row_groups"

# Ends every file: the length of the footer before it, and the magic.
_TAIL: Final = struct.Struct("<I4s")


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Bytes of a row group: all its columns, with what stands between them."""

    offset: int
    bytes: int
    checksum: str


def encode_groups(groups: Iterable[RowGroup]) -> str:
    """Return what the footer says of row groups."""
    return json.dumps([(g.offset, g.bytes, g.checksum) for g in groups])


def footer_of(path: Path) -> bytes:
    """Return the footer of a file that was just written, with its tail."""
    with path.open("rb") as file:
        file.seek(-_TAIL.size, io.SEEK_END)
        length, _ = _TAIL.unpack(file.read())
        file.seek(-_TAIL.size - length, io.SEEK_END)
        return file.read()


class _Window(io.RawIOBase):
    """A part of a file, at its place."""

    def __init__(self, offset: int, data: Buffer, size: int) -> None:
        super().__init__()
        self._offset, self._data, self._size = offset, memoryview(data), size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}
        self._at = start[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> Any:
        begin = self._at - self._offset
        end = len(self._data) if size < 0 else begin + size
        if begin < 0 or end > len(self._data):
            raise ValueError(
                f"bytes {self._at} to {self._offset + end} belong to another row group"
            )
        self._at = self._offset + end
        return self._data[begin:end]


class CheckedFile:
    """A data file that is open for reading; the footer has been checked."""

    def __init__(self, raw: Any, file: ArchivedFile, path: str) -> None:
        """Read the footer.

        Raises:
            ArchiveDamagedError: it is not what was archived.
        """
        self._raw, self._file, self._path = raw, file, path
        if (size := raw.size()) != file.bytes:
            raise self._damaged(f"{path} has {size} bytes instead of {file.bytes}", 0)
        at = file.bytes - file.footer_bytes
        footer = raw.read_at(file.footer_bytes, at)
        if checksum_of(footer) != file.footer_checksum:
            raise self._damaged(
                f"the footer of {path} differs from the archived one", at
            )
        self.metadata = pq.read_metadata(pa.BufferReader(footer))
        groups = json.loads(self.metadata.metadata[ROW_GROUPS.encode()])
        self._groups = [RowGroup(*group) for group in groups]

    def group(self, number: int) -> Any:
        """Read a row group and return it as a file of Parquet.

        Raises:
            ArchiveDamagedError: its bytes are not what was archived.
        """
        group = self._groups[number]
        data = self._raw.read_at(group.bytes, group.offset)
        if checksum_of(data) != group.checksum:
            msg = f"row group {number} of {self._path} does not match its checksum"
            raise self._damaged(msg, group.offset)
        window = _Window(group.offset, data, self._file.bytes)
        # Arrow would read ahead in threads of its own. One of them may still hold bytes
        # of Python when the interpreter ends, and aborts the process as it lets go.
        return pq.ParquetFile(
            pa.PythonFile(window, mode="r"), metadata=self.metadata, pre_buffer=False
        )

    def _damaged(self, msg: str, offset: int) -> ArchiveDamagedError:
        return ArchiveDamagedError(msg, path=self._path, offset=offset)
