"""What stands in a procedure's names for what it must not reach.

Nothing is replaced silently: a stand-in raises `DeterminismError`, which says what was
used and what to use instead. It also notes it in the run, so that a procedure that
catches the error does not end well all the same.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any, Final, Never

from braidlog.app.determinism.hazards import (
    BUILTINS,
    instead_of_member,
    instead_of_module,
    refusal,
)
from braidlog.app.errors import DeterminismError

DEPTH_MAX: Final = 200
"""Deeper recursion fails its command, before the limit of the machine is reached,
which depends on who calls. Part of what a command is: fixed for ever."""


class Run:
    """One execution of a procedure."""

    __slots__ = ("depth", "methods", "refused")

    def __init__(
        self, methods: Mapping[FunctionType, Callable[..., Any]] = MappingProxyType({})
    ) -> None:
        """Begin with nothing; `methods` are the guarded ones by what they guard."""
        self.depth = 0
        self.methods = methods
        self.refused: DeterminismError | None = None


RUN: Final[ContextVar[Run | None]] = ContextVar("braidlog_procedure", default=None)


def refuse(what: str, instead: str) -> Never:
    """Raise the error, and note it for the end of the run."""
    error = DeterminismError(f"{what} differs at replay; {instead}", kind=what)
    run = RUN.get()
    if run is not None and run.refused is None:
        run.refused = error
    raise error


class Forbidden:
    """Raises whatever is done with it."""

    def __init__(self, what: str, instead: str) -> None:
        """Stand for ``what``."""
        object.__setattr__(self, "_facts", (what, instead))

    def __getattribute__(self, name: str) -> Any:
        """Refuse."""
        what, instead = object.__getattribute__(self, "_facts")
        refuse(what if name == "__class__" else f"{what}.{name}", instead)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse."""
        refuse(*object.__getattribute__(self, "_facts"))

    def __call__(self, *arguments: object, **named: object) -> Any:
        """Refuse."""
        refuse(*object.__getattribute__(self, "_facts"))

    def __iter__(self) -> Any:
        """Refuse."""
        refuse(*object.__getattribute__(self, "_facts"))


class LibraryModule:
    """A module of Python without the members that must not be used."""

    def __init__(self, module: ModuleType, permitted: frozenset[str]) -> None:
        """Stand for a module that may be used."""
        self.__dict__["_module"] = module
        self.__dict__["_permitted"] = permitted

    def __getattr__(self, name: str) -> Any:
        """Return a member as it may be used; remember it, so that this is rare."""
        module = self.__dict__["_module"]
        value = getattr(module, name)
        instead = instead_of_member(module.__name__, name)
        full = f"{module.__name__}.{name}"
        if instead is not None and full not in self.__dict__["_permitted"]:
            refuse(full, instead)
        self.__dict__[name] = found = standin(value, self.__dict__["_permitted"])
        return found

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse."""
        refuse(f"setting {self._module.__name__}.{name}", "keep it in the state")


class Members:
    """A module of the program: the members that a procedure reads, as it may."""

    def __init__(self, name: str) -> None:
        """Stand for a module; its members are put into the dict."""
        self.__dict__["__name__"] = name

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse."""
        refuse(f"setting {name} of a module", "keep it in the state")


def _clockless(kind: type, names: tuple[str, ...], permitted: frozenset[str]) -> Any:
    """Return a class that makes instances of ``kind`` and has no clock."""

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, kind)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, kind)

        def __call__(cls, *arguments: Any, **named: Any) -> Any:
            return kind(*arguments, **named)

        def __getattribute__(cls, name: str) -> Any:
            full = f"datetime.{kind.__name__}.{name}"
            if name in names and full not in permitted:
                instead = instead_of_member("datetime", f"{kind.__name__}.{name}")
                refuse(full, instead or "")
            if name == "fromtimestamp" and kind is datetime.datetime:
                return _fromtimestamp
            return getattr(kind, name)

        def __eq__(cls, other: object) -> bool:
            return other is kind or other is cls.__class__

        def __hash__(cls) -> int:
            return hash(kind)

    return Meta(kind.__name__, (), {})


def _fromtimestamp(seconds: float, tz: datetime.tzinfo | None = None) -> Any:
    if tz is None:
        refuse("datetime.fromtimestamp in local time", "give it datetime.UTC")
    return datetime.datetime.fromtimestamp(seconds, tz)


def standin(value: Any, permitted: frozenset[str]) -> Any:
    """Return what stands for a value of a library."""
    if value is datetime.datetime:
        return _clockless(value, ("now", "utcnow", "today"), permitted)
    if value is datetime.date:
        return _clockless(value, ("today", "fromtimestamp"), permitted)
    refused = refusal(value)
    if refused is not None and refused[0] not in permitted:
        return Forbidden(*refused)
    if isinstance(value, ModuleType) and instead_of_module(value.__name__) is None:
        return LibraryModule(value, permitted)
    return value


def frozen(value: Any) -> Any:
    """Return a constant that a procedure cannot change."""
    if type(value) is dict:
        return MappingProxyType({key: frozen(item) for key, item in value.items()})
    if type(value) in (list, tuple):
        return tuple(frozen(item) for item in value)
    if type(value) is set:
        return frozenset(value)
    return value


def builtins_for(space: Mapping[str, Any], permitted: frozenset[str]) -> dict[str, Any]:
    """Return the built-in names of procedures."""
    found = dict(space)
    for name, instead in BUILTINS.items():
        if name in found and f"builtins.{name}" not in permitted:
            found[name] = Forbidden(f"{name}()", instead)
    found["sum"] = _sum
    found["repr"] = _repr
    load = space["__import__"]

    def import_(name: str, *rest: Any) -> Any:
        instead = instead_of_module(name)
        if (len(rest) > 3 and rest[3]) or (instead and name not in permitted):
            refuse(f"import of {name}", instead or "import it at the top")
        return standin(load(name, *rest), permitted)

    found["__import__"] = import_
    return found


def _sum(items: Iterable[Any], /, start: Any = 0) -> Any:
    every = tuple(items)
    if float in {type(start), *map(type, every)}:
        refuse("sum() of floats", "use integers, Decimal or math.fsum")
    return sum(every, start)


def _repr(value: object, /) -> str:
    if type(value).__repr__ is object.__repr__:
        refuse(f"repr() of a {type(value).__name__}", "it has an address: name it")
    return repr(value)


def bounded(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function that counts how deep it calls itself."""

    def call(*arguments: Any, **named: Any) -> Any:
        run = RUN.get()
        if run is None:
            return function(*arguments, **named)
        run.depth += 1
        try:
            if run.depth > DEPTH_MAX:
                what = f"{name}() calling itself more than {DEPTH_MAX} deep"
                refuse(what, "use a loop")
            return function(*arguments, **named)
        finally:
            run.depth -= 1

    return call
