"""A file of records that are sorted into parts; a reader takes one part of it alone.

    0           Arrow IPC stream: schema, an empty batch, a message for each batch
                    part 0: chunk 0, chunk 1, ...   part 1: chunk 0, ...   (lz4)
    i           an entry for each part and chunk, in the same order
                    0   u64  begin   where its message begins
                    8   u32  bytes   0: the chunk has nothing of the part
                    12  u32  crc     CRC-32 of the message
    size - 16   u32  parts
                u32  chunks
                u64  magic           "BRDPIECE"

All little-endian; i is size - 16 - 16 * parts * chunks. A chunk holds the records that
follow those of the chunk before. So whoever reads one part seeks once to its entries
and once to its messages, whatever the file holds else; and files of one chunk become
one of several by copying bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from braidlog.closable import Closable
from braidlog.errors import CorruptionError

_ENTRY: Final = np.dtype([("begin", "<u8"), ("bytes", "<u4"), ("crc", "<u4")])
_TAIL: Final = struct.Struct("<II8s")
_MAGIC: Final = b"BRDPIECE"
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def write(path: Path, schema: pa.Schema, parts: Iterable[pa.RecordBatch]) -> int:
    """Write a file of one chunk, a batch for each part; return the bytes of messages.

    Not durable on return.
    """
    # Headers and keys compress well, and disks are slower than this.
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    spans: list[tuple[int, int]] = []
    with pa.OSFile(str(path), "wb") as sink:
        with pa.ipc.new_stream(sink, schema, options=options) as writer:
            # The schema goes out with the first batch: let that be one of no part.
            writer.write_batch(pa.RecordBatch.from_pylist([], schema))
            for batch in parts:
                begin = sink.tell()
                if batch.num_rows:
                    writer.write_batch(batch)
                spans.append((begin, sink.tell() - begin))
        entries = np.zeros(len(spans), _ENTRY)
        entries["begin"], entries["bytes"] = np.array(spans, np.uint64).T
        sink.flush()
        with pa.memory_map(str(path)) as mapped:
            data = memoryview(mapped.read_buffer())
            entries["crc"] = [zlib.crc32(data[at : at + size]) for at, size in spans]
        sink.write(entries.tobytes() + _TAIL.pack(len(spans), 1, _MAGIC))
    return int(entries["bytes"].sum(dtype=np.uint64))


def join(path: Path, chunks: Sequence[Path]) -> None:
    """Make one file of several, each of one chunk and with the same parts.

    Not durable on return.
    """
    with ExitStack() as stack:
        opened = [stack.enter_context(ShuffleFile(chunk)) for chunk in chunks]
        data = [
            memoryview(stack.enter_context(pa.memory_map(str(chunk))).read_buffer())
            for chunk in chunks
        ]
        sink = stack.enter_context(path.open("wb"))
        parts = opened[0].parts
        # By part, then by chunk.
        entries = np.stack([file.entries(0, parts) for file in opened], axis=1).ravel()
        sink.write(data[0][: int(entries[0]["begin"])])
        for row, (begin, size, _) in enumerate(entries.tolist()):
            entries[row]["begin"] = sink.tell()
            sink.write(data[row % len(chunks)][begin : begin + size])
        sink.write(_END_OF_STREAM + entries.tobytes())
        sink.write(_TAIL.pack(parts, len(chunks), _MAGIC))


class ShuffleFile(Closable):
    """A file of parts, open for reading; nothing is read but what is asked for."""

    def __init__(self, path: Path) -> None:
        """Read the tail and the schema.

        Raises:
            CorruptionError: it is missing, or no such file.
        """
        self.path = path
        self.bytes_read = 0
        """Bytes of messages that were decoded."""
        try:
            self._file: Any = pa.OSFile(str(path), "rb")
        except OSError as error:
            msg = f"a file between two stages is missing: {path}: {error}"
            raise CorruptionError(msg, path=str(path)) from error
        try:
            size = self._file.size()
            tail = self._read(max(0, size - _TAIL.size), _TAIL.size)
            if len(tail) < _TAIL.size:
                raise self._damaged(size)
            self.parts, self.chunks, magic = _TAIL.unpack(tail)
            self._index = size - _TAIL.size - _ENTRY.itemsize * self.parts * self.chunks
            if magic != _MAGIC or self._index < 0:
                raise self._damaged(size)
            self._file.seek(0)
            self.schema: pa.Schema = pa.ipc.read_schema(pa.ipc.read_message(self._file))
        except pa.ArrowInvalid as error:
            self.close()
            raise self._damaged(0) from error
        except CorruptionError:
            self.close()
            raise

    def entries(self, part: int, parts: int = 1) -> Any:
        """Return where parts are: a row for each part and chunk."""
        row = _ENTRY.itemsize * self.chunks
        data = self._read(self._index + part * row, parts * row)
        return np.frombuffer(data, _ENTRY)

    def batches(self, part: int) -> Iterator[pa.RecordBatch]:
        """Read the batches of a part, one for each chunk that has any of it.

        Raises:
            CorruptionError: bytes are not what was written.
        """
        for entry in self.entries(part):
            if entry["bytes"]:
                yield self.decode(entry)

    def decode(self, entry: Any) -> pa.RecordBatch:
        """Read the batch that an entry names.

        Raises:
            CorruptionError: bytes are not what was written.
        """
        begin, size, crc = (int(each) for each in entry.tolist())
        data = self._read(begin, size)
        if len(data) != size or zlib.crc32(data) != crc:
            raise self._damaged(begin)
        self.bytes_read += size
        return pa.ipc.read_record_batch(pa.py_buffer(data), self.schema)

    def _read(self, begin: int, size: int) -> Any:
        self._file.seek(begin)
        return self._file.read_buffer(size)

    def _damaged(self, offset: int) -> CorruptionError:
        msg = (
            f"a file between two stages is damaged: {self.path} at byte "
            f"{offset}; remove the file and run the job again"
        )
        return CorruptionError(msg, path=str(self.path), offset=offset)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
