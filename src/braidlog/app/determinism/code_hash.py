"""Which code a procedure is: a hash that changes when what it does may change.

It covers the syntax tree of the function and of every function and class of the program
that it reaches, and the values of the constants that they use; not positions,
docstrings, annotations, comments, the names of modules and the procedure's own name.
Libraries are not covered: the fingerprint of the environment is about those.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import blake2b
from types import FunctionType, ModuleType
from typing import Any, Final

from braidlog.app.determinism.code_graph import (
    CodeGraph,
    CodeNode,
    code_graph_of,
    source_of,
)
from braidlog.app.determinism.hazards import home, name_of
from braidlog.errors import InvalidArgumentError

__all__ = ["Unhashable", "Values", "content_hash", "source_of"]

_BYTES: Final = 16
_EXACT: Final = (
    *(type(None), bool, int, str, bytes, range, slice),
    *(type(Ellipsis), type(NotImplemented)),
    *(decimal.Decimal, fractions.Fraction, uuid.UUID, re.Pattern),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.timezone),
)
_TYPES: Final = ("typing", "types", "typing_extensions")


class Unhashable(Exception):  # noqa: N818, RUF100
    """A value says nothing that could be hashed."""


def content_hash(function: Callable[..., Any], *, strict: bool = True) -> bytes:
    """Return the 16 bytes that name what ``function`` does.

    Not ``strict``: of values that cannot be hashed only the type counts. It is for
    functions that replay does not call.

    Raises:
        InvalidArgumentError: a source is not there, or a value that the function uses
            cannot be hashed: it has an identity, or state that may change.
    """
    pieces = code_graph_of(function)
    values = Values(pieces, strict=strict)
    text = "\n".join(_piece_text(piece, values) for piece in pieces)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest()


def _piece_text(piece: CodeNode, values: Values) -> str:
    parts = [piece.canonical]
    for name in sorted(piece.names):
        try:
            parts.append(f"{name}={values.text(piece.names[name])}")
        except Unhashable as error:
            raise InvalidArgumentError(
                f"{piece.name} ({piece.file}:{piece.line}) uses {name!r}, {error}:"
                " pass it as an argument, keep it in the state, or make it a constant"
            ) from error
    return " ".join(parts)


class Values:
    """Texts of values: equal texts for values that act the same."""

    def __init__(self, pieces: CodeGraph, *, strict: bool = True) -> None:
        """Number the pieces; values refer to them by number."""
        self._pieces = pieces
        self._strict = strict
        self._numbers = {id(piece.value): n for n, piece in enumerate(pieces)}

    def text(self, value: Any) -> str:
        """Return the text of a value.

        Raises:
            Unhashable: it has none.
        """
        number = self._numbers.get(id(value))
        if number is not None:
            return f"#{number}"
        kind = type(value)
        if kind in _EXACT:
            return f"{kind.__name__}:{value!a}"
        if kind is float or kind is complex:
            return f"{kind.__name__}:{_hex(value)}"
        if kind in (list, tuple):
            return f"{kind.__name__}[{','.join(map(self.text, value))}]"
        if kind in (set, frozenset):
            return f"{kind.__name__}[{','.join(sorted(map(self.text, value)))}]"
        if isinstance(value, Mapping):
            pairs = (f"{self.text(k)}:{self.text(v)}" for k, v in value.items())
            return "dict[" + ",".join(pairs) + "]"
        return self._object(value)

    def is_own(self, value: object) -> bool:
        """Say whether a value is code of the program itself."""
        return self._pieces.is_own(value)

    def _object(self, value: Any) -> str:
        kind = type(value)
        if isinstance(value, Enum):
            return f"{self.text(kind)}.{value.name}"
        if is_dataclass(kind) and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined, unused-ignore]
            members = ((f.name, getattr(value, f.name)) for f in fields(value))
            texts = ",".join(f"{name}={self.text(each)}" for name, each in members)
            return f"{self.text(kind)}({texts})"
        if isinstance(value, tuple):  # A named one.
            return f"{self.text(kind)}[{','.join(map(self.text, value))}]"
        if kind.__module__ in _TYPES and " at 0x" not in repr(value):
            return f"typing:{value!a}"
        return self._library(value)

    def _library(self, value: Any) -> str:
        named = name_of(value)
        if isinstance(value, ModuleType) and self._pieces.is_own(value):
            return "module"  # Its members are names of their own.
        own = isinstance(value, FunctionType) and self._pieces.is_own(value)
        if named is not None and not own:
            return f"library:{home(named[0])}.{named[1]}"
        if self._strict:
            raise Unhashable(f"a {type(value).__qualname__} that cannot be hashed")
        return f"opaque:{type(value).__qualname__}"


def _hex(value: complex) -> str:
    if isinstance(value, float):
        return value.hex()
    return f"{value.real.hex()},{value.imag.hex()}"
