"""Staged files that are lost after the ledger has decided for them.

Theory of operation: what a batch consists of is decided, and some of it may be stored,
so nothing else can take its place. But who runs the batch again stages it again, and a
file with the same stream, number of records, length and checksum has the same records
in the same order. So the file of the new run is read in place of the lost one;
sequences follow from the numbers of records, which are the same.

What gives other bytes when it is run again is another batch, and refused: which of its
records are stored already nobody could tell.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from braidlog.errors import CorruptionError, UnavailableError
from braidlog.spark.sink.ledger.effects import CheckFiles, ReadList
from braidlog.spark.sink.ledger.entries import Batch, FileList, StagedFile, digest_of
from braidlog.spark.sink.ledger.state import Query

_NAMED: Final = 3


class StagedFileError(UnavailableError):
    """A staged file is gone, or is not as its task wrote it."""

    code = 141
    file: str = ""
    """Its name in the ledger."""


class LostFilesError(CorruptionError):
    """Of a batch that was decided and is not stored yet, staged files are lost."""

    code = 142
    hint = (
        "Put the files back, or run the same batch again; if its tasks give the same"
        " records in the same order, the batch is completed with them. Otherwise begin"
        " with another checkpoint or job name, which stores the whole batch again"
    )
    query: str = ""
    batch: int = 0
    files: tuple[str, ...] = ()


def replace_lost(
    query: Query,
    needed: Sequence[StagedFile],
    proposal: Batch,
    lost: dict[str, str],
) -> Generator[CheckFiles, Mapping[str, str], tuple[StagedFile, ...]]:
    """Return the files of a decided batch with others for those that are lost.

    ``lost`` says what is wrong with files that are known to be; others of ``needed``,
    and of the proposal, are looked at. All that are found missing are added to it.

    Raises:
        LostFilesError: the proposal has no file with the same bytes.
    """
    lost |= yield CheckFiles(query.staging, tuple(needed))
    spare = {}
    if proposal.batch == query.batch:
        own = tuple(_elsewhere(file, proposal.staging) for file in proposal.files)
        lost |= yield CheckFiles(proposal.staging, own)
        bad = {*lost, *(f"{query.staging.rstrip('/')}/{path}" for path in lost)}
        spare = {_content(file): file for file in own if file.path not in bad}
    asked = {file.path for file in needed}
    gone = {file for file in query.files if file.path in asked and file.path in lost}
    without = [
        file for file in query.files if file in gone and _content(file) not in spare
    ]
    if without:
        raise _refusal(proposal.query, query, without, lost)
    return tuple(
        spare[_content(file)] if file in gone else file for file in query.files
    )


def read_list(
    query: Query, listed: FileList, proposal: Batch
) -> Generator[ReadList, Any, tuple[StagedFile, ...]]:
    """Return the files of a decided batch that are in a list.

    If the list is lost, those of the proposal, if they hold the same.

    Raises:
        LostFilesError: they do not.
    """
    found = yield ReadList(query.staging, listed)
    if not isinstance(found, StagedFileError):
        files: tuple[StagedFile, ...] = found
        return files
    same = digest_of(proposal.files) == listed.content
    if proposal.batch == query.batch and same:
        return tuple(_elsewhere(file, proposal.staging) for file in proposal.files)
    raise LostFilesError(
        (
            f"the list of the {listed.count} files of batch {query.batch} of "
            f"{proposal.query} is {found.path}, which {found.message}"
        ),
        query=proposal.query,
        batch=query.batch,
        files=(listed.path,),
    ) from found


def _elsewhere(file: StagedFile, staging: str) -> StagedFile:
    """Name a file from the root, which is the same below every staging directory."""
    return replace(file, path=f"{staging.rstrip('/')}/{file.path}")


def _content(file: StagedFile) -> tuple[int, int, int, int]:
    return file.stream, file.records, file.bytes, file.checksum


def _refusal(
    name: str, query: Query, without: Sequence[StagedFile], lost: Mapping[str, str]
) -> LostFilesError:
    files = "; ".join(f"{file.path} {lost[file.path]}" for file in without[:_NAMED])
    more = f"; and {len(without) - _NAMED} more" if len(without) > _NAMED else ""
    records = sum(file.records for file in without)
    return LostFilesError(
        f"batch {query.batch} of {name} consists of {len(query.files)} files in "
        f"{query.staging}, of which {len(without)} with {records} records are lost "
        f"before all of them were stored: {files}{more}",
        query=name,
        batch=query.batch,
        files=tuple(file.path for file in without),
    )
