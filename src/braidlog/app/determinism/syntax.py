"""Syntax trees as text: the same for the same code on every version of Python.

`ast.dump` is not: versions add fields, leave out empty ones, and cut f-strings into
other pieces. What has no effect is left out: positions, docstrings, comments and
annotations (but for those of class bodies, from which dataclasses are made).
"""

from __future__ import annotations

import ast
from typing import Final

# Follow from the rest, or have no effect.
_IGNORED: Final = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
# Generics are for type checkers.
_TYPES: Final = frozenset({"type_params", "returns", "annotation"})
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


def canonical(tree: ast.AST) -> str:
    """Return the text of a function, lambda or class.

    Its own name and decorators do not count: the value that they made has been found,
    and whoever uses it has its name.
    """
    if isinstance(tree, (*_FUNCTIONS, ast.ClassDef)):
        names = {"name", "decorator_list"}
        if isinstance(tree, ast.ClassDef):
            # What a decorator made of a class is not told by the class.
            names = {"name"}
        return _fields(tree, names)
    return _text(tree, in_class=False)


def _fields(node: ast.AST, ignored: set[str], *, in_class: bool = False) -> str:
    parts = [type(node).__name__]
    inside = isinstance(node, ast.ClassDef)
    for name in sorted(node._fields):
        value = getattr(node, name, None)
        if name in _IGNORED or name in ignored or value is None or value == []:
            continue
        if name in _TYPES and not in_class:
            continue
        if name == "body" and isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            value = _without_docstring(value)
        parts.append(f"{name}={_value(value, in_class=inside)}")
    return "(" + " ".join(parts) + ")"


def _text(node: ast.AST, *, in_class: bool) -> str:
    if isinstance(node, ast.Constant):
        return _constant(node.value)
    if isinstance(node, ast.JoinedStr):
        return _joined(node)
    if isinstance(node, ast.AnnAssign):
        return _annotated(node, in_class=in_class)
    return _fields(node, set())


def _value(value: object, *, in_class: bool) -> str:
    if isinstance(value, list):
        return "[" + ",".join(_value(each, in_class=in_class) for each in value) + "]"
    if isinstance(value, ast.AST):
        return _text(value, in_class=in_class)
    return _constant(value)


def _constant(value: object) -> str:
    if isinstance(value, float):
        return "float:" + value.hex()
    if isinstance(value, complex):
        return f"complex:{value.real.hex()}:{value.imag.hex()}"
    # Which characters repr() shows differs by version.
    return f"{type(value).__name__}:{value!a}"


def _annotated(node: ast.AnnAssign, *, in_class: bool) -> str:
    if in_class:
        return _fields(node, set(), in_class=True)
    if node.value is None:
        return _fields(node, set())  # It makes the name a local one.
    plain = ast.Assign(targets=[node.target], value=node.value)
    return _text(plain, in_class=False)


def _joined(node: ast.JoinedStr) -> str:
    """Join neighbours: versions cut the constant parts in different places."""
    parts: list[str] = []
    constant = ""
    for value in node.values:
        if isinstance(value, ast.Constant):
            constant += str(value.value)
            continue
        if constant:
            parts.append(_constant(constant))
        constant = ""
        parts.append(_text(value, in_class=False))
    if constant:
        parts.append(_constant(constant))
    return "(JoinedStr [" + ",".join(parts) + "])"


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0]
    documented = (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
    return (body[1:] or [ast.Pass()]) if documented else body
