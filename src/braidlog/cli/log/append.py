"""``braidlog append``: values from the command line or from stdin."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from operator import itemgetter
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from braidlog.cli.command import parameters
from braidlog.cli.command.commands import EitherCommand, command
from braidlog.cli.command.failures import USAGE, Problem
from braidlog.cli.command.session import Session, stdin
from braidlog.cli.terminal.output import line
from braidlog.errors import LogError

if TYPE_CHECKING:
    from braidlog.cli.command.session import Log

# One read takes what is there, so that a slow producer's lines are durable at once and
# a fast one's go in large batches.
_READ_BYTES = 1 << 20
# The largest batch, and so the largest record. Who reads on without a bound takes all
# memory for what is refused in the end.
_VALUE_BYTES_MAX = 16 << 20


@dataclass(slots=True)
class AppendedRange:
    """Positions that one run appended."""

    first: int | None = None
    end: int | None = None
    records: int = 0

    def add(self, positions: Sequence[int]) -> None:
        """Take in the positions of one more batch; in a cluster they may have gaps."""
        first, last = min(positions), max(positions)
        self.first = first if self.first is None else min(self.first, first)
        self.end = last + 1 if self.end is None else max(self.end, last + 1)
        self.records += len(positions)

    def settle(self, store: Any, log: Log, begin: int) -> None:
        """Take in what was under way when an append ended early.

        This process is the only writer, so it is what the log has grown by.
        """
        with suppress(LogError):
            store.sync()
            if log.end > begin:
                self.first, self.end, self.records = begin, log.end, log.end - begin


@command(kind=EitherCommand)
@click.argument("log")
@click.argument("values", nargs=-1)
@click.option("--key", help="Key of every record.")
@click.option(
    "--key-separator",
    type=parameters.delimiter,
    help="Split each input into key and value at this text.",
)
@click.option(
    "--delimiter",
    type=parameters.delimiter,
    default=r"\n",
    help=(
        "Separator of the values on stdin [default: \\n; also \\0, \\t or any text]."
    ),
)
@click.option(
    "--null",
    is_flag=True,
    help="Append one record with a null value, which deletes its key in `compact`.",
)
@click.option("--create", is_flag=True, help="Create the log if there is none.")
def append(
    session: Session,
    log: str,
    values: tuple[str, ...],
    *,
    key: str | None,
    key_separator: bytes | None,
    delimiter: bytes,
    null: bool,
    create: bool,
) -> None:
    """Append values or the lines of stdin.

    VALUES, or else the lines of stdin, are durable in LOG when the command returns.
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator cannot be combined")
    if null and (values or key_separator is not None):
        raise click.UsageError("--null takes no values: they are not null")
    batches: Iterable[list[Any]]
    if null:
        batches = [[None]]
    elif values:
        batches = [[os.fsencode(value) for value in values]]
    else:
        batches = groups(stdin(), delimiter)
    appended = AppendedRange()
    with session.changing(create=create) as store:
        target = store.create_log(log, exist_ok=True) if create else store.log(log)
        begin = 0 if session.cluster else target.end
        try:
            _append_all(target, batches, key, key_separator, appended)
        except BaseException as error:
            if session.cluster is None:
                appended.settle(store, target, begin)
            else:
                note_unknown(error)
            raise
        finally:
            _report(session, log, appended)


def note_unknown(error: BaseException) -> None:
    """Say what a cluster may have stored of what was not acknowledged."""
    interrupted = isinstance(error, KeyboardInterrupt)
    if interrupted or getattr(error, "outcome", "") == "unknown":
        error.add_note("values that were in flight may be stored as well")


def groups(stream: BinaryIO, delimiter: bytes) -> Iterator[list[bytes]]:
    """Split a stream at `delimiter`; yield what each read completed, never empty.

    Raises:
        Problem: A value is longer than any record; it is not read to its end.
    """
    rest = bytearray()
    while block := _read(stream):
        # Small reads of a long value must not search it again from its begin.
        unseen = max(0, len(rest) - len(delimiter) + 1)
        rest += block
        if rest.find(delimiter, unseen) >= 0:
            *complete, last = bytes(rest).split(delimiter)
            rest = bytearray(last)
            yield complete
        if len(rest) > _VALUE_BYTES_MAX:
            raise Problem(
                f"a value on stdin has more than {_VALUE_BYTES_MAX} bytes, the most "
                "that a record can hold",
                "the values before it were appended; --delimiter says what ends a "
                "value",
            )
    if rest:
        yield [bytes(rest)]


def _read(stream: BinaryIO) -> bytes:
    read_available = getattr(stream, "read1", stream.read)
    return bytes(read_available(_READ_BYTES))


def _append_all(
    log: Log,
    batches: Iterable[list[Any]],
    key: str | None,
    separator: bytes | None,
    appended: AppendedRange,
) -> None:
    for batch in batches:
        if separator is not None:
            pairs = list(
                takewhile(itemgetter(1), (v.partition(separator) for v in batch))
            )
            if pairs:
                keys, _, values = zip(*pairs, strict=True)
                appended.add(log.append_many(values, keys=keys))
            if len(pairs) < len(batch):
                raise Problem(
                    f"input {appended.records + 1} does not contain the key separator "
                    f"{os.fsdecode(separator)!r}",
                    "the inputs before it were appended; correct it and continue from "
                    "there",
                    USAGE,
                )
        elif key is not None:
            appended.add(log.append_many(batch, keys=[os.fsencode(key)] * len(batch)))
        else:
            appended.add(log.append_many(batch))


def _report(session: Session, log: str, appended: AppendedRange) -> None:
    if appended.first is None or appended.end is None:
        text = "nothing was acknowledged"
    elif appended.records < appended.end - appended.first:
        # Others append to a cluster as well, and its streams take turns.
        text = f"appended {appended.records}"
        text += f" between {appended.first} and {appended.end - 1}"
    else:
        text = f"appended {appended.records}: {appended.first} to {appended.end - 1}"
    line(
        session,
        text,
        log=log,
        first=appended.first,
        end=appended.end,
        records=appended.records,
    )
