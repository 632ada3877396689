"""Where the order of a set decides what a function does."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any, Final

_OPERATORS: Final = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
_METHODS: Final = frozenset(
    {"union", "intersection", "difference", "symmetric_difference"}
)
# Calls that keep the order of what they get.
_ORDERED: Final = frozenset(
    {
        *("list", "tuple", "iter", "next", "enumerate", "zip", "map", "filter"),
        *("reversed", "join", "fromkeys", "extend", "reduce", "deque", "chain", "dict"),
    }
)
# Calls that give the same for every order.
_FREE: Final = frozenset(
    {"sorted", "set", "frozenset", "any", "all", "len", "min", "max", "sum", "fsum"}
)


def set_order(tree: ast.AST, names: Mapping[str, Any]) -> Iterator[ast.AST]:
    """Give the nodes at which a set is gone through in its order."""
    sets = _Sets(tree, names)
    free = _in_free_calls(tree)
    for node in ast.walk(tree):
        match node:
            case ast.For(iter=value) if sets.is_set(value):
                yield value
            case ast.ListComp() | ast.DictComp() | ast.GeneratorExp():
                if id(node) not in free:
                    iterated = [generator.iter for generator in node.generators]
                    yield from filter(sets.is_set, iterated)
            case ast.Starred(value=value) | ast.YieldFrom(value=value):
                if sets.is_set(value):
                    yield node
            case ast.Call():
                yield from _call(node, sets)
            case ast.Assign(targets=targets, value=value) if sets.is_set(value):
                if any(isinstance(t, (ast.Tuple, ast.List)) for t in targets):
                    yield node


def _call(node: ast.Call, sets: _Sets) -> Iterator[ast.AST]:
    called = ""
    if isinstance(node.func, ast.Attribute):
        called = node.func.attr
        if called == "pop" and not node.args and sets.is_set(node.func.value):
            yield node
    elif isinstance(node.func, ast.Name):
        called = node.func.id
    if called in _ORDERED and any(map(sets.is_set, node.args)):
        yield node


def _in_free_calls(tree: ast.AST) -> set[int]:
    return {
        id(node.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, (ast.Name, ast.Attribute))
        and node.args
        and (node.func.id if isinstance(node.func, ast.Name) else node.func.attr)
        in _FREE
    }


class _Sets:
    """Which expressions are sets, as far as the function shows it."""

    def __init__(self, tree: ast.AST, names: Mapping[str, Any]) -> None:
        """Find the names that are given a set."""
        self._names = {
            name for name, v in names.items() if isinstance(v, (set, frozenset))
        }
        before = -1
        while before != len(self._names):  # One may be made of another.
            before = len(self._names)
            for node in ast.walk(tree):
                self._note(node)

    def _note(self, node: ast.AST) -> None:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            targets = [node.target]
        value = getattr(node, "value", None)
        if targets and value is not None and self.is_set(value):
            self._names |= {t.id for t in targets if isinstance(t, ast.Name)}

    def is_set(self, node: ast.expr) -> bool:
        """Say whether an expression is a set."""
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Name(id=name):
                return name in self._names
            case ast.Call(func=ast.Name(id=name)):
                return name in ("set", "frozenset")
            case ast.Call(func=ast.Attribute(value=value, attr=name)):
                return name in _METHODS | {"copy"} and self.is_set(value)
            case ast.BinOp(left=left, op=op, right=right):
                sides = (left, right)
                return isinstance(op, _OPERATORS) and any(
                    self.is_set(side) or _is_keys(side) for side in sides
                )
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_set(body) or self.is_set(orelse)
        return False


def _is_keys(node: ast.expr) -> bool:
    """Say whether it is a view of a dict: operators on it give sets."""
    match node:
        case ast.Call(func=ast.Attribute(attr="keys" | "items"), args=[]):
            return True
    return False
