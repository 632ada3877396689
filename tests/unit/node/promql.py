"""As much of Prometheus's query language as the alerts and the dashboard use.

A world is what each node exports now, and what it exported five minutes ago. Windows
are all of that length.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from unit.node.observed import Series

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
WINDOW_S: Final = 300.0

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<name>[a-zA-Z_]\w*)|(?P<text>\"[^\"]*\")"
    r"|(?P<window>\[\w+\])|(?P<sign>==|[<>/(){},=]))"
)
_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
_FOLDS: Final[dict[str, Callable[[list[float]], float]]] = {"max": max, "sum": sum}


@dataclass(frozen=True)
class World:
    """What the nodes export, by instance."""

    now: dict[str, Series]
    before: dict[str, Series] | None = None

    def select(self, name: str, wanted: dict[str, str], *, before: bool) -> Vector:
        found: Vector = {}
        for instance, series in ((self.before if before else None) or self.now).items():
            for key, value in series.items():
                labels = dict(re.findall(r'(\w+)="([^"]*)"', key))
                labels |= {"instance": instance, "job": "braidlog"}
                if key.partition("{")[0] == name and wanted.items() <= labels.items():
                    found[frozenset(labels.items())] = value
        return found


def names(expression: str) -> set[str]:
    """Return the metrics that an expression names."""
    return set(re.findall(r"\bbraidlog_\w+", expression))


def evaluate(expression: str, world: World) -> Vector:
    """Return what an expression gives: an alert fires if that is anything.

    Raises:
        ValueError: it is more than is understood here.
    """
    tokens, at = [], 0
    while at < len(expression.rstrip()):
        match = _TOKEN.match(expression, at)
        if match is None:
            raise ValueError(expression[at:])
        tokens.append(match[0].strip())
        at = match.end()
    reader = _Reader([*tokens, ""], world)
    found = reader.both()
    if reader.peek():
        raise ValueError(f"left: {reader.peek()}")
    assert isinstance(found, dict), expression
    return found


class _Reader:
    def __init__(self, tokens: list[str], world: World) -> None:
        self._tokens, self._at, self._world = tokens, 0, world
        self._before = False

    def peek(self) -> str:
        return self._tokens[self._at]

    def take(self, wanted: str = "") -> str:
        token = self.peek()
        if wanted and token != wanted:
            raise ValueError(f"{token!r} is not {wanted!r}")
        self._at += 1
        return token

    def both(self) -> Any:
        left = self.compared()
        while self.peek() == "and":
            self.take()
            right = self.compared()
            left = {labels: v for labels, v in left.items() if labels in right}
        return left

    def compared(self) -> Any:
        left = self.divided()
        if self.peek() in _COMPARE:
            holds, right = _COMPARE[self.take()], self.divided()
            return {labels: v for labels, v in left.items() if holds(v, right)}
        return left

    def divided(self) -> Any:
        left = self.value()
        while self.peek() == "/":
            self.take()
            right = self.value()
            left = {n: v / right[n] for n, v in left.items() if right.get(n)}
        return left

    def value(self) -> Any:
        token = self.take()
        if token.replace(".", "").isdigit():
            return float(token)
        if token in _FOLDS:
            return self.folded(_FOLDS[token])
        if self.peek() == "(":
            return self.called(token)
        wanted = self.matchers()
        if self.peek().startswith("["):
            self.take()
        return self._world.select(token, wanted, before=self._before)

    def folded(self, fold: Callable[[list[float]], float]) -> Vector:
        kept: list[str] = []
        if self.peek() == "by":
            self.take()
            self.take("(")
            while (token := self.take()) != ")":
                kept += [token] if token != "," else []
        self.take("(")
        inner = self.both()
        self.take(")")
        groups: dict[Labels, list[float]] = {}
        for labels, value in inner.items():
            key = frozenset(pair for pair in labels if pair[0] in kept)
            groups.setdefault(key, []).append(value)
        return {labels: fold(values) for labels, values in groups.items()}

    def called(self, name: str) -> Vector:
        self.take("(")
        if name in {"rate", "increase"}:
            begin = self._at
            now = self.both()
            end, self._at, self._before = self._at, begin, True
            before = self.both()
            assert self._at == end
            self._before = False
            self.take(")")
            scale = WINDOW_S if name == "rate" else 1.0
            return {n: (v - before.get(n, 0.0)) / scale for n, v in now.items()}
        if name == "absent":
            found = self.both()
            self.take(")")
            return {} if found else {frozenset(): 1.0}
        if name == "histogram_quantile":
            share = self.divided()
            self.take(",")
            found = self.both()
            self.take(")")
            return _quantile(share, found)
        raise ValueError(name)

    def matchers(self) -> dict[str, str]:
        wanted: dict[str, str] = {}
        if self.peek() == "{":
            self.take()
            while (token := self.take()) != "}":
                if token != ",":
                    self.take("=")
                    wanted[token] = self.take().strip('"')
        return wanted


def _quantile(share: float, buckets: Vector) -> Vector:
    """Return the upper bound of the bucket that the share falls into."""
    groups: dict[Labels, list[tuple[float, float]]] = {}
    for labels, count in buckets.items():
        bound = float(dict(labels)["le"])
        rest = frozenset(pair for pair in labels if pair[0] != "le")
        groups.setdefault(rest, []).append((bound, count))
    found: Vector = {}
    for labels, rows in groups.items():
        rows.sort()
        if total := rows[-1][1]:
            found[labels] = next(b for b, count in rows if count >= share * total)
    return found
