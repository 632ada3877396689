"""Files that tasks leave for the driver: written, synced, renamed, checked, removed.

| path | what |
|---|---|
| ``QUERY/BATCH/ATTEMPT/`` | what one run of a batch's tasks staged |
| ``.../PARTITION-TASK-STREAM.arrow`` | records of a task for a stream, an Arrow file |
| ``.../RANDOM.files`` | which files the driver of a large batch proposed |

A file is there under its name only when it is complete and durable. Attempts of a task
write different files, and the driver names those that count.

The driver of a job makes the directory of its attempt, and tasks do not: so what a task
still wrote when the job was given up, or was done without it, has no place to go to. It
is renamed before it is removed, to ``ATTEMPT.gone-...``, so that no file is made in it
meanwhile. Which batch it is of which query only tasks know of a streaming query, and
make the directory themselves: what is late there goes with the next batch.
"""

from __future__ import annotations

import secrets
import shutil
import time
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa

from braidlog import durable
from braidlog.errors import NotSharedError, UnavailableError
from braidlog.handover import TAIL_BYTES, here, problem_of, tail_of
from braidlog.sources.chunks import rechunk
from braidlog.spark.sink.ledger.entries import (
    FileList,
    StagedFile,
    decode_files,
    digest_of,
    encode_files,
)
from braidlog.spark.sink.ledger.lost import StagedFileError
from braidlog.spark.sink.rows import SCHEMA

LEFT_AFTER_S: Final = 7 * 24 * 3600.0
"""Age at which what nobody came back for is taken as left by a dead job."""

_OPEN: Final = ".part"
_LIST: Final = ".files"
_GONE: Final = ".gone-"


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

    def begin(self, query: str, batch: int, attempt: str) -> None:
        """Make the directory of an attempt, for tasks that make none.

        Raises:
            UnavailableError: the system refused.
        """
        folder = self.attempt(query, batch, attempt)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f"staging in {folder} failed: {error}"
            raise UnavailableError(msg, path=str(folder)) from error

    def missing(
        self, files: Iterable[StagedFile], tails: Mapping[str, tuple[str, str]]
    ) -> dict[str, str]:
        """Say what is wrong with files that this process does not see as they were.

        ``tails`` are checksums of last bytes, by path, and the machine that wrote them.
        """
        found = {}
        for file in files:
            tail, worker = tails.get(file.path, ("", ""))
            size = min(TAIL_BYTES, file.bytes)
            problem = problem_of(self.root / file.path, file.bytes, size, tail)
            if problem:
                wrote = f" (looked at from {here()}; {worker} wrote it)"
                found[file.path] = problem + wrote * bool(worker)
        return found

    def write_list(
        self, attempt: tuple[str, int, str], files: tuple[StagedFile, ...]
    ) -> FileList:
        """Write down which files an attempt consists of; durable on return.

        Raises:
            UnavailableError: the system refused.
        """
        folder = self.attempt(*attempt)
        path = folder / f"{secrets.token_hex(8)}{_LIST}"
        data = encode_files(files)
        try:
            # Another driver may be done with the batch, and have removed all of it.
            folder.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(path.name + _OPEN)
            durable.replace(path, data, temporary=temporary)
            durable.sync_up_to(folder.parent, self.root)
        except OSError as error:
            msg = f"staging in {folder} failed: {error}"
            raise UnavailableError(msg, path=str(folder)) from error
        return FileList(
            str(path.relative_to(self.root)),
            len(data),
            zlib.crc32(data),
            len(files),
            digest_of(files),
        )

    def read_list(self, listed: FileList) -> tuple[StagedFile, ...]:
        """Return the files that a list names.

        Raises:
            StagedFileError: it is gone, or not as it was written.
        """
        path = self.root / listed.path
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            msg = "is not there"
            raise StagedFileError(msg, path=str(path), file=listed.path) from None
        except OSError as error:
            msg = f"{path} cannot be read: {error}"
            raise UnavailableError(msg, path=str(path)) from error
        if (len(data), zlib.crc32(data)) != (listed.bytes, listed.checksum):
            msg = "differs from what its driver wrote"
            raise StagedFileError(msg, path=str(path), file=listed.path)
        return decode_files(data)

    def batches(
        self, file: StagedFile, skip: int
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the records of a file from ``skip`` on, in batches of about 1 MB.

        Raises:
            StagedFileError: the file is gone, or not as the task wrote it.
        """
        path = self.root / file.path
        try:
            mapped = pa.memory_map(str(path))
        except FileNotFoundError:
            msg = "is not there"
            raise StagedFileError(msg, path=str(path), file=file.path) from None
        with mapped:
            data = mapped.read_buffer()
            if zlib.crc32(data) != file.checksum:
                msg = "differs from what its task wrote"
                raise StagedFileError(msg, path=str(path), file=file.path)
            yield from rechunk(_from(pa.ipc.open_file(data), skip))

    def remove_batches(self, query: str, up_to: int) -> None:
        """Remove what is staged for a query's batches up to one."""
        for path in _listed(self._batches(query)):
            if path.name.isdecimal() and int(path.name) <= up_to:
                for attempt in _listed(path):
                    _remove(attempt)
                self._prune(path)
        self._prune(self._batches(query))

    def remove_attempt(self, query: str, batch: int, attempt: str) -> None:
        """Remove what an attempt staged for a batch."""
        path = self.attempt(query, batch, attempt)
        _remove(path)
        self._prune(path.parent)
        self._prune(path.parent.parent)

    def left(self, now: float) -> list[tuple[str, int, str]]:
        """Return attempts that nobody touched for a week, as query, batch and id.

        A driver that died while it removed one left the rest of it: that goes here.
        """
        for path in self.root.glob(f"*/*/*{_GONE}*"):
            shutil.rmtree(path, ignore_errors=True)
            self._prune(path.parent)
            self._prune(path.parent.parent)
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


def _remove(attempt: Path) -> None:
    """Remove the directory of an attempt, so that nothing is made in it any more."""
    aside = attempt.with_name(f"{attempt.name}{_GONE}{secrets.token_hex(4)}")
    try:
        # Not by `durable`: nobody needs it again.
        attempt.rename(aside)
    except OSError:
        return  # It is gone; or it stays until it is a week old.
    shutil.rmtree(aside, ignore_errors=True)


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

    def __init__(
        self, folder: Path, root: Path, task: str, *, make: bool = False
    ) -> None:
        """Bind to the directory of the attempt; ``task`` names this try of a task.

        Without `make` the driver has made the directory.
        """
        self._folder = folder
        self._make = make
        self._root = root
        self._task = f"{task}-{secrets.token_hex(4)}"
        self._open: dict[int, _OpenFile] = {}
        self.tails: list[str] = []
        """Checksums of the last bytes of what `close` returned."""

    def add(self, stream: int, rows: pa.RecordBatch) -> None:
        """Append records of a stream.

        Raises:
            NotSharedError: there is no directory of the attempt.
            UnavailableError: the system refused.
        """
        try:
            file = self._open.get(stream)
            if file is None:
                if self._make:
                    self._folder.mkdir(parents=True, exist_ok=True)
                path = self._folder / f"{self._task}-{stream}.arrow"
                file = self._open[stream] = _OpenFile(path)
            file.writer.write_batch(rows)
        except OSError as error:
            raise self._refused(error) from error
        file.records += rows.num_rows

    def close(self) -> list[StagedFile]:
        """Make the files durable and give them their names.

        Raises:
            NotSharedError: the directory of the attempt is gone.
            UnavailableError: the system refused.
        """
        try:
            staged = [self._close(stream) for stream in sorted(self._open)]
            if staged:
                durable.sync_up_to(self._folder, self._root)
        except OSError as error:
            raise self._refused(error) from error
        return staged

    def _refused(self, error: OSError) -> NotSharedError | UnavailableError:
        if isinstance(error, FileNotFoundError):
            msg = (
                f"the worker on {here()} does not see {self._folder}: the job was"
                " cancelled or has ended, or the path is a different directory there"
            )
            return NotSharedError(msg, path=str(self._folder), worker=here())
        msg = f"staging in {self._folder} failed: {error}"
        return UnavailableError(msg, path=str(self._folder))

    def _close(self, stream: int) -> StagedFile:
        file = self._open[stream]
        file.finish()
        path = str(file.path.relative_to(self._root))
        self.tails.append(tail_of(file.path)[1])
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
        durable.flush(self.sink.file)
        self.sink.file.close()
        # Not by `durable`: one sync of the directory is enough for all files.
        self.aside.rename(self.path)


def clock() -> float:
    """Return the time that ages of files are told from."""
    return time.time()
