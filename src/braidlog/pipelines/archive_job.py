"""The pipeline ``archive``: write a log to Parquet files, so that it may be trimmed.

*Theory of operation.* A pinning cursor of the log is at the end of the archive. From
there on the log is divided into ranges, and a task writes each range to a file. When
all files are durable, one generation of the archive lists them (`braidlog.archive`).
Then tables of Delta and Iceberg are updated, and then the cursor moves, so that the log
may be trimmed. The trim comes last, after the files were read back.

*Invariants.* Every step first checks what is already done. So if a run is killed
anywhere, the next one completes it, and a run that finds nothing new changes nothing.
Every trimmed record is in the archive, unless somebody trims with ``ignore_pins``,
deletes the cursor, or lets its lease run out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from braidlog import durable
from braidlog.archive import Archive, verify
from braidlog.archive.layout import Manifest, file_of
from braidlog.archive.place import Place
from braidlog.archive.publishing import next_generation, publish, remove_leftovers
from braidlog.archive.reading import newest
from braidlog.archive.rows import LOG_COLUMNS
from braidlog.archive.writing import write_file
from braidlog.errors import (
    AlreadyExistsError,
    ArchiveDamagedError,
    InvalidArgumentError,
    LockedError,
)
from braidlog.handover import here, problem_of
from braidlog.pipelines.execution import run
from braidlog.pipelines.job import (
    Attempt,
    File,
    Job,
    Progress,
    Report,
    Result,
    Stage,
)
from braidlog.pipelines.journal import JobJournal
from braidlog.pipelines.lakes import Lakes
from braidlog.pipelines.trim_control import TrimControl, pinned, trim_control
from braidlog.sources.origin import Origin
from braidlog.sources.plan import Span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CURSOR: Final = "archive"
"""Name of the cursor that stands where the archive ends."""

BYTES_PER_FILE: Final = 128 << 20
"""About how much of a log becomes one file; it takes less when it is compressed."""

_NAME: Final = "archive"
_JOBS: Final = ".job"


@dataclass(frozen=True, slots=True)
class _Range:
    """Positions that become one file."""

    begin: int
    end: int


@dataclass(frozen=True)
class _Archiving:
    """What is asked for."""

    origin: Origin
    place: Place
    log: TrimControl | None
    until: int | None
    bytes_per_file: int
    cursor: str
    lease: float | None
    trim: bool
    lakes: Lakes

    # -- what was done before ----------------------------------------------------

    def begin(self) -> int:
        """Finish what an earlier run began, pin the log; return where to go on."""
        with trim_control(self.origin, self.log) as kept:
            manifest = self._manifest(kept.id)
            if manifest is not None:
                self.settle(kept, manifest)
                return manifest.end
            return pinned(kept, self.cursor, None, self.lease)

    def _manifest(self, log_id: str) -> Manifest | None:
        manifest = newest(self.place)
        if manifest is not None and manifest.log_id != log_id:
            raise InvalidArgumentError(
                f"{self.place.location} is the archive of a different log, "
                f"{manifest.log!r}"
            )
        return manifest

    def settle(self, kept: TrimControl, manifest: Manifest) -> dict[str, Any]:
        """Bring everything up to a generation that is durable; may be repeated."""
        # The cursor last, and the trim behind it: whatever fails here keeps records.
        self._see(kept, manifest)
        tables = self.lakes.follow(self.place, manifest)
        if kept.options.archive is None:
            kept.set_archive(self.place.location)
        pinned(kept, self.cursor, manifest.end, self.lease)
        done: dict[str, Any] = {"cursor": manifest.end, **tables}
        if self.trim and kept.first < manifest.end:
            done["read_back"] = self._read_back(manifest, kept.first)
            done["first"] = kept.trim(manifest.end)
        return done

    def _see(self, kept: TrimControl, manifest: Manifest) -> None:
        """Look at the files for which the cursor will let records go.

        Another process may have published them, on another machine.

        Raises:
            ArchiveDamagedError: one is not what was archived. The cursor stays.
        """
        held = [each.position for each in kept.cursors() if each.name == self.cursor]
        begin = max([kept.first, *held])
        for file in manifest.holding(begin, manifest.end):
            path = Path(self.place.path(file.path))
            footer = file.footer_bytes, file.footer_checksum
            if problem := problem_of(path, file.bytes, *footer):
                msg = (
                    f"the file {path} of the archive {problem} (seen from {here()}); "
                    "the cursor was not moved and nothing was trimmed"
                )
                raise ArchiveDamagedError(msg, path=str(path))

    def _read_back(self, manifest: Manifest, first: int) -> int:
        """Read what is about to be trimmed; return how many files that were.

        Raises:
            ArchiveDamagedError: it is not what was archived. Nothing was trimmed.
        """
        found = verify(Archive(self.place, manifest), first, manifest.end)
        for damage in found.damage:
            msg = f"{damage.path}: {damage.problem}; nothing was trimmed"
            raise ArchiveDamagedError(msg, path=damage.path)
        return found.files

    def wanted(self, begin: int) -> tuple[str, int]:
        """Return the identity of the log, and how far it is to be archived.

        Raises:
            BeyondEndError: the log ends before ``until``.
        """
        with self.origin.open() as source:
            if self.until is not None and self.until < begin:
                return source.id, 0
            ranges = source.ranges(self.until, self.bytes_per_file)
            return source.id, max((each.end for each in ranges), default=0)

    # -- the job -----------------------------------------------------------------

    def job(self, begin: int, log_id: str) -> Job:
        """Return the job that archives what comes from a position on."""
        parameters = {
            "log": self.origin.log,
            "log_id": log_id,
            "begin": begin,
            "until": self.until,
            "bytes_per_file": self.bytes_per_file,
        }
        work = partial(_work, self.origin, self.place.location)
        stage = Stage("write", _Range, partial(self._plan, begin), work)
        job = Job(
            _NAME,
            parameters,
            Path(self.place.root),
            (stage,),
            lambda results: self._publish(job, begin, results),
            lambda: self._published(begin),
            reads=self.origin.directories(),
        )
        return job

    def _plan(self, begin: int, _: Sequence[Result]) -> list[_Range]:
        with self.origin.open() as source:
            ranges = source.ranges(self.until, self.bytes_per_file)
        return list(_from(begin, ranges))

    def _published(self, begin: int) -> Mapping[str, Any] | None:
        manifest = newest(self.place)
        if manifest is None or manifest.end <= begin:
            return None
        return _facts(self.place, manifest, begin)

    def _publish(
        self, job: Job, begin: int, results: Sequence[Result]
    ) -> Mapping[str, Any]:
        files = sorted(
            (file_of(result.facts) for result in results), key=lambda file: file.begin
        )
        with trim_control(self.origin, self.log) as kept:
            manifest = self._manifest(kept.id)
            if manifest is None or manifest.job != job.identity:
                manifest = self._next(manifest, kept, job, begin, files)
            remove_leftovers(self.place, manifest)
            done = self.settle(kept, manifest)
        return {**_facts(self.place, manifest, begin), **done}

    def _next(
        self, last: Manifest | None, kept: TrimControl, job: Job, begin: int, files: Any
    ) -> Manifest:
        if last is not None and last.end != begin:
            msg = f"another run archived up to {last.end} in the meantime: run it again"
            raise AlreadyExistsError(msg)
        following = next_generation(
            last, log=kept.name, log_id=kept.id, job=job.identity, files=files
        )
        return publish(self.place, following, f"{job.identity}-{begin}")

    def forget_others(self, identity: str) -> None:
        """Remove notes of jobs that another run has done since."""
        jobs = Path(self.place.root, _JOBS)
        for path in sorted(jobs.glob("*")) if jobs.is_dir() else ():
            if path.name != identity:
                # Whoever runs it will be told that it was too late.
                with (
                    suppress(LockedError),
                    closing(JobJournal(Path(self.place.root), path.name)) as state,
                ):
                    state.clear()


def _from(begin: int, ranges: Sequence[Span]) -> Iterator[_Range]:
    for each in ranges:
        if each.end > begin:
            yield _Range(max(begin, each.begin), each.end)


def _work(origin: Origin, location: str, task: _Range, attempt: Attempt) -> Result:
    """Write one file."""
    with origin.open() as source:
        batches = source.batches(
            task.begin, task.end, columns=[*LOG_COLUMNS, "stream", "llsn"]
        )
        place = Place.of(location)
        file = write_file(place, task.begin, task.end, batches, attempt.name)
    return Result(
        figures={"records": file.rows, "bytes_written": file.bytes},
        files=(
            File(
                file.path,
                file.bytes,
                file.checksum,
                file.footer_bytes,
                file.footer_checksum,
            ),
        ),
        facts=dataclasses.asdict(file),
    )


def _facts(place: Place, manifest: Manifest, begin: int) -> dict[str, Any]:
    new = [file for file in manifest.files if file.begin >= begin]
    streams = {part.stream for file in new for part in file.streams}
    proved = [f"positions {manifest.begin} to {manifest.end - 1} are archived, once"]
    if new:
        dense = f"of {len(streams)} streams are dense from position {begin} on"
        proved.append(f"positions and LLSNs {dense}")
    return {
        "archive": place.location,
        "generation": manifest.generation,
        "begin": manifest.begin,
        "end": manifest.end,
        "added": manifest.end - begin,
        "new_files": len(new),
        "proved": proved,
    }


def archive(
    origin: Origin,
    location: str | Path,
    *,
    log: Any = None,
    until: int | None = None,
    bytes_per_file: int = BYTES_PER_FILE,
    cursor: str = CURSOR,
    lease: float | None = None,
    trim: bool = False,
    delta: bool = False,
    iceberg: str | None = None,
    spark: SparkSession | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Archive the records that the archive lacks, up to the current end of the log.

    ``location`` is a directory that this process and all workers see. ``until`` is the
    last position to archive. The pinning ``cursor`` moves when the files are durable
    and listed, and this process has seen each in its place. Its ``lease``, in seconds,
    lets trims pass an archive that is no longer continued (None: never). With ``trim``,
    the log is trimmed up to the end of the archive, after the files were read back, as
    far as no other cursor pins it. ``delta`` makes the directory a table of Delta too.
    ``iceberg`` is the ``catalog.namespace.table`` that gets the same files.

    A data directory is opened for writing for a moment before and after the work. If
    this process is already its writer, pass the open ``log``.

    An interrupted run is resumed by the same call. A call that finds no new records
    changes nothing.

    Raises:
        LockedError: another process writes to the directory, or the same job runs.
        TrimmedError: records were trimmed before they were archived.
        InvalidArgumentError: the place has the archive of another log, or is not a
            directory, such as a URI.
        AlreadyExistsError: another run archived meanwhile: run again.
        ArchiveDamagedError: a file is missing or could not be read back; nothing was
            trimmed.
        NotSharedError: this process does not see a file that a worker wrote, or a
            worker does not see its input; nothing was published.
    """
    place = Place.of(location)
    durable.make_directory(place.directory)
    lakes = Lakes(delta=delta, iceberg=iceberg)
    lakes.check()
    asked = _Archiving(
        # What it adds to the archive is in the log; the archive may not be there yet.
        replace(origin.absolute(), include_archive=False),
        place,
        log,
        until,
        bytes_per_file,
        cursor,
        lease,
        trim,
        lakes,
    )
    report: Report | None = None
    target = 0
    # Twice where a run that was interrupted had planned less than there is now.
    while (begin := asked.begin()) < target or report is None:
        log_id, target = asked.wanted(begin)
        job = asked.job(begin, log_id)
        asked.forget_others(job.identity)
        if begin >= target:
            job = replace(job, published=partial(_nothing, place, begin))
        report = _joined(
            report, run(job, spark=spark, workers=workers, progress=progress)
        )
    return report


def _nothing(place: Place, begin: int) -> dict[str, Any]:
    manifest = newest(place)
    return {} if manifest is None else _facts(place, manifest, begin)


def _joined(before: Report | None, report: Report) -> Report:
    if before is None:
        return report
    names = [*before.figures, *report.figures]
    figures = {n: before.figures.get(n, 0) + report.figures.get(n, 0) for n in names}
    return replace(
        report,
        began=before.began,
        seconds=before.seconds + report.seconds,
        tasks=before.tasks + report.tasks,
        resumed=before.resumed + report.resumed,
        figures=figures,
    )
