"""How a procedure runs: with names that only reach what a replay gets again.

*Theory of operation.* The function runs with its own code over other globals: those
names that it reads, as they were when it was registered. So what runs is what was
hashed. Functions of the program and methods of its classes are guarded in the same way,
constants cannot be changed, and what stands for clocks, randomness and the world
raises.

It is **no security boundary**: it finds mistakes. Code that means to get around it can.
"""

from __future__ import annotations

import builtins
import decimal
import functools
from collections.abc import Callable, Mapping
from types import CellType, FunctionType, ModuleType
from typing import Any, Final

from braidlog.app.determinism.code_graph import CodeGraph, CodeNode, code_graph_of
from braidlog.app.determinism.hazards import BUILTINS
from braidlog.app.determinism.lint import permitted
from braidlog.app.determinism.methods import (
    defaults_of,
    guard_methods,
    made_over,
    methods_of,
)
from braidlog.app.determinism.proxies import (
    RUN,
    Members,
    Run,
    bounded,
    builtins_for,
    frozen,
    standin,
)

# What decimals do depends on the context of the thread: every command gets this one.
_DECIMALS: Final = decimal.Context(
    prec=28,
    rounding=decimal.ROUND_HALF_EVEN,
    Emin=-999999,
    Emax=999999,
    capitals=1,
    clamp=0,
    traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow],
)


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as it is called for a command.

    The call raises `DeterminismError` when the procedure reached for something that a
    replay would not get again, also if it caught the error.

    Raises:
        InvalidArgumentError: its source is not there.
    """
    pieces = code_graph_of(function)
    guard = _Guard(pieces)
    run_it = guard.function(next(iter(pieces)))
    methods = guard.methods()

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        run = Run(methods)
        token = RUN.set(run)
        try:
            with decimal.localcontext(_DECIMALS):
                result = run_it(*arguments, **named)
        except Exception:
            if run.refused is not None:
                raise run.refused from None
            raise
        finally:
            RUN.reset(token)
        if run.refused is not None:
            raise run.refused
        return result

    return call


class _Guard:
    """Makes functions over guarded names, each once."""

    def __init__(self, pieces: CodeGraph) -> None:
        self._pieces = pieces
        self._permitted = permitted(pieces)
        self._builtins = builtins_for(vars(builtins), self._permitted)
        self._made: dict[int, Callable[..., Any]] = {}
        self._recursive = {
            id(piece.value) for piece in pieces if piece in self._reached(piece)
        }

    def _reached(self, piece: CodeNode) -> set[CodeNode]:
        """Return the pieces that a piece uses, also through others."""
        reached: set[CodeNode] = set()
        left = [piece]
        while left:
            for value in left.pop().names.values():
                used = self._pieces.piece(value)
                if used is not None and used not in reached:
                    reached.add(used)
                    left.append(used)
        return reached

    def function(self, piece: CodeNode) -> Callable[..., Any]:
        """Return the guarded function of a piece."""
        value = piece.value
        found = self._made.get(id(value))
        if found is not None:
            return found
        assert isinstance(value, FunctionType)
        space = self._space(value.__globals__.get("__name__", "builtins"))
        free = value.__code__.co_freevars
        cells = {name: CellType() for name in free}
        made = FunctionType(
            value.__code__, space, value.__name__, None, tuple(cells.values())
        )
        shown: Callable[..., Any] = made
        if id(value) in self._recursive:
            shown = bounded(made, value.__name__)
        self._made[id(value)] = shown  # Before its names: it may use itself.
        made.__defaults__ = self._defaults(value.__defaults__)
        if value.__kwdefaults__:
            made.__kwdefaults__ = {
                name: self._value(each) for name, each in value.__kwdefaults__.items()
            }
        names = self._names(piece)
        for name, cell in cells.items():
            if name in names:
                cell.cell_contents = names.pop(name)
        space.update(names)
        return shown

    def methods(self) -> dict[FunctionType, Callable[..., Any]]:
        """Return the guarded methods of all classes, and let the classes use them."""
        found: dict[FunctionType, Callable[..., Any]] = {}
        for piece in self._pieces:
            if not isinstance(piece.value, type):
                continue
            space = {**self._space(piece.value.__module__), **self._names(piece)}
            for method in methods_of(piece.value):
                found[method] = made_over(method, space, self._value)
            for default in defaults_of(piece.value):
                found[default] = self._value(default)
            guard_methods(piece.value)
        return found

    def _space(self, module: str) -> dict[str, Any]:
        return {"__builtins__": self._builtins, "__name__": module}

    def _defaults(self, values: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        return None if values is None else tuple(map(self._value, values))

    def _names(self, piece: CodeNode) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in piece.names.items():
            if "." in name or " " in name:
                continue
            found[name] = self._module(piece.names, name, value)
        return found

    def _module(self, names: Mapping[str, Any], name: str, value: Any) -> Any:
        if not isinstance(value, ModuleType) or not self._pieces.is_own(value):
            return self._value(value)
        members = Members(value.__name__)
        prefix = f"{name}."
        for full, member in names.items():
            if full.startswith(prefix):
                members.__dict__[full.removeprefix(prefix)] = self._value(member)
        return members

    def _value(self, value: Any) -> Any:
        piece = self._pieces.piece(value)
        if piece is not None and isinstance(value, FunctionType):
            return self.function(piece)
        if self._pieces.is_own(value):
            return value
        for name in BUILTINS:
            if value is getattr(builtins, name, None):
                return self._builtins[name]
        if value is sum or value is repr:
            return self._builtins[value.__name__]
        return frozen(standin(value, self._permitted))
