"""What the protocols of a sink ask of the shell that runs them, one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from braidlog.spark.sink.ledger.entries import Entry, FileList, StagedFile
from braidlog.types import Producer


@dataclass(frozen=True, slots=True)
class Read:
    """Read the ledger to its end. Answer: `LedgerState`."""


@dataclass(frozen=True, slots=True)
class Propose:
    """Append an entry to the ledger. Answer: None."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Look:
    """Look where the log ends. Answer: position."""


@dataclass(frozen=True, slots=True)
class CheckFiles:
    """Look whether staged files are there, as this driver sees them.

    Answer: by the path of each that is not, what is wrong with it.
    """

    staging: str
    files: tuple[StagedFile, ...]


@dataclass(frozen=True, slots=True)
class WriteList:
    """Write down beside the staged files which they are; durable on return.

    Answer: `FileList`.
    """

    query: str
    batch: int
    attempt: str
    staging: str
    files: tuple[StagedFile, ...]


@dataclass(frozen=True, slots=True)
class ReadList:
    """Read such a list.

    Answer: the files; a `StagedFileError` if it is gone, or not as it was written.
    """

    staging: str
    listed: FileList


@dataclass(frozen=True, slots=True)
class AskNext:
    """Ask streams for the next sequence of a producer. Answer: by stream.

    None for a stream in which a later epoch of the producer is in charge, 0 for one
    that was removed from the log.
    """

    producers: Mapping[int, Producer]


@dataclass(frozen=True, slots=True)
class Home:
    """Ask for the stream of a producer, which never changes. Answer: the stream."""

    producer: Producer


@dataclass(frozen=True, slots=True)
class Find:
    """Search a stream for what a producer stored from a position on.

    Answer: the next sequence behind it, 1 if there is nothing.
    """

    stream: int
    producer: Producer
    since: int


@dataclass(frozen=True, slots=True)
class Part:
    """Records of a staged file from ``skip`` on."""

    file: StagedFile
    skip: int


@dataclass(frozen=True, slots=True)
class Store:
    """Append parts to a stream, in order; durable on return. Answer: None or an error.

    A `StagedFileError` if a file is not as its task wrote it: what was before it in the
    parts may be stored, and nothing behind it is.
    """

    stream: int
    staging: str
    parts: tuple[Part, ...]
    producer: Producer
    sequence: int


@dataclass(frozen=True, slots=True)
class RemoveBatches:
    """Remove what is staged for a query's batches up to one. Answer: None."""

    query: str
    up_to: int


@dataclass(frozen=True, slots=True)
class RemoveAttempt:
    """Remove what an attempt staged for a batch. Answer: None."""

    query: str
    batch: int
    attempt: str


Effect: TypeAlias = (
    Read
    | Propose
    | Look
    | CheckFiles
    | WriteList
    | ReadList
    | AskNext
    | Home
    | Find
    | tuple[Store, ...]  # To different streams, so at the same time. Answer: a list.
    | RemoveBatches
    | RemoveAttempt
)
