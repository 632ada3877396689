"""Which code a procedure is: a hash that changes when what it does may change.

It covers the syntax tree of the function, without its name, decorators, annotations,
docstring and positions, and the functions and constants of its module that it uses.
Comments and formatting do not count. What it reaches in other modules does not count
either: the fingerprint of the environment is about those.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from hashlib import blake2b
from types import FunctionType
from typing import Any, Final

from braidlog.errors import InvalidArgumentError

__all__ = ["content_hash", "source_of"]

_BYTES: Final = 16
_CONSTANTS: Final = (type(None), bool, int, float, str, bytes)


def source_of(function: Callable[..., Any]) -> str:
    """Return the text of a function.

    Raises:
        InvalidArgumentError: there is none: it was made at a prompt or in C.
    """
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        msg = f"the source of {function!r} is not there: define it in a file"
        raise InvalidArgumentError(msg) from error


def content_hash(function: Callable[..., Any]) -> bytes:
    """Return the 16 bytes that name what ``function`` does.

    Raises:
        InvalidArgumentError: its source is not there.
    """
    parts: dict[str, str] = {}
    _collect(function, "", parts)
    text = "\0".join(f"{name}={parts[name]}" for name in sorted(parts))
    return blake2b(text.encode(), digest_size=_BYTES).digest()


def _collect(function: Callable[..., Any], name: str, parts: dict[str, str]) -> None:
    parts[name] = ""  # Before the rest: functions may call each other.
    tree = _tree(source_of(function))
    parts[name] = ast.dump(tree)
    space = getattr(function, "__globals__", {})
    for used in sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}):
        if used in parts or used not in space:
            continue
        value = space[used]
        if isinstance(value, FunctionType):
            if value.__module__ == function.__module__:
                _collect(value, used, parts)
        elif _is_constant(value):
            parts[used] = repr(value)


def _is_constant(value: object) -> bool:
    if isinstance(value, tuple):
        return all(_is_constant(item) for item in value)
    return isinstance(value, _CONSTANTS)


def _tree(source: str) -> ast.AST:
    tree = ast.parse(source).body[0]
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            _strip(node)
    return tree


def _strip(node: ast.FunctionDef | ast.Lambda) -> None:
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    if isinstance(node, ast.Lambda):
        return
    node.name = ""
    node.returns = None
    node.decorator_list = []
    if ast.get_docstring(node, clean=False) is not None:
        node.body = node.body[1:] or [ast.Pass()]
