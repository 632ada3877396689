"""``braidlog import``: files into a log, exactly once if asked."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from braidlog.cli.command import parameters
from braidlog.cli.command.commands import EitherCommand, command
from braidlog.cli.command.failures import Problem, explain
from braidlog.cli.command.session import Session
from braidlog.cli.files.fields import UNITS, Fields, Row
from braidlog.cli.files.rows import FORMATS, format_of, rows_of
from braidlog.cli.terminal.output import line, message
from braidlog.cli.terminal.progress import meter
from braidlog.cli.terminal.text import counted
from braidlog.errors import LogError, StoreFailedError, TooLargeError
from braidlog.types import Producer

if TYPE_CHECKING:
    from braidlog.cli.command.session import Log, Logs

# A batch this large is written in one go; some of them in flight hide the syncs.
_BATCH_BYTES = 1 << 20
_BATCHES_IN_FLIGHT = 8


@command("import", EitherCommand)
@click.argument("log")
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=parameters.LocalPath(exists=True, dir_okay=False, allow_dash=True),
)
@click.option(
    "--format",
    "layout",
    type=click.Choice(FORMATS),
    help="Format of the files [default: from the name].",
)
@click.option("--value", metavar="FIELD", help="Value [default: the row as JSON].")
@click.option("--key", metavar="FIELD", help="Key [default: none].")
@click.option("--timestamp", metavar="FIELD", help="Timestamp [default: now].")
@click.option(
    "--headers",
    metavar="FIELD",
    help="Headers: pairs of name and text, or an object [default: none].",
)
@click.option(
    "--timestamp-unit",
    "unit",
    type=click.Choice(list(UNITS)),
    default="us",
    show_default=True,
    help="Unit of timestamps that are numbers.",
)
@click.option(
    "--null",
    metavar="TEXT",
    help="Text of --value that is a null value, such as \\N in CSV [default: none].",
)
@click.option(
    "--producer",
    metavar="NAME",
    help=(
        "Store each row once, however often this runs: with the same NAME and files, it"
        " resumes where the log says it stopped."
    ),
)
@click.option(
    "--skip",
    type=parameters.COUNT,
    default=0,
    metavar="ROWS",
    help="Skip this many rows at the beginning.",
)
@click.option(
    "--batch",
    "records_max",
    type=parameters.Whole(1, 1 << 20),
    default=4096,
    show_default=True,
    help="Records in a batch at most.",
)
@click.option("--create", is_flag=True, help="Create the log if there is none.")
def import_(
    session: Session,
    /,
    log: str,
    files: tuple[Path, ...],
    *,
    layout: str | None,
    producer: str | None,
    skip: int,
    records_max: int,
    create: bool,
    **names: Any,
) -> None:
    """Append the rows of files.

    FILES are Parquet, or JSONL or CSV (plain, .gz or .zst). Their rows are appended to
    LOG in order. A file can be - for stdin.
    """
    if producer is not None and (skip or not producer):
        raise click.UsageError(
            "--producer needs a name; --skip cannot be combined with it"
        )
    layouts = [layout or format_of(path) for path in files]
    with session.changing(create=create) as store:
        target = store.create_log(log, exist_ok=True) if create else store.log(log)
        kind = SharedIngest if session.cluster else AsyncIngest
        ingest = kind(store, target, _producer(producer), skip)
        try:
            with meter("import", _size(files), unit="bytes") as progress:
                source = Source(files, layouts, Fields(**names), progress.at)
                ingest.run(source, records_max)
        finally:
            _report(session, ingest)
        if producer is not None and ingest.skipped and not ingest.appended:
            message(
                f"note: every row counted as stored by producer {producer} already; "
                "for other files use another --producer"
            )


def _report(session: Session, ingest: AsyncIngest) -> None:
    count, log = ingest.appended, ingest.log.name
    text = f"imported {counted(count, 'record')} into {log}"
    if count:
        text += f": {ingest.begin} to {ingest.end - 1}"
    if ingest.skipped:
        text += f"; {ingest.skipped} skipped"
    line(
        session,
        text,
        log=log,
        records=count,
        skipped=ingest.skipped,
        first=ingest.begin if count else None,
        end=ingest.end if count else None,
    )


class Source:
    """The rows of files, one after the other, and where each comes from."""

    def __init__(
        self,
        files: Sequence[Path],
        layouts: Sequence[str],
        fields: Fields,
        at: Callable[[int], None],
    ) -> None:
        """Read nothing yet; `at` is told how many bytes were read."""
        self._files = files
        self._layouts = layouts
        self._fields = fields
        self._at = at
        self._starts: list[tuple[int, Path]] = []

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows."""
        count = before = 0
        for path, layout in zip(self._files, self._layouts, strict=True):
            self._starts.append((count, path))
            base = before

            def seen(done: int, base: int = base) -> None:
                self._at(base + done)

            for row in rows_of(path, layout, self._fields, seen):
                count += 1
                yield row
            before += _size([path]) or 0

    def place(self, index: int) -> str:
        """Name file and row of what comes behind so many rows."""
        started = (
            [(self._files[0], 0)]
            if not self._starts
            else [(path, start) for start, path in self._starts if start <= index]
        )
        path, start = started[-1]
        return f"{path}, row {index - start + 1}"


class AsyncIngest:
    """Appends rows in batches, a few of them in flight.

    This process is the only writer and this the only appender, so what the log has
    grown by is what was imported.
    """

    def __init__(
        self,
        store: Logs,
        log: Log,
        producer: Producer | None,
        skip: int,
    ) -> None:
        """Append to `log`; a producer skips what the log has of it."""
        self.log = log
        self.begin = log.end
        self.skipped = 0
        self._node: Any = store
        self._producer = producer
        self._skip = skip if producer is None else log.next_sequence(producer) - 1
        self._sent = self._skip
        self._pending: deque[Any] = deque()
        self._unclear = False
        """Whether more may be stored than is known."""

    @property
    def appended(self) -> int:
        """Records that are durable."""
        return self.log.end - self.begin

    @property
    def end(self) -> int:
        """Position behind the last record that is durable."""
        return self.log.end

    def run(self, source: Source, records_max: int) -> None:
        """Append all rows; a failure or an interrupt gets a note how to go on."""
        try:
            rows = iter(source)
            for _ in islice(rows, self._skip):
                self.skipped += 1
            for batch in _batches(rows, records_max):
                self._submit(batch, source)
                if len(self._pending) >= _BATCHES_IN_FLIGHT:
                    self._settle()
            while self._pending:
                self._settle()
        except BaseException as error:
            self._wait_for_the_rest()
            if self._unclear or self.skipped + self.appended > 0:
                error.add_note(self._how_to_go_on(source, error))
            raise

    def _settle(self) -> None:
        self._pending.popleft().result()

    def _wait_for_the_rest(self) -> None:
        """Wait until what is under way is durable or refused."""
        with suppress(LogError):
            self._node.sync()

    def _submit(self, batch: Sequence[Row], source: Source) -> None:
        try:
            self._send(batch)
        except TooLargeError as error:
            # Nothing of it was appended. Row by row it goes up to the one that is.
            if len(batch) > 1:
                for row in batch:
                    self._submit([row], source)
                return
            failure = explain(error)
            raise Problem(
                f"{source.place(self._sent)}: {failure.message}",
                failure.hint,
                failure.exit_code,
            ) from None

    def _send(self, batch: Sequence[Row]) -> None:
        once: dict[str, Any] = {}
        if self._producer is not None:
            once = {"producer": self._producer, "sequence": self._sent + 1}
        keys = [row.key for row in batch]
        pending = self.log.submit_many(
            [row.value for row in batch],
            keys=keys if any(key is not None for key in keys) else None,
            timestamps=[row.timestamp for row in batch],
            headers=[row.headers for row in batch]
            if any(row.headers for row in batch)
            else None,
            **once,
        )
        self._pending.append(pending)
        self._sent += len(batch)

    def _how_to_go_on(self, source: Source, error: BaseException) -> str:
        done = self._skip + self.appended
        if self.skipped < self._skip:
            return f"it is among the {self._skip} rows to skip; nothing was appended"
        if self._producer is not None:
            way = "run the same command again to continue there"
        elif isinstance(error, StoreFailedError):
            way = (
                "if more rows were stored, pass --skip with the end that `braidlog "
                f"log list` shows, less {self.begin - self._skip}"
            )
        else:
            way = f"pass --skip {done} to continue there"
        return f"next is {source.place(done)}; {way}"


class SharedIngest(AsyncIngest):
    """Appends rows to a log of a cluster, to which others may append as well.

    What was imported is what was acknowledged to this process.
    """

    def __init__(self, *args: Any) -> None:
        """Begin with nothing acknowledged."""
        super().__init__(*args)
        self.begin = self._end = self._records = 0
        self._hole = False

    @property
    def appended(self) -> int:
        """Records that were acknowledged."""
        return self._records

    @property
    def end(self) -> int:
        """Position behind the last record that was acknowledged."""
        return self._end

    def _settle(self) -> None:
        pending = self._pending.popleft()
        try:
            positions = pending.result()
        except BaseException as error:
            self._hole = True
            self._unclear |= getattr(error, "outcome", "unknown") == "unknown"
            raise
        # Behind a hole no number of rows says what is stored.
        self._unclear |= self._hole
        first, last = min(positions), max(positions)
        self.begin = min(self.begin or first, first)
        self._end = max(self._end, last + 1)
        self._records += len(positions)

    def _wait_for_the_rest(self) -> None:
        while self._pending:
            with suppress(LogError):
                self._settle()

    def _how_to_go_on(self, source: Source, error: BaseException) -> str:
        if self._producer is None and self._unclear:
            count = counted(self.appended, "record")
            return (
                f"{count} were acknowledged, and more may be stored; with "
                "--producer the same command continues by itself"
            )
        return super()._how_to_go_on(source, error)


def _batches(rows: Iterator[Row], records_max: int) -> Iterator[list[Row]]:
    """Yield rows in batches, also the good ones before a bad one."""
    batch: list[Row] = []
    size = 0
    try:
        for row in rows:
            batch.append(row)
            size += row.size
            if size >= _BATCH_BYTES or len(batch) >= records_max:
                yield batch
                batch, size = [], 0
    except Problem:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def _size(files: Sequence[Path]) -> int | None:
    """Return the bytes to read, if they are known."""
    if not all(path.is_file() for path in files):
        return None
    return sum(path.stat().st_size for path in files)


def _producer(name: str | None) -> Producer | None:
    """Make the same identity of the same name, in every run and on every machine."""
    if name is None:
        return None
    digest = hashlib.sha256(name.encode()).digest()
    return Producer(int.from_bytes(digest[:8], "little") or 1)
