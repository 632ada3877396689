"""One procedure: its function, what it declared, and where its calls belong."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Literal, TypeAlias

from braidlog.app.determinism import code_hash, guard, lint
from braidlog.app.determinism.codec import encode
from braidlog.app.errors import EncodingError
from braidlog.app.findings import Finding
from braidlog.errors import InvalidArgumentError

Mode: TypeAlias = Literal["command", "read_only", "effects"]
"""A command is logged before it runs; with effects its changes are logged after."""

Partitions: TypeAlias = Callable[..., Sequence[Any]]
"""Returns the keys that a call touches, given its arguments."""

_KEY_BYTES: Final = 8


def partition_of(key: object, partitions: int) -> int:
    """Return which of so many partitions a key belongs to; it is always the same.

    Raises:
        EncodingError: the key is not an int, a str or bytes.
    """
    return key_hash(key) % partitions


def key_hash(key: object) -> int:
    """Return the number of a key that, modulo the partitions, is its partition.

    Raises:
        EncodingError: the key is not an int, a str or bytes.
    """
    if isinstance(key, bool) or not isinstance(key, (int, str, bytes)):
        msg = f"a partition key must be int, str or bytes, not {type(key).__name__}"
        raise EncodingError(msg)
    digest = blake2b(encode(key), digest_size=_KEY_BYTES).digest()
    return int.from_bytes(digest, "big")


@dataclass(frozen=True, slots=True)
class Rules:
    """What is asked of the code of procedures, and how it is run."""

    content_hash: Callable[..., bytes]
    """The 16 bytes that name what a function does."""
    lint: Callable[[Callable[..., Any]], Sequence[Finding]]
    """What in a function cannot be replayed: errors refuse, warnings are shown."""
    guarded: Callable[[Callable[..., Any]], Callable[..., Any]]
    """The function as it is called."""


RULES: Final = Rules(
    content_hash=code_hash.content_hash,
    lint=lint.lint,
    guarded=guard.guarded,
)


@dataclass(frozen=True, slots=True)
class Procedure:
    """A registered procedure. Made by `Application.procedure`."""

    name: str
    function: Callable[..., Any]
    call: Callable[..., Any]
    content: bytes
    source: str
    mode: Mode
    key: str | None
    keys: Partitions | None
    retired: bool
    parameters: inspect.Signature
    placed: bool = True
    """Whether it says which partitions a call touches: else it knows of one alone."""

    @property
    def flags(self) -> list[str]:
        """What the catalog says of it."""
        return [self.mode, *(["retired"] if self.retired else [])]

    def partitions(self, arguments: list[Any], count: int) -> list[int] | None:
        """Return the partitions that a call touches, in order; None for all.

        Raises:
            EncodingError: a key is not an int, a str or bytes.
            InvalidArgumentError: it touches none.
        """
        if self.key is not None:
            at = list(self.parameters.parameters).index(self.key)
            return [partition_of(arguments[at], count)]
        if self.keys is None:
            return None
        touched = sorted({partition_of(k, count) for k in self.keys(*arguments)})
        if not touched:
            msg = f"this call of {self.name!r} does not touch any partition"
            raise InvalidArgumentError(msg)
        return touched


def bind(
    procedure: Procedure, arguments: tuple[Any, ...], named: dict[str, Any]
) -> list[Any]:
    """Return all arguments in the order of the parameters, defaults filled in.

    Raises:
        InvalidArgumentError: they are not those of the procedure.
    """
    if not named and len(arguments) == len(procedure.parameters.parameters):
        return list(arguments)
    try:
        bound = procedure.parameters.bind(*arguments, **named)
    except TypeError as error:
        msg = f"{procedure.name}{procedure.parameters}: {error}"
        raise InvalidArgumentError(msg) from error
    bound.apply_defaults()
    return list(bound.arguments.values())


def parameters(function: Callable[..., Any]) -> inspect.Signature:
    """Return the parameters behind the context.

    Raises:
        InvalidArgumentError: there is no context, or a parameter has no one place.
    """
    others = [*inspect.signature(function).parameters.values()]
    if not others:
        msg = f"the first parameter of {function.__name__} must be the context"
        raise InvalidArgumentError(msg)
    del others[0]
    for parameter in others:
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            raise InvalidArgumentError(
                f"parameter {parameter.name!r} of {function.__name__} must be an "
                "ordinary parameter (not *args, **kwargs, keyword-only or "
                "positional-only): only those have a fixed place in the log"
            )
    return inspect.Signature(others)
