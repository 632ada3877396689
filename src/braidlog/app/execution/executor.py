"""Executing the log: one record after the other, over any state.

*Theory of operation.* `apply` takes records in the order of the log. A command is
executed on its partitions between a mark and a release; `commit` stores what many
commands did, partition by partition, each in one transaction with its position. A
command on several partitions stores on each of them what it changed on all, and its
result; one on many of them on the first alone, which is durable before they are. So
after a crash, whichever of them have the command, the others get from one of these what
they lack when the log comes to that position again. A commit need not reach the device,
and a machine that dies may keep those of some partitions and not of others; so what was
stored for others goes only when all were synced behind it.

*Invariants.* A partition executes each command above its applied position once, in
order. A command is executed on all its partitions or on none; where one of them has it,
the others get its changes and no code is run. What a partition needs of a command is
durable on its own, or stored on one that every other one has to have. Nothing depends
on a clock, on randomness or on how records were grouped.
"""
# One file: the steps of one command; each of them reads what the one before left.

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from braidlog.app.determinism.codec import encode
from braidlog.app.errors import (
    GivenUpError,
    GiveUp,
    ResizeRefusedError,
    UnknownProcedureError,
)
from braidlog.app.execution import entries
from braidlog.app.execution.catalog_state import CatalogState
from braidlog.app.execution.context import Context
from braidlog.app.execution.definition import ApplicationDefinition
from braidlog.app.execution.entries import CallId, Command, Create, Effect, Resize
from braidlog.app.execution.evaluation import Ran, evaluate, failed
from braidlog.app.execution.outcome import Outcome, Status, bytes_of_changes, digest_of
from braidlog.app.execution.partition import Partition
from braidlog.app.execution.record import RecordLike
from braidlog.app.execution.resizing import OUTSIDE, RESIZE, plan
from braidlog.app.execution.state import State, StoredResult
from braidlog.app.fingerprint import EnvironmentRule, check
from braidlog.app.procedure import Procedure
from braidlog.errors import CorruptionError, InvalidArgumentError, LogError

# Idle partitions store their position at least every so many records, so that opening
# reads no more than these again.
_BEHIND_MAX: Final = 100_000
# Commands on several partitions whose changes are kept for others, before a sync lets
# them go: rare enough to cost nothing, few enough to take little space.
_UNSETTLED_MAX: Final = 1024
# So many partitions each store what a command did; of more, the first one alone, which
# is synced before the others commit: a copy for each would be the square of them.
_COPIES_MAX: Final = 8
_TOO_LONG: Final = "it took too long"


class Executor:
    """Executes the records of one application's log on its state.

    ``given_up`` says which commands ahead have an ABORT entry behind them; they get
    that outcome instead of being executed. Of some ``partitions`` alone only these
    execute, and no command may touch them and others; what belongs to the whole
    application is kept in the partition 0 all the same.
    """

    def __init__(
        self,
        application: ApplicationDefinition,
        state: State,
        *,
        given_up: Callable[[int], str | None] | None = None,
        partitions: Collection[int] | None = None,
        environment: EnvironmentRule = "refuse",
        watchdog: AbstractContextManager[object] | None = None,
        ending: Callable[[], bool] = lambda: False,
        swapping: AbstractContextManager[object] | None = None,
    ) -> None:
        """Begin where the state is.

        ``environment`` says what to do with commands that were logged under other
        versions; ``watchdog`` is entered around each command, and raises `GiveUp`.
        `feed` takes no more records as soon as it is ``ending``. ``swapping`` is
        entered where a RESIZE entry commits, and where it changes the partitions.
        """
        self.application = application
        self._state = state
        self._given_up = given_up
        self._environment = environment
        self._watchdog = nullcontext() if watchdog is None else watchdog
        self._ending = ending
        self._swapping = nullcontext() if swapping is None else swapping
        self._books = [Partition(n, each) for n, each in enumerate(state.partitions)]
        self._only = None if partitions is None else frozenset(partitions)
        mine = self._books
        if self._only is not None:
            mine = [b for b in mine if b.number == 0 or b.number in self._only]
        going = [b.progress.applied for b in mine if b.stopped is None]
        self.position = min(going) if going else self._highest()
        # What was committed before may not be durable.
        self._settled = 0
        self._unsettled = 0
        self.shared = CatalogState(application, self._books)

    def _highest(self) -> int:
        return max(book.progress.applied for book in self._books)

    @property
    def highest(self) -> int:
        """The furthest that any partition had come when the state was opened."""
        return self._highest()

    # -- records -----------------------------------------------------------------

    def feed(self, records: Iterable[RecordLike]) -> list[Outcome]:
        """Apply records, and return the outcomes of the commands among them.

        What it came to is in ``position``: not to the last one if it is ending.
        """
        apply, ending = self.apply, self._ending
        outcomes = []
        for record in records:
            if ending():
                break
            outcome = apply(record.position, record.timestamp, record.value)
            if outcome is not None:
                outcomes.append(outcome)
        return outcomes

    def apply(
        self, position: int, timestamp: int, value: bytes | None
    ) -> Outcome | None:
        """Apply the record at ``position``; its outcome, if it is a command.

        None as well for a command that its partitions have had before. What is applied
        is stored by the next `commit`.

        Raises:
            UnknownProcedureError: the program has not the code that a command names.
            EnvironmentMismatchError: a command was logged under other versions.
            GivenUpError: the watchdog stopped a command; roll back.
            ExecutionError: the machine failed; nothing can be applied any more.
            StateDamagedError: the same, because a database is damaged.
            CorruptionError: a record is missing, or is none of a command log.
        """
        if position != self.position + 1:
            raise CorruptionError(
                f"the record at {self.position + 1} is missing: the log continues "
                f"at {position}"
            )
        entry = entries.unpack(value, position)
        try:
            if type(entry) is Command or type(entry) is Effect:
                outcome = self._execute(position, timestamp, entry)
            elif type(entry) is Resize:
                outcome = None
                self._resize(position, entry)
            elif type(entry) is Create:
                outcome = None
                self._create(position, entry)
            else:
                outcome = None
                self.shared.apply(position, entry)
        except GiveUp as error:
            reason = str(error)
            msg = f"the command at {position} was stopped: {reason or _TOO_LONG}"
            raise GivenUpError(msg, position=position, reason=reason) from error
        except self._state.failures as error:
            doing = f"the state failed at position {position}"
            raise self._state.explained(error, doing) from error
        self.position = position
        return outcome

    def pass_over(self, position: int) -> None:
        """Go on behind ``position``, although nobody has what the log had here."""
        self.position = max(self.position, position)

    def last(self, number: int) -> int:
        """Return the position of the last command that a partition executed."""
        return self._books[number].progress.last

    def _elsewhere(self, position: int, numbers: Sequence[int] | None) -> bool:
        """Whether a command touches none of the partitions that execute here."""
        if self._only is None:
            return False
        touched = range(len(self._books)) if numbers is None else numbers
        if self._only.issuperset(touched):
            return False
        if self._only.isdisjoint(touched):
            return True
        raise InvalidArgumentError(
            f"the command at {position} touches partitions {list(touched)}, "
            f"but only {sorted(self._only)} are executed here"
        )

    def _touched(self, numbers: Sequence[int] | None) -> list[Partition]:
        if numbers is None:
            return self._books
        return [self._books[number] for number in numbers]

    def _execute(
        self, position: int, timestamp: int, entry: Command | Effect
    ) -> Outcome | None:
        if (status := self._moved(entry)) is not None:
            return _without_result(position, entry, status)
        if self._elsewhere(position, entry.partitions):
            return None
        books = self._touched(entry.partitions)
        missing = [book for book in books if book.progress.applied < position]
        if not missing:
            return None
        if len(missing) < len(books):
            self._complete(position, books, missing)
            return None
        for book in books:
            if book.progress.stopped is not None:
                return self._stopped(position, entry, books)
        home = books[0]
        kept = home.find(entry.call)
        if kept is not None:
            return _again(kept)
        if int.from_bytes(entry.call[:7], "big") <= home.progress.forgotten:
            return _without_result(position, entry, Status.EXPIRED)
        for book in books:
            book.begin()
        if isinstance(entry, Command):
            return self._command(position, timestamp, entry, books)
        return self._effect(position, timestamp, entry, books)

    def _moved(self, entry: Command | Effect) -> Status | None:
        """Return how an entry ends that was made for other partitions; else None."""
        routing = self.shared.routing
        if type(entry) is Command:
            if entry.routing == routing:
                return None
            stopped = self._books[0].progress.stopped is not None
            return Status.STOPPED if stopped else Status.MOVED
        # Behind a RESIZE entry, the last command of each partition is that entry.
        old = any(base < routing for base in entry.base)  # type: ignore[union-attr]
        return Status.VOID if old else None

    def _command(
        self, position: int, timestamp: int, entry: Command, books: list[Partition]
    ) -> Outcome:
        procedure = self.application.logged(entry.procedure, entry.content)
        if procedure is None:
            raise UnknownProcedureError(
                f"the command at {position} needs the version of "
                f"{entry.procedure!r} with content hash {entry.content.hex()}"
            )
        if self.shared.foreign and self._environment == "refuse":
            mine = self.application.environment
            check(self.shared.environment, mine, self._environment)
        reason = self._given_up(position) if self._given_up is not None else None
        now = max(timestamp, *[book.progress.time for book in books])
        context = self._context(books, now, entry.seed)
        if reason is not None:
            given_up = Ran(Status.GIVEN_UP, encode(["Abort", reason]), None)
            return self._finish(position, now, entry, books, given_up, [], context)
        ran, changes = self._run(procedure, context, entry.arguments, books)
        return self._finish(position, now, entry, books, ran, changes, context)

    def _context(self, books: list[Partition], now: int, seed: bytes) -> Context:
        handles = {book.number: book.state.handle for book in books}
        return Context(handles, len(self._books), now, seed)

    def _run(
        self,
        procedure: Procedure,
        context: Context,
        arguments: Sequence[Any],
        books: list[Partition],
        *,
        keep: bool = True,
    ) -> tuple[Ran, list[list[Any]]]:
        """Run a procedure; its changes stay, if it ended well and ``keep``."""
        for book in books:
            book.state.mark()
        with self._watchdog:
            ran = evaluate(procedure, context, arguments, self._state)
        for book in books:
            if (fault := book.state.spoiled()) is not None:
                ran = failed(fault)
        if ran.status != Status.OK:
            for book in books:
                book.state.undo()
            return ran, []
        if keep:
            return ran, [book.state.release() for book in books]
        changes = [book.state.changes() for book in books]
        for book in books:
            book.state.undo()
        return ran, changes

    def _effect(
        self, position: int, timestamp: int, entry: Effect, books: list[Partition]
    ) -> Outcome:
        now = max(timestamp, *[book.progress.time for book in books])
        if entry.base != [book.progress.last for book in books]:
            return _without_result(position, entry, Status.VOID)
        for book, changes in zip(books, entry.changes, strict=True):
            book.state.mark()
            book.state.apply(changes)
            book.state.release()
        ran = Ran(Status.OK, entry.result, None)
        return self._finish(position, now, entry, books, ran, entry.changes, None)

    def _finish(
        self,
        position: int,
        now: int,
        entry: Command | Effect,
        books: list[Partition],
        ran: Ran,
        changes: list[list[Any]],
        context: Context | None,
    ) -> Outcome:
        home = books[0]
        draws, nows = (0, 0) if context is None else (context.draws, context.nows)
        digest = digest_of(ran.status, bytes_of_changes(changes), ran.body, draws, nows)
        if ran.status == Status.OK:
            for book in books:
                book.touch(position, now)
        kept = StoredResult(
            position, entry.call, entry.procedure, ran.status, ran.body, digest
        )
        if len(books) > 1:
            self._store_for_others(books, now, changes, kept)
        home.remember(kept, self.shared.results_kept)
        self.shared.note(position, digest, entry.procedure, books)
        return Outcome(
            position,
            entry.call,
            entry.procedure,
            ran.status,
            ran.body,
            digest,
            error=ran.error,
        )

    def _store_for_others(
        self,
        books: list[Partition],
        now: int,
        changes: list[list[Any]],
        kept: StoredResult,
    ) -> None:
        """Keep on each partition what the others need, should they lose it."""
        numbers = [book.number for book in books]
        # None changed anything where the command did not end well.
        each = list(zip(numbers, changes, strict=True)) if changes else []
        stored = encode([now, each, list(kept)])
        self._store_copies(books, books, kept.position, stored)

    def _store_copies(
        self,
        books: list[Partition],
        lacking: list[Partition],
        position: int,
        stored: bytes,
    ) -> None:
        if len(books) > _COPIES_MAX:
            lacking = [book for book in lacking if book is books[0]]
            books[0].first = True
        for book in lacking:
            book.store_waiting(position, stored)
        self._unsettled += 1

    def _complete(
        self, position: int, books: list[Partition], missing: list[Partition]
    ) -> None:
        """Bring partitions that a crash left behind to where the others are."""
        ahead = next(book for book in books if book not in missing)
        waiting = ahead.waiting(position)
        if waiting is None:
            return  # It changed nothing, and nobody has to remember it.
        home = books[0]
        if waiting.kept is None and home in missing:
            raise CorruptionError(
                f"partition {home.number} is behind {position}, other partitions of the"
                " same command are not: the databases come from different hosts"
            )
        for book in missing:
            book.begin()
            if book.number in waiting.changes:
                book.state.mark()
                book.state.apply(waiting.changes[book.number])
                book.state.release()
                book.touch(position, waiting.now)
        if waiting.kept is not None and home in missing:
            home.remember(waiting.kept, self.shared.results_kept)
        self._store_copies(books, missing, position, waiting.stored)

    def _stopped(
        self, position: int, entry: Command | Effect, books: list[Partition]
    ) -> Outcome:
        # The others would go on without what the stopped one should have done.
        cause = next(b.progress.stopped for b in books if b.progress.stopped)
        for book in books:
            book.stop(cause[0], cause[1], cause[2], position - 1)
        return _without_result(position, entry, Status.STOPPED)

    # -- another number of partitions ----------------------------------------------

    def _resize(self, position: int, entry: Resize) -> None:
        """Spread all rows over other partitions, or note why not."""
        shared = self.shared
        if entry.base != shared.routing:
            shared.refuse(position, "another change of the partitions came first")
            return
        causes = [b.progress.stopped for b in self._books if b.progress.stopped]
        for cause in causes[:1]:
            # The rows of the stopped one are not what the log gives.
            for book in self._books:
                book.stop(cause[0], cause[1], cause[2], position - 1)
        if causes:
            return
        if self._only is not None and len(self._only) < len(self._books):
            raise InvalidArgumentError(
                f"the entry at {position} changes the number of partitions: execute all"
            )
        try:
            total = self._spread(position, position, entry)
        except ResizeRefusedError as error:
            shared.refuse(position, error.message)
            self._note_resize(position, Status.FAILED, b"")
            return
        self._note_resize(position, Status.OK, total)

    def spread_outside(self, partitions: int, row_keys: dict[str, str | None]) -> None:
        """Spread all rows over other partitions, of which the log says nothing.

        No command can be executed on them.

        Raises:
            ResizeRefusedError: the rows allow no other partitions.
            LogError: the machine failed; see `failing`.
        """
        with self.failing(f"the rows could not be spread anew at {self.position}"):
            entry = Resize(partitions, OUTSIDE, row_keys)
            self._spread(self.position, OUTSIDE, entry)

    def _spread(self, position: int, routing: int, entry: Resize) -> bytes:
        """Replace all partitions by others as of a position; return the total hash."""
        with self._swapping:
            self.commit(everywhere=True)
        behind = plan(position, routing, entry, self._books, self.shared)
        total = self._state.build(behind)
        with self._swapping:
            self._state.adopt()
            self._reload()
            self.shared.follow()
            self.position = position
        return total

    def _reload(self) -> None:
        """Take the partitions that the state has now."""
        new = [Partition(n, each) for n, each in enumerate(self._state.partitions)]
        self._books[:] = new
        if self._only is not None:
            self._only = frozenset(range(len(new)))
        self._settled = self._unsettled = 0

    def _create(self, position: int, entry: Create) -> None:
        """Begin with as many partitions as the log does, whatever the program says."""
        empty = position == 1 and not self.shared.identity and self._only is None
        if empty and entry.partitions != len(self._books):
            with self._swapping:
                self._state.begin_again(entry.partitions)
                self._reload()
                self.shared.reload()
        self.shared.apply(position, entry)

    def _note_resize(self, position: int, status: Status, total: bytes) -> None:
        """Have the hosts compare what they got: the total hash is the outcome."""
        digest = digest_of(status, total, b"", 0, 0)
        self.shared.note(position, digest, RESIZE, self._books)

    # -- beside the log ----------------------------------------------------------

    def stopped(self, numbers: Sequence[int] | None) -> Exception | None:
        """Return why calls of these partitions cannot be executed, if so."""
        count = len(self._books)
        # A caller may not know yet that there are fewer.
        here = None if numbers is None else [n for n in numbers if n < count]
        for book in self._touched(here):
            if book.progress.stopped is not None:
                return book.stopped
        return None

    def prepare(
        self,
        procedure: Procedure,
        call: CallId,
        arguments: list[Any],
        numbers: list[int] | None,
        now: int,
        seed: bytes,
    ) -> Effect | Outcome:
        """Execute an effect-logged call and undo it; return what to log.

        An outcome instead, if the call was executed before, or did not end well: then
        there is nothing to log. What the machine does is for the caller: see `failing`.
        """
        books = self._touched(numbers)
        kept = books[0].find(call)
        if kept is not None:
            return _again(kept)
        for book in books:
            book.begin()
        now = max(now, *[book.progress.time for book in books])
        context = self._context(books, now, seed)
        try:
            ran, changes = self._run(procedure, context, arguments, books, keep=False)
        except GiveUp as error:
            # Nothing is in the log of it, so this host alone decides.
            self._undo(books)
            body = encode(["Abort", str(error) or _TOO_LONG])
            ran = Ran(Status.GIVEN_UP, body, None)
        except BaseException as error:
            # The next command must not be stored together with half of this one. If the
            # machine failed, there is none: everything is rolled back.
            if not isinstance(error, (LogError, *self._state.failures)):
                self._undo(books)
            raise
        if ran.status != Status.OK:
            return Outcome(
                0, call, procedure.name, ran.status, ran.body, b"", error=ran.error
            )
        touched = [book.number for book in books]
        base = [book.progress.last for book in books]
        return Effect(
            call, procedure.name, procedure.content, touched, base, changes, ran.body
        )

    def _undo(self, books: Sequence[Partition]) -> None:
        with self.failing("what a call had changed could not be taken back"):
            for book in books:
                book.state.undo()

    # -- commits -----------------------------------------------------------------

    def commit(self, *, everywhere: bool = False) -> None:
        """Store what was applied, with the position; ``everywhere`` also where idle.

        Raises:
            LogError: the machine failed; see `failing`.
        """
        with self.failing(f"the state could not be stored at {self.position}"):
            for book in self._books:
                behind = self.position - book.progress.applied
                if book.progress.stopped is not None:
                    behind = 0
                if book.open or behind >= _BEHIND_MAX or (everywhere and behind):
                    book.commit(self.position, self._settled)
                    if book.first:
                        book.first = False
                        self._sync()
        if self._unsettled >= _UNSETTLED_MAX:
            # No partition needs any more what others keep for it.
            self._sync()
            self._settled, self._unsettled = self.position, 0

    def _sync(self) -> None:
        failures: tuple[type[Exception], ...] = (OSError, *self._state.failures)
        try:
            self._state.sync()
        except failures as error:
            doing = f"the state could not be synced at {self.position}"
            raise self._state.explained(error, doing) from error

    def rollback(self) -> None:
        """Take back what was not committed; the executor is of no use afterwards.

        Raises:
            LogError: the machine failed; see `failing`.
        """
        with self.failing("what was not committed could not be taken back"):
            for book in self._books:
                book.rollback()

    @contextmanager
    def failing(self, doing: str) -> Iterator[None]:
        """Stop with what the machine does to the state; ``doing`` says at what.

        Raises:
            ExecutionError: the machine failed; nothing can be applied any more.
            StateDamagedError: the same, because a database is damaged.
        """
        try:
            yield
        except self._state.failures as error:
            raise self._state.explained(error, doing) from error


def _again(kept: StoredResult) -> Outcome:
    """Return the outcome of a call that was executed before."""
    position, call, procedure, status, body, digest = kept
    return Outcome(
        position, call, procedure, Status(status), body, digest, repeated=True
    )


def _without_result(position: int, entry: Command | Effect, status: Status) -> Outcome:
    return Outcome(position, entry.call, entry.procedure, status, b"", b"")
