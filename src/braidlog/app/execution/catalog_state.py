"""What belongs to the whole application: its identity, code, active host, digests.

Stored with the partition 0, whose position says up to where it is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from braidlog.app.errors import ApplicationMismatchError
from braidlog.app.execution.definition import ApplicationDefinition
from braidlog.app.execution.entries import (
    AbortEntry,
    Catalog,
    Create,
    Entry,
    Host,
    Outcomes,
)
from braidlog.app.execution.epochs import Terms
from braidlog.app.execution.outcome import COMPONENTS, Status, difference, status_of
from braidlog.app.execution.partition import Partition
from braidlog.app.findings import Difference
from braidlog.app.fingerprint import check
from braidlog.app.procedure import Procedure

OnDifference: TypeAlias = Callable[[int, str, str, tuple[int, ...]], None]
"""Hears of an outcome that differs: position, procedure, component, partitions."""

# Digests that wait for the log to name them; the oldest go when nobody does.
_DIGESTS_MAX: Final = 100_000
# RESIZE entries of which the state says what became of them.
_RESIZED_KEPT: Final = 16


class CatalogState:
    """The records that are no commands, and what they decide."""

    def __init__(
        self, application: ApplicationDefinition, books: list[Partition]
    ) -> None:
        """Begin with what partition 0 stores.

        Raises:
            ApplicationMismatchError: the state is that of another application.
        """
        self._application = application
        self._books = books
        self.mismatches = 0
        """Outcomes of this host that differed from those in the log, since it began."""
        self._stored = books[0].progress.shared
        self.routing: int = self._stored.get("routing", 0)
        """Position of the RESIZE entry that made the partitions; 0 for CREATE."""
        self.terms = Terms(self._stored_terms())
        """Who was active when, as far as the log was applied."""
        self._digests: OrderedDict[int, tuple[bytes, str, tuple[int, ...]]]
        self._digests = OrderedDict()
        # In place of stopping the partitions, for who replays to find differences.
        self.on_difference: OnDifference | None = None
        self.compared = 0
        compared = self._stored.get("compared", 0)
        for position, digest, procedure, number in sorted(
            (position, digest, procedure, book.number)
            for book in books
            for position, _, procedure, digest in book.stored
            if position > compared
        ):
            # What came before a RESIZE is in all partitions by now.
            numbers = (number,) if position > self.routing else (*range(len(books)),)
            self._digests[position] = digest, procedure, numbers
        for book in books:
            book.stored = []
        self.foreign = self._differences()
        if self._stored:
            self._check(self._stored["name"], self.partitions)

    def _check(self, name: str, partitions: int) -> None:
        mine = self._application.name
        if name != mine:
            raise ApplicationMismatchError(
                f"log and state belong to application {name!r}; this program has "
                f"{mine!r}"
            )
        if partitions != len(self._books):
            raise ApplicationMismatchError(
                f"the log belongs to {name!r} with {partitions} partitions, the state "
                f"has {len(self._books)}"
            )

    def _differences(self) -> list[Difference]:
        """Return what matters and is another than where commands are logged."""
        return check(self.environment, self._application.environment, "report")

    def _stored_terms(self) -> list[list[Any]]:
        # A state of an older version knows the last one alone, and not since when.
        last = [[0, self.epoch, self.host]] if self.epoch else []
        terms: list[list[Any]] = self._stored.get("terms", last)
        return terms

    @property
    def environment(self) -> dict[str, Any]:
        """The facts of the machine that logs commands; empty before a catalog."""
        found: dict[str, Any] = self._stored.get("environment", {})
        return found

    @property
    def identity(self) -> bytes:
        """The 16 random bytes that name the application; empty before CREATE."""
        found: bytes = self._stored.get("application", b"")
        return found

    @property
    def partitions(self) -> int:
        """How many partitions there are, as far as the log was applied."""
        return len(self._books)

    @property
    def schema(self) -> list[str]:
        """The steps of the schema that the log has executed."""
        steps: list[str] = self._stored.get("schema", [])
        return steps

    @property
    def results_kept(self) -> int:
        """How many results each partition keeps."""
        kept: int = self._stored["results_kept"]
        return kept

    @property
    def epoch(self) -> int:
        """Epoch of the active host; 0 if there was none."""
        epoch: int = self._stored.get("epoch", 0)
        return epoch

    def facts(self) -> dict[str, Any]:
        """Return what the state alone does not say, for a snapshot of it."""
        catalog = self._application.catalog(self._stored.get("version", 0))
        return {
            "application": self.identity,
            "name": self._application.name,
            "partitions": self.partitions,
            "results_kept": self.results_kept,
            "host": self._stored.get("host", b""),
            "epoch": self.epoch,
            "catalog": list(catalog),
        }

    @property
    def host(self) -> bytes:
        """Identity of the active host; empty if there was none."""
        host: bytes = self._stored.get("host", b"")
        return host

    def has(self, procedure: Procedure) -> bool:
        """Whether the catalog has this code: then every host is told to have it."""
        named = [procedure.name, procedure.content]
        return named in self._stored.get("procedures", [])

    @property
    def migrated(self) -> bool:
        """Whether the log has every step of the program's schema."""
        return len(self._stored.get("schema", ())) >= len(self._application.schema)

    def apply(self, position: int, entry: Entry) -> None:
        """Apply a record that is no command.

        Raises:
            ApplicationMismatchError: the log is that of another application.
        """
        match entry:
            case Create():
                self._create(position, entry)
            case Catalog():
                self._catalog(position, entry)
            case Host(host, epoch):
                if self.terms.add(position, entry):
                    terms = self.terms.stored()
                    self._store(position, host=host, epoch=epoch, terms=terms)
            case Outcomes():
                self._compare(position, entry)
            case AbortEntry():
                self._compare_given_up(position, entry)
            case _:
                pass

    def _store(self, position: int, **facts: Any) -> None:
        home = self._books[0]
        if home.progress.applied < position:
            home.begin()
            self._stored.update(facts)

    def _create(self, position: int, entry: Create) -> None:
        if self.identity and position > 1:
            return  # Two hosts began the log at a time: the first of them counts.
        self._check(entry.name, entry.partitions)
        if self.identity and self.identity != entry.application:
            msg = "the state beside this log was built from another log"
            raise ApplicationMismatchError(msg)
        self._store(position, **entry._asdict())

    # -- another number of partitions ----------------------------------------------

    def stored_behind(self, routing: int, partitions: int) -> dict[str, Any]:
        """Return what the new partition 0 stores of the application."""
        facts = {"partitions": partitions, "routing": routing}
        return {**self._stored, **facts, "resized": self._resized(routing, "")}

    def refuse(self, position: int, why: str) -> None:
        """Note that a RESIZE entry counts for nothing."""
        self._store(position, resized=self._resized(position, why))

    def _resized(self, position: int, why: str) -> list[list[Any]]:
        before = self._stored.get("resized", [])
        return [*before[1 - _RESIZED_KEPT :], [position, why]]

    def refused(self, position: int) -> str | None:
        """Return why the RESIZE entry at a position counts for nothing; "" if it does.

        None if it is not known, or not any more.
        """
        return dict(self._stored.get("resized", [])).get(position)

    def follow(self) -> None:
        """Go on with other partitions, which are in the place of the old ones."""
        self.reload()
        everything = tuple(range(len(self._books)))
        for at, (digest, procedure, _) in self._digests.items():
            self._digests[at] = digest, procedure, everything

    def reload(self) -> None:
        """Take what the partition 0 stores now."""
        self._stored = self._books[0].progress.shared
        self.routing = self._stored.get("routing", 0)
        for book in self._books:
            book.stored = []

    # -- code and schema ---------------------------------------------------------

    def _catalog(self, position: int, entry: Catalog) -> None:
        for book in self._books:
            if book.progress.applied < position:
                book.begin()
                migrate(book, entry.schema)
        procedures = [[name, content] for name, content, *_ in entry.procedures]
        self._store(
            position,
            version=entry.version,
            schema=entry.schema,
            procedures=procedures,
            environment=entry.fingerprint,
        )
        self.foreign = self._differences()

    def wanted_catalog(self) -> Catalog | None:
        """Return the catalog to log, if the program has another than the log.

        Raises:
            ApplicationMismatchError: the schema does not begin as that of the log does.
        """
        stored = self._stored.get("schema", [])
        schema = self._application.schema
        if schema[: len(stored)] != stored:
            raise ApplicationMismatchError(
                "the schema does not begin with the steps that the log has "
                "executed: restore the old steps and append new ones"
            )
        catalog = self._application.catalog(self._stored.get("version", 0) + 1)
        procedures = [[name, content] for name, content, *_ in catalog.procedures]
        mine = (procedures, schema, catalog.fingerprint)
        known = (self._stored.get("procedures"), stored)
        return None if mine == (*known, self._stored.get("environment")) else catalog

    def try_schema(self, catalog: Catalog) -> None:
        """Execute the new steps on every partition, and take them back.

        What cannot be executed must not get into the log, where it would stop every
        host.
        """
        for book in self._books:
            book.begin()
            steps = book.progress.steps
            try:
                migrate(book, catalog.schema)
            finally:
                book.progress.steps = steps
                book.rollback()

    # -- comparing outcomes ------------------------------------------------------

    def note(
        self, position: int, digest: bytes, procedure: str, books: Sequence[Partition]
    ) -> None:
        """Keep a digest until the log says what it should be."""
        numbers: tuple[int, ...] = (books[0].number,)
        if len(books) > 1:
            numbers = tuple(book.number for book in books)
        self._digests[position] = digest, procedure, numbers
        if len(self._digests) > _DIGESTS_MAX:
            self._digests.popitem(last=False)

    def unlogged(self, above: int, limit: int) -> list[tuple[int, bytes]]:
        """Return digests above a position that the log does not have yet."""
        found = []
        for position, (digest, _, _) in self._digests.items():
            if position > above:
                found.append((position, digest))
                if len(found) == limit:
                    break
        return found

    @property
    def uncompared(self) -> int:
        """How many outcomes no record has confirmed yet."""
        return len(self._digests)

    def compare(self, position: int, entry: Outcomes) -> bool:
        """Compare outcomes with those of a record, also one that lies further on.

        False if they do not count, because they are of a host that was active before.
        """
        if entry.epoch < self.epoch:
            return False
        for at, digest in entry.digests:
            mine = self._digests.pop(at, None)
            if mine is None:
                continue
            self.compared += 1
            component = difference(mine[0], digest)
            if component is not None:
                self.mismatches += 1
                self._stop(position, at, mine[1], component, mine[2])
        return True

    def lacks(self, position: int, entry: Outcomes) -> bool:
        """Whether a record names outcomes up to ``position`` that nobody can compare.

        Digests are kept with the results of calls, and are forgotten with them.
        """
        gone = max(book.progress.forgotten for book in self._books)
        gone = min(position, max(gone, self._stored.get("compared", 0)))
        return any(at <= gone and at not in self._digests for at, _ in entry.digests)

    def _compare(self, position: int, entry: Outcomes) -> None:
        if self.compare(position, entry) and entry.digests:
            self._store(position, compared=entry.digests[-1][0])

    def _compare_given_up(self, position: int, entry: AbortEntry) -> None:
        """Stop where a command was executed here that the log says was given up."""
        if entry.position not in self._digests:
            return
        if not self.terms.counts(position, entry):
            return  # Of a host that was replaced and did not know it.
        digest, procedure, numbers = self._digests[entry.position]
        if status_of(digest) != Status.GIVEN_UP:
            self._stop(position, entry.position, procedure, COMPONENTS[0], numbers)

    def _stop(
        self,
        position: int,
        at: int,
        procedure: str,
        component: str,
        numbers: tuple[int, ...],
    ) -> None:
        if self.on_difference is not None:
            self.on_difference(at, procedure, component, numbers)
            return
        for number in numbers:
            book = self._books[number]
            if book.progress.applied < position:
                book.stop(at, procedure, component, position)


def migrate(book: Partition, schema: list[str]) -> None:
    """Execute the steps of a schema that a partition has not executed yet."""
    for step in schema[book.progress.steps :]:
        book.state.migrate(step)
    book.progress.steps = len(schema)
