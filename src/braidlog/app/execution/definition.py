"""What an application is: procedures, the schema of their state, its partitions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, overload

from braidlog.app.determinism.code_hash import source_of
from braidlog.app.errors import (
    DeterminismError,
    DeterminismWarning,
    UnknownProcedureError,
)
from braidlog.app.execution.entries import Catalog
from braidlog.app.fingerprint import environment as environment_of
from braidlog.app.procedure import RULES, Mode, Partitions, Procedure, parameters
from braidlog.errors import AlreadyExistsError, InvalidArgumentError
from braidlog.names import checked_new_name
from braidlog.suggestions import does_not_exist

F = TypeVar("F", bound=Callable[..., Any])

_PARTITIONS_MAX: Final = 4096


class ApplicationDefinition:
    """Procedures over a database of their own; see `braidlog.app.Application`.

    This is what executing and replaying its commands needs of it. It opens nothing.

    ``partitions`` is the number that a new log begins with: calls of one partition are
    executed one after the other, and each partition has its own database. ``row_keys``
    names for each table the column with the partition key of its rows, or None where
    every partition has the same rows: for another number of partitions. ``schema`` is
    SQL, one text or its steps: a later version may append steps, which are executed on
    every partition at one position of the log. ``results_kept`` says how many calls a
    partition remembers, so that a retry gets the first answer. ``packages`` names
    installed packages whose versions procedures depend on.
    """

    def __init__(
        self,
        name: str,
        *,
        partitions: int = 8,
        schema: str | Sequence[str] = "",
        results_kept: int = 10_000,
        packages: Sequence[str] = (),
        row_keys: Mapping[str, str | None] | None = None,
    ) -> None:
        """Name the application; register procedures, then open it.

        Raises:
            InvalidArgumentError: the name cannot be one, or a number is out of range.
        """
        self.name = checked_new_name(name, "application")
        check_partitions(partitions)
        if results_kept < 1:
            msg = f"results_kept must be at least 1, got {results_kept}"
            raise InvalidArgumentError(msg)
        self.partitions = partitions
        self.schema = [schema] if isinstance(schema, str) else list(schema)
        self.results_kept = results_kept
        self.packages = tuple(packages)
        self.row_keys = dict(row_keys or {})
        self._named: dict[str, Procedure] = {}
        self._all: dict[tuple[str, bytes], Procedure] = {}

    def __repr__(self) -> str:
        """Show the name and what is registered."""
        names = ", ".join(sorted(self._named))
        return f"<Application {self.name!r}: {names or 'no procedures'}>"

    @overload
    def procedure(self, function: F, /) -> F: ...

    @overload
    def procedure(
        self,
        /,
        *,
        key: str | None = None,
        partitions: Partitions | None = None,
        multi: bool = False,
        read_only: bool = False,
        effects: bool = False,
        retired: bool = False,
        name: str | None = None,
    ) -> Callable[[F], F]: ...

    def procedure(
        self,
        function: F | None = None,
        /,
        *,
        key: str | None = None,
        partitions: Partitions | None = None,
        multi: bool = False,
        read_only: bool = False,
        effects: bool = False,
        retired: bool = False,
        name: str | None = None,
    ) -> F | Callable[[F], F]:
        """Register a function as a procedure, and return it unchanged.

        The function takes the `Context` and ordinary parameters. Say which partitions a
        call touches in one of three ways: ``key`` is the name of the parameter whose
        value chooses the partition; ``partitions`` is a function that gets the
        arguments and returns the keys; ``multi`` is for all partitions. An application
        with one partition needs none of them.

        Without ``read_only`` and ``effects`` a call is logged before it is executed,
        and replay executes it again: the function may use only its arguments, the
        state and the context. A ``read_only`` procedure is not logged and changes
        nothing. A procedure with ``effects`` is executed first, and its changes are
        logged: it may use clocks, random numbers and the network, but it may be
        executed more than once. ``retired`` keeps the old code of a procedure for
        commands that are in the log; new calls cannot use it. ``name`` is by default
        that of the function.

        Raises:
            DeterminismError: a replay could give something else; ``findings`` say
                where, and what to use instead.
            InvalidArgumentError: the options contradict one another or the signature.
            AlreadyExistsError: a procedure of that name is registered.
        """

        def register(function: F) -> F:
            mode: Mode = _mode(read_only=read_only, effects=effects)
            strict = mode == "command"
            if strict:
                _check(function)
            self._add(
                Procedure(
                    name=checked_new_name(name or function.__name__, "procedure"),
                    function=function,
                    call=RULES.guarded(function) if strict else function,
                    content=RULES.content_hash(function, strict=strict),
                    source=source_of(function),
                    mode=mode,
                    key=key,
                    keys=partitions,
                    retired=retired,
                    parameters=parameters(function),
                    placed=multi or key is not None or partitions is not None,
                ),
                multi=multi,
            )
            return function

        return register if function is None else register(function)

    def _add(self, procedure: Procedure, *, multi: bool) -> None:
        given = [procedure.key is not None, procedure.keys is not None, multi]
        if sum(given) != 1 and (self.partitions > 1 or sum(given) > 1):
            raise InvalidArgumentError(
                f"procedure {procedure.name!r} needs exactly one of key=, partitions= "
                f"and multi=True: application {self.name!r} has {self.partitions} "
                "partitions"
            )
        names = list(procedure.parameters.parameters)
        if procedure.key is not None and procedure.key not in names:
            raise InvalidArgumentError(
                f"procedure {procedure.name!r} has no parameter {procedure.key!r} for "
                f"key= (parameters: {', '.join(names)})"
            )
        known = (procedure.name, procedure.content)
        if known in self._all or (
            not procedure.retired and procedure.name in self._named
        ):
            msg = f"procedure {procedure.name!r} is registered already"
            raise AlreadyExistsError(msg)
        self._all[known] = procedure
        if not procedure.retired:
            self._named[procedure.name] = procedure

    def find(self, name: str) -> Procedure:
        """Return the procedure that calls of ``name`` get.

        Raises:
            UnknownProcedureError: there is none.
        """
        procedure = self._named.get(name)
        if procedure is None:
            what = f"application {self.name!r}: procedure"
            raise UnknownProcedureError(does_not_exist(what, name, self._named))
        return procedure

    def procedures(self) -> list[Procedure]:
        """Return all procedures, by name and content; also retired ones."""
        return [procedure for _, procedure in sorted(self._all.items())]

    def logged(self, name: str, content: bytes) -> Procedure | None:
        """Return the code that a command in the log names, or None."""
        return self._all.get((name, content))

    def check_placed(self, partitions: int) -> None:
        """Check that calls know where they belong, of so many partitions.

        Raises:
            InvalidArgumentError: procedures were registered for one partition alone.
        """
        unplaced = [p.name for p in self.procedures() if not p.placed]
        if partitions > 1 and unplaced:
            raise InvalidArgumentError(
                f"procedures {', '.join(unplaced)} of {self.name!r} do not say which of"
                f" {partitions} partitions their calls belong to: add key=,"
                " partitions= or multi=True"
            )

    def catalog(self, version: int) -> Catalog:
        """Return the entry that says what this program has."""
        procedures = [[p.name, p.content, p.source, p.flags] for p in self.procedures()]
        return Catalog(version, procedures, self.schema, self.environment)

    @property
    def environment(self) -> dict[str, Any]:
        """The facts of this machine that procedures depend on."""
        return environment_of(self.packages)


def check_partitions(partitions: int) -> None:
    """Check a number of partitions.

    Raises:
        InvalidArgumentError: no application can have so many.
    """
    if not 1 <= partitions <= _PARTITIONS_MAX:
        msg = f"partitions must be from 1 to {_PARTITIONS_MAX}, got {partitions}"
        raise InvalidArgumentError(msg)


def _check(function: Callable[..., Any]) -> None:
    """Refuse what cannot be replayed, and warn of what may not."""
    findings = RULES.lint(function)
    errors = tuple(finding for finding in findings if finding.level == "error")
    if errors:
        listed = "\n".join(str(finding) for finding in errors)
        msg = f"{function.__name__} cannot be replayed:\n{listed}"
        raise DeterminismError(msg, procedure=function.__name__, findings=errors)
    for finding in findings:
        # Of the line that has the decorator.
        warnings.warn(str(finding), DeterminismWarning, stacklevel=4)


def _mode(*, read_only: bool, effects: bool) -> Mode:
    if read_only and effects:
        msg = "read_only and effects exclude each other: choose one"
        raise InvalidArgumentError(msg)
    return "read_only" if read_only else "effects" if effects else "command"
