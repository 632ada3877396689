"""How a sink stores a batch exactly once: a pure protocol; a shell does what it says.

Theory of operation: `commit` and `abort` are generators. They yield what is to be done
next (`Effect`) and are sent what came of it; the shell that drives them holds the log,
the ledger and the files, and decides nothing. A driver may stop for ever at any yield,
and any number of them may be on their way for the same batch.

A batch is decided by the ledger (`ledger.state`): a driver that finds an entry uses it,
whatever it staged itself. Then each stream is asked for the next sequence of the
query's producer, and the records from there on are sent with theirs, until none is
left. What another driver has stored meanwhile shows as a refusal: ask again and go on.

A stream remembers some hundred producers only. If it has forgotten this one, or may
have (the next sequence is 1), the log is searched for the batch's records from where
it ended when the batch was decided; if there are some, or sequences below were used by
earlier batches, a `Resume` entry says how to go on in a new epoch, the same for all.

A stream may be removed from the log after a batch was decided for it. What it has of
the batch stays; the rest goes, in the same order, to the stream of another producer.

The files of a large batch are in a list, which is staged like them and which the ledger
names with its length and checksum. A staged file, or a list, of a decided batch that is
lost is replaced by one of the driver's own with the same content
(`braidlog.spark.sink.ledger.lost`); the ledger need not know.

Files are removed when the ledger says that nobody will read them: those of batches that
are done, and those of an attempt that is void.

Invariants: records are sent only of files that the ledger names, or of others with the
same bytes; a file is removed only
if the ledger, read after an entry of this driver, rules out that it is read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from braidlog.errors import (
    CorruptionError,
    FencedError,
    InvalidArgumentError,
    LogError,
    NotFoundError,
    NotSharedError,
    TooLargeError,
)
from braidlog.spark.sink.ledger.effects import (
    AskNext,
    CheckFiles,
    Effect,
    Find,
    Home,
    Look,
    Part,
    Propose,
    Read,
    RemoveAttempt,
    RemoveBatches,
    Store,
    WriteList,
)
from braidlog.spark.sink.ledger.entries import Batch, Done, FileList, Resume, Void
from braidlog.spark.sink.ledger.lost import StagedFileError, read_list, replace_lost
from braidlog.spark.sink.ledger.state import Lane, LedgerState, Query
from braidlog.types import Producer

FILES_INLINE: Final = 512
"""Files that an entry names itself. More are listed in a file of their own: an entry is
a record, which has a largest size."""

REMOVED: Final = 0
"""What `AskNext` answers of a stream that takes nothing any more."""

Protocol: TypeAlias = Generator[Effect, Any, None]


def commit(proposal: Batch) -> Protocol:
    """Store a batch, as it was decided first; ``proposal`` if it is not decided yet.

    Raises:
        FencedError: the attempt is void: another driver gave it up.
        NotSharedError: a file of the proposal is not there as its task wrote it.
        LostFilesError: the proposal cannot replace what was decided and is lost.
        CorruptionError: log and ledger do not belong together any more.
    """
    name, batch = proposal.query, proposal.batch
    proposed = False
    before: Query | None = None
    while True:
        state: LedgerState = yield Read()
        query = state.query(name)
        if query is not None and not query.done:
            # The batch, or the one before it, which nobody has finished.
            if query == before:
                raise CorruptionError(
                    f"the log has later epochs of the producer of {name} than the "
                    "ledger: was the ledger restored from a backup?"
                )
            before = query
            yield from _store(name, query, proposal)
            continue
        if query is not None and query.batch >= batch:
            break
        if query is not None and proposal.attempt in query.void:
            raise FencedError(
                f"attempt {proposal.attempt} of {name!r} was replaced by a newer one"
            )
        if proposed:
            raise CorruptionError(
                f"the ledger does not show batch {batch} of {name} after it was written"
            )
        missing: Mapping[str, str] = yield CheckFiles(proposal.staging, proposal.files)
        if missing:
            state = yield Read()
            query = state.query(name)
            if query is None or query.batch < batch:
                raise _not_staged(proposal, missing)
            continue  # Another driver has decided, and removed what is of no use.
        entry = proposal
        if len(proposal.files) > FILES_INLINE:
            entry = yield from _listed(proposal)
        end: int = yield Look()
        yield Propose(replace(entry, since=end))
        proposed = True
    yield RemoveBatches(name, batch)


def abort(query: str, batch: int, attempt: str) -> Protocol:
    """Give an attempt up and remove its files, unless the ledger has decided for it."""
    yield Propose(Void(query, batch, attempt))
    state: LedgerState = yield Read()
    known = state.queries.get(query)
    if known is None or not known.needs(batch, attempt):
        yield RemoveAttempt(query, batch, attempt)


def _not_staged(proposal: Batch, missing: Mapping[str, str]) -> NotSharedError:
    path, wrong = next(iter(missing.items()))
    path = f"{proposal.staging}/{path}"
    msg = f"a task staged {path}, which {wrong}; nothing was stored"
    return NotSharedError(msg, path=path)


def _listed(proposal: Batch) -> Generator[WriteList, Any, Batch]:
    """Return the proposal with a list in place of its files, which is staged."""
    listed: FileList = yield WriteList(
        proposal.query,
        proposal.batch,
        proposal.attempt,
        proposal.staging,
        proposal.files,
    )
    counts = Query(files=proposal.files).counts()
    per_stream = tuple(sorted(counts.items()))
    return replace(proposal, files=(), listed=listed, per_stream=per_stream)


def _store(name: str, query: Query, proposal: Batch) -> Protocol:
    """Store what is missing of a decided batch; returns early if an epoch has ended."""
    if query.listed is not None:
        files = yield from read_list(query, query.listed, proposal)
        query = replace(query, files=files)
    left = set(query.streams())
    searched: set[int] = set()
    stuck: dict[int, int] = {}
    lost: dict[str, str] = {}
    while left:
        producers = {
            stream: Producer(query.producer, query.lanes[stream].epoch)
            for stream in sorted(left)
        }
        found: Mapping[int, int | None] = yield AskNext(producers)
        sending, retry = [], False
        for stream, producer in producers.items():
            lane, sequence = query.lanes[stream], found[stream]
            if sequence is None:
                return  # The ledger says which epoch it is now.
            if sequence == REMOVED:
                query = yield from _store_elsewhere(query, stream, proposal)
                left.discard(stream)
                retry = True
                continue
            if sequence == 1 and lane.next > 1 and stream not in searched:
                resume = yield from _search(name, query, stream, producer)
                if resume is not None:
                    yield Propose(resume)
                    return
                searched.add(stream)
                retry = True
                continue
            _check_place(name, stream, lane, sequence)
            if sequence >= lane.next:
                left.discard(stream)
                continue
            sequence = max(sequence, lane.first)
            parts = _parts(query, stream, sequence - lane.first)
            sending.append(Store(stream, query.staging, parts, producer, sequence))
        if retry or not sending:
            continue
        outcomes: list[LogError | None] = yield tuple(sending)
        for store, error in zip(sending, outcomes, strict=True):
            searched.discard(store.stream)  # The stream may forget what was stored now.
            if isinstance(error, StagedFileError):
                lost[error.file] = error.message
            else:
                _check_progress(store, error, stuck)
        if any(isinstance(error, StagedFileError) for error in outcomes):
            needed = tuple(part.file for store in sending for part in store.parts)
            files = yield from replace_lost(query, needed, proposal, lost)
            query = replace(query, files=files)
    end: int = yield Look()
    yield Propose(Done(name, query.batch, end))


def _store_elsewhere(
    query: Query, stream: int, proposal: Batch
) -> Generator[Effect, Any, Query]:
    """Store what is missing of a stream that was removed; return the query as it is.

    The stream is sealed for good, so what it has of the batch is the same for all
    drivers. The rest goes to the stream of another producer, whose id follows from the
    batch and the stream.
    """
    lane = query.lanes[stream]
    total = sum(file.records for file in query.files if file.stream == stream)
    there: int = yield Find(stream, Producer(query.producer, lane.epoch), query.since)
    stored, epoch = max(there, lane.first, 1) - lane.first, 1
    heir = _heir(query.producer, query.batch, stream)
    home: int = yield Home(Producer(heir, epoch))
    stuck: dict[int, int] = {}
    lost: dict[str, str] = {}
    while True:
        producer = Producer(heir, epoch)
        found: Mapping[int, int | None] = yield AskNext({home: producer})
        sequence = found[home]
        if sequence is None or sequence == 1:
            following: int = yield Find(home, producer, query.since)
            again: Mapping[int, int | None] = yield AskNext({home: producer})
            if again[home] != sequence:
                continue  # Another driver has begun since.
            if sequence is None or following > 1:
                # The stream has forgotten the producer, or another driver saw that.
                stored, epoch = stored + following - 1, epoch + 1
                continue
        done = stored + sequence - 1
        if done >= total:
            return query
        parts = _parts(query, stream, done)
        store = Store(home, query.staging, parts, producer, sequence)
        outcomes: list[LogError | None] = yield (store,)
        if isinstance(error := outcomes[0], StagedFileError):
            lost[error.file] = error.message
            needed = tuple(part.file for part in parts)
            files = yield from replace_lost(query, needed, proposal, lost)
            query = replace(query, files=files)
        else:
            _check_progress(store, error, stuck)


def _heir(producer: int, batch: int, stream: int) -> int:
    """Return the id of the producer that goes on for a removed stream."""
    text = f"{producer}/{batch}/{stream}".encode()
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1


def _search(
    name: str, query: Query, stream: int, producer: Producer
) -> Generator[Effect, Any, Resume | None]:
    """Say how to go on if a stream has forgotten the producer; None if it has not."""
    lane = query.lanes[stream]
    following: int = yield Find(stream, producer, query.since)
    if lane.first <= 1:
        if following == 1:
            return None  # The producer has stored nothing yet.
        # Another driver may have begun since: then the stream knows the producer now.
        again: Mapping[int, int | None] = yield AskNext({stream: producer})
        if again[stream] != 1:
            return None
    # Of what is below sequence 1 all is stored: that is how the epoch began.
    stored = max(following, lane.first, 1) - lane.first
    return Resume(name, query.batch, stream, lane.epoch + 1, stored)


def _check_progress(
    store: Store, error: LogError | None, stuck: dict[int, int]
) -> None:
    """Raise an error that is not about what others stored meanwhile."""
    if error is None:
        return
    # A stream that is not found was removed meanwhile: it says so when it is asked.
    theirs = isinstance(error, InvalidArgumentError | FencedError | NotFoundError)
    if not theirs or isinstance(error, TooLargeError):
        raise error
    if stuck.get(store.stream) == store.sequence:
        raise error  # Nothing was stored since it was refused the last time.
    stuck[store.stream] = store.sequence


def _check_place(name: str, stream: int, lane: Lane, sequence: int) -> None:
    """Refuse a stream that has more or less of the producer than the ledger decided."""
    if 1 < sequence < lane.first or sequence > max(lane.next, 1):
        raise CorruptionError(
            f"stream {stream} expects sequence {sequence} of {name}, but the "
            f"ledger says between {lane.first} and {lane.next}: was the log "
            "or the ledger restored from a backup?"
        )


def _parts(query: Query, stream: int, stored: int) -> tuple[Part, ...]:
    """Return what is left of a stream's files when so many records are stored."""
    parts = []
    for file in query.files:
        if file.stream != stream:
            continue
        if stored < file.records:
            parts.append(Part(file, stored))
        stored = max(0, stored - file.records)
    return tuple(parts)
