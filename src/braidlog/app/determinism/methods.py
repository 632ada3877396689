"""Methods of the program's classes, guarded while a procedure runs.

*Theory of operation.* A class cannot be copied for a procedure: its instances, what it
inherits and what inherits from it, and `isinstance` all know the class itself. So each
method is replaced once, in the class, by a function that asks which procedure runs in
this thread. While one does, its guarded method is called; otherwise the method itself,
so that the program outside of procedures does not notice.

Reached are plain functions in the body of a class, also as static and class methods and
in properties, and what a generated ``__init__`` calls for defaults. What a decorator
has wrapped keeps code that nobody can reach; the lint refuses that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CellType, FunctionType
from typing import Any, Final

from braidlog.app.determinism.proxies import RUN, bounded

_ORIGINAL: Final = "_braidlog_method"
# Where descriptors of Python keep a function.
_KEPT: Final = ("__func__", "__wrapped__", "fget", "fset", "fdel", "func", "dispatcher")


def methods_of(kind: type) -> Iterator[FunctionType]:
    """Give the functions that stand in the body of a class, as they were written."""
    for value in vars(kind).values():
        for function in _functions(value):
            if _is_written(function, kind):
                yield function
        yield from (f for _, f in _defaults(value) if _is_written(f, kind))
    for inner in _inside(kind):
        yield from methods_of(inner)


def defaults_of(kind: type) -> Iterator[FunctionType]:
    """Give the functions that generated methods of a class call for defaults."""
    for value in vars(kind).values():
        yield from (f for _, f in _defaults(value) if not _is_written(f, kind))
    for inner in _inside(kind):
        yield from defaults_of(inner)


def unreached(kind: type, is_own: Callable[[object], bool]) -> Iterator[str]:
    """Give the names of attributes that call code of the program unguarded."""
    for name, value in vars(kind).items():
        found = _functions(value)
        if not found:
            held = (getattr(value, each, None) for each in _KEPT)
            found = [each for each in held if isinstance(each, FunctionType)]
            if not isinstance(value, type) and any(map(is_own, found)):
                yield name
        elif any(_is_wrapper(function, kind, is_own) for function in found):
            yield name
    for inner in _inside(kind):
        yield from (f"{inner.__name__}.{name}" for name in unreached(inner, is_own))


def guard_methods(kind: type) -> None:
    """Let the methods of a class ask which procedure runs. Idempotent."""
    for name, value in list(vars(kind).items()):
        changed = _asking(value, kind)
        if changed is not value:
            # Not by the metaclass, which may have rules of its own.
            type.__setattr__(kind, name, changed)
        for cell, function in _defaults(value):
            if cell.cell_contents is function:
                cell.cell_contents = _ask(function)
    for inner in _inside(kind):
        guard_methods(inner)


def made_over(
    function: FunctionType, space: dict[str, Any], value: Callable[[Any], Any]
) -> Callable[..., Any]:
    """Return a method over other globals; `value` gives what stands for a value."""
    cells = []
    for name, cell in zip(
        function.__code__.co_freevars, function.__closure__ or (), strict=True
    ):
        # ``super()`` needs the cell of the class.
        keep = name == "__class__" or _is_empty(cell)
        cells.append(cell if keep else CellType(value(cell.cell_contents)))
    made = FunctionType(function.__code__, space, function.__name__, None, tuple(cells))
    if function.__defaults__ is not None:
        made.__defaults__ = tuple(map(value, function.__defaults__))
    if function.__kwdefaults__:
        named = function.__kwdefaults__.items()
        made.__kwdefaults__ = {name: value(each) for name, each in named}
    return bounded(made, function.__name__)


def _inside(kind: type) -> list[type]:
    """Return the classes in the body of a class."""
    inner = [value for value in vars(kind).values() if isinstance(value, type)]
    return [each for each in inner if each.__qualname__.startswith(_prefix(kind))]


def _prefix(kind: type) -> str:
    return f"{kind.__qualname__}."


def _functions(value: object) -> list[FunctionType]:
    """Return the functions of an attribute, as they were written."""
    parts: tuple[object, ...] = (value,)
    if isinstance(value, (staticmethod, classmethod)):
        parts = (value.__func__,)
    elif isinstance(value, property):
        parts = (value.fget, value.fset, value.fdel)
    return [_original(each) for each in parts if isinstance(each, FunctionType)]


def _original(function: FunctionType) -> FunctionType:
    found = getattr(function, _ORIGINAL, function)
    assert isinstance(found, FunctionType)
    return found


def _is_written(function: FunctionType, kind: type) -> bool:
    return function.__code__.co_qualname.startswith(_prefix(kind))


def _is_generated(function: FunctionType) -> bool:
    return function.__code__.co_filename.startswith("<")


def _is_wrapper(
    function: FunctionType, kind: type, is_own: Callable[[object], bool]
) -> bool:
    """Say whether a function was made elsewhere and calls what the class wrote."""
    if _is_written(function, kind) or _is_generated(function):
        return False
    cells = [cell for cell in function.__closure__ or () if not _is_empty(cell)]
    inside = [_original(c.cell_contents) for c in cells if _is_function(c)]
    return any(is_own(each) and not _is_generated(each) for each in inside)


def _is_function(cell: CellType) -> bool:
    return isinstance(cell.cell_contents, FunctionType)


def _is_empty(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def _defaults(value: object) -> Iterator[tuple[CellType, FunctionType]]:
    """Give what a generated function calls for defaults, and the cells it is in."""
    if not isinstance(value, FunctionType) or not _is_generated(value):
        return
    for cell in value.__closure__ or ():
        if not _is_empty(cell) and _is_function(cell):
            yield cell, _original(cell.cell_contents)


def _asking(value: Any, kind: type) -> Any:
    """Return an attribute whose functions ask; the same one if there is nothing to."""

    def ask(function: Any) -> Any:
        if not isinstance(function, FunctionType) or hasattr(function, _ORIGINAL):
            return function
        return _ask(function) if _is_written(function, kind) else function

    if isinstance(value, FunctionType):
        return ask(value)
    if isinstance(value, (staticmethod, classmethod)):
        asked = ask(value.__func__)
        return value if asked is value.__func__ else type(value)(asked)
    if type(value) is property:
        parts = (value.fget, value.fset, value.fdel)
        get, put, delete = map(ask, parts)
        same = (get, put, delete) == parts
        return value if same else property(get, put, delete, value.__doc__)
    return value


def _ask(function: FunctionType) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        run = RUN.get()
        made = None if run is None else run.methods.get(function)
        return (function if made is None else made)(*arguments, **named)

    setattr(call, _ORIGINAL, function)
    return call
