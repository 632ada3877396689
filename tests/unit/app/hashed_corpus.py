"""Code whose content hash is the same on every version of Python."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

RATES = {"a": 1, "b": [0.1, -0.0, 1e300], "c": (None, True, "ü", b"\x00")}
NAMES = frozenset({"x", "y", "z"})


class Kind(Enum):
    """Kinds."""

    ONE = 1
    TWO = "two"


@dataclass(frozen=True)
class Point:
    """A point."""

    x: int
    y: float = 0.5

    @property
    def norm(self) -> float:
        return math.sqrt(self.x**2 + self.y**2)


ORIGIN = Point(0)


def even(n: int) -> bool:
    """Say so."""
    return n == 0 or odd(n - 1)


def odd(n: int) -> bool:
    return n != 0 and even(n - 1)


def procedure(ctx: Any, x: int, *, how: str = "a", **rest: int) -> Any:
    """Use most of the language."""
    total: int = 0
    late: list[int]
    late = [y for y in range(x) if even(y)]
    text = f"{x!r:>{total + 4}} {'ab'} {{}} {x=} {how}tailend"

    def inner(value: int, /, other: float = 1.5) -> complex:
        """Inside."""
        nonlocal total
        total += value
        return value * 2j + other

    try:
        with ctx.on(x) as state, ctx.on(how):
            state.execute("SELECT 1")
    except* ValueError as group:
        raise KeyError from group
    match x:
        case 1 | 2 as small:
            return small
        case {"a": [first, *_], **more} if first:
            return more
        case Point(x=0):
            return ORIGIN
        case _:
            pass
    while (step := x - total) > 0:
        total += step
    return [*late, text, inner(1), Kind.ONE, RATES["a"], how in NAMES, lambda q: q // 2]
