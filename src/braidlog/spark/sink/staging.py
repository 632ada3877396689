"""Files that tasks leave for the driver: written, synced, renamed, checked, removed.

| path | what |
|---|---|
| ``QUERY/BATCH/ATTEMPT/`` | what one run of a batch's tasks staged |
| ``.../PARTITION-TASK-STREAM.arrow`` | records of a task for a stream, an Arrow file |

A file is there under its name only when it is complete and durable. Attempts of a task
write different files, and the driver names those that count.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
import zlib
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa

from braidlog.errors import NotFoundError, UnavailableError
from braidlog.ledger import StagedFile
from braidlog.spark.chunks import rechunk
from braidlog.spark.sink.rows import SCHEMA

__all__ = ["LEFT_AFTER_S", "Staging", "TaskFiles"]

LEFT_AFTER_S: Final = 7 * 24 * 3600.0
"""Age at which what nobody came back for is taken as left by a dead job."""

_OPEN: Final = ".part"


class Staging:
    """A staging directory, as the driver sees it."""

    def __init__(self, root: str | Path) -> None:
        """Bind to a directory, which need not be there yet."""
        self.root = Path(root)

    def attempt(self, query: str, batch: int, attempt: str) -> Path:
        """Return the directory of an attempt."""
        return self._batches(query) / str(batch) / attempt

    def _batches(self, query: str) -> Path:
        # The name of a job may be anything, but one part of a path it must be.
        return self.root / quote(query, safe="").replace(".", "%2E")

    def missing(self, files: Iterable[StagedFile]) -> NotFoundError | None:
        """Return an error if a file is not there in its length."""
        for file in files:
            path = self.root / file.path
            size = path.stat().st_size if path.exists() else None
            if size != file.bytes:
                found = "is not there" if size is None else f"has {size} bytes"
                return NotFoundError(
                    f"a task staged {path} with {file.bytes} bytes, and it {found}: "
                    "do the driver and all workers see the same staging directory?"
                )
        return None

    def batches(
        self, file: StagedFile, skip: int
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the records of a file from ``skip`` on, in batches of about 1 MB.

        Raises:
            NotFoundError: the file is gone.
            UnavailableError: it is not as the task wrote it.
        """
        path = self.root / file.path
        try:
            mapped = pa.memory_map(str(path))
        except FileNotFoundError:
            raise NotFoundError(f"the staged file {path} is gone") from None
        with mapped:
            data = mapped.read_buffer()
            if zlib.crc32(data) != file.checksum:
                msg = f"the staged file {path} is not as its task wrote it"
                raise UnavailableError(msg, path=str(path))
            yield from rechunk(_from(pa.ipc.open_file(data), skip))

    def remove_batches(self, query: str, up_to: int) -> None:
        """Remove what is staged for a query's batches up to one."""
        for path in _listed(self._batches(query)):
            if path.name.isdecimal() and int(path.name) <= up_to:
                shutil.rmtree(path, ignore_errors=True)
        self._prune(self._batches(query))

    def remove_attempt(self, query: str, batch: int, attempt: str) -> None:
        """Remove what an attempt staged for a batch."""
        path = self.attempt(query, batch, attempt)
        shutil.rmtree(path, ignore_errors=True)
        self._prune(path.parent)
        self._prune(path.parent.parent)

    def left(self, now: float) -> list[tuple[str, int, str]]:
        """Return attempts that nobody touched for a week, as query, batch and id."""
        return [
            (unquote(query.name), int(batch.name), attempt.name)
            for query in _listed(self.root)
            for batch in _listed(query)
            if batch.name.isdecimal()
            for attempt in _listed(batch)
            if now - attempt.stat().st_mtime > LEFT_AFTER_S
        ]

    def _prune(self, path: Path) -> None:
        try:
            path.rmdir()
        except OSError:
            return  # There is more in it, or it is gone: either is fine.


def _listed(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else []


def _from(reader: Any, skip: int) -> Iterator[pa.RecordBatch]:
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        if skip < batch.num_rows:
            yield batch.slice(skip)
        skip = max(0, skip - batch.num_rows)


class TaskFiles:
    """The files of one attempt of a task, one for each stream that gets records."""

    def __init__(self, folder: Path, root: Path, task: str) -> None:
        """Bind to the directory of the attempt; ``task`` names this try of a task."""
        self._folder = folder
        self._root = root
        self._task = f"{task}-{secrets.token_hex(4)}"
        self._open: dict[int, _OpenFile] = {}

    def add(self, stream: int, rows: pa.RecordBatch) -> None:
        """Append records of a stream."""
        file = self._open.get(stream)
        if file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{self._task}-{stream}.arrow"
            file = self._open[stream] = _OpenFile(path)
        file.writer.write_batch(rows)
        file.records += rows.num_rows

    def close(self) -> list[StagedFile]:
        """Make the files durable and give them their names.

        Raises:
            UnavailableError: the system refused.
        """
        try:
            staged = [self._close(stream) for stream in sorted(self._open)]
            if staged:
                _sync_up_to(self._folder, self._root)
        except OSError as error:
            msg = f"staging in {self._folder} failed: {error}"
            raise UnavailableError(msg, path=str(self._folder)) from error
        return staged

    def _close(self, stream: int) -> StagedFile:
        file = self._open[stream]
        file.finish()
        path = str(file.path.relative_to(self._root))
        return StagedFile(path, stream, file.records, file.sink.bytes, file.sink.crc)

    def discard(self) -> None:
        """Remove what was written. Errors are of no interest: the driver tidies up."""
        for file in self._open.values():
            file.sink.file.close()
            for path in (file.path, file.aside):
                path.unlink(missing_ok=True)


class _Counted:
    """A file that knows how long it is and what its checksum is."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")
        self.bytes = 0
        self.crc = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self.crc = zlib.crc32(data, self.crc)
        self.bytes += len(data)
        self.file.write(data)
        return len(data)

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.closed = True


class _OpenFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.aside = path.with_name(path.name + _OPEN)
        self.records = 0
        self.sink = _Counted(self.aside)
        self.writer = pa.ipc.new_file(pa.PythonFile(self.sink, "w"), SCHEMA)

    def finish(self) -> None:
        self.writer.close()
        self.sink.file.flush()
        os.fsync(self.sink.file.fileno())
        self.sink.file.close()
        self.aside.rename(self.path)


def _sync_up_to(folder: Path, root: Path) -> None:
    """Make the names in a directory durable, and those of the directories above."""
    while True:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        if folder in (root, folder.parent):
            return
        folder = folder.parent


def clock() -> float:
    """Return the time that ages of files are told from."""
    return time.time()
