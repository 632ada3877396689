"""The lint finds what cannot be replayed, says where, and lets the rest pass."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from types import ModuleType

import pytest

from braidlog.app import (
    Application,
    Context,
    DeterminismError,
    DeterminismWarning,
    UnknownProcedureError,
)
from braidlog.app.determinism.lint import lint
from braidlog.app.findings import RULES, Finding

Load = Callable[..., ModuleType]

# What is at the end of the line that the finding must name: "# HERE".
BAD = {
    "forbidden: a module": """
        import time
        def p(ctx):
            return time.time()  # HERE
    """,
    "forbidden: an alias": """
        from random import random as draw
        def p(ctx):
            return draw()  # HERE
    """,
    "forbidden: a member": """
        import datetime as dt
        def p(ctx):
            return dt.datetime.now(dt.UTC)  # HERE
    """,
    "forbidden: a class's clock": """
        from datetime import date
        def p(ctx):
            return date.today()  # HERE
    """,
    "forbidden: uuid4": """
        import uuid
        def p(ctx):
            return uuid.uuid4()  # HERE
    """,
    "forbidden: a built-in": """
        def p(ctx, x):
            return hash(x)  # HERE
    """,
    "forbidden: in a helper": """
        import os
        def helper():
            return os.getpid()  # HERE
        def p(ctx):
            return helper()
    """,
    "forbidden: in a method": """
        import secrets
        class Card:
            def number(self):
                return secrets.token_hex()  # HERE
        def p(ctx):
            return Card().number()
    """,
    "import: inside": """
        def p(ctx):
            import socket  # HERE
            return 1
    """,
    "import: of numpy": """
        def p(ctx, x):
            from numpy import sum as add  # HERE
            return add(x)
    """,
    "undefined: a helper below": """
        def p(ctx):
            return below()  # HERE
    """,
    "mutable: an object": """
        class Counter:
            pass
        counter = Counter()
        def p(ctx):
            return counter  # HERE
    """,
    "mutable: a cache": """
        import functools
        @functools.lru_cache
        def slow(x):
            return x
        def p(ctx, x):
            return slow(x)  # HERE
    """,
    "set-order: a loop": """
        def p(ctx, names):
            for name in set(names):  # HERE
                ctx.execute("DELETE FROM t WHERE name = ?", (name,))
    """,
    "set-order: through a name": """
        def p(ctx, a, b):
            both = set(a) & set(b)
            rest = both - {1}
            return list(rest)  # HERE
    """,
    "set-order: a dict of a set": """
        def p(ctx, a):
            return dict.fromkeys({*a, 1})  # HERE
    """,
    "set-order: a comprehension": """
        def p(ctx, a):
            return {n: 1 for n in frozenset(a)}  # HERE
    """,
    "set-order: keys": """
        def p(ctx, a, b):
            return [x for x in a.keys() & b.keys()]  # HERE
    """,
    "set-order: pop": """
        def p(ctx, a):
            left = set(a)
            return left.pop()  # HERE
    """,
    "float-sum: a division": """
        def p(ctx, x):
            return sum(n / 3 for n in x)  # HERE
    """,
    "global-write: global": """
        COUNT = 0
        def p(ctx):
            global COUNT  # HERE
            COUNT = 1
    """,
    "global-write: a table": """
        SEEN = {}
        def p(ctx, x):
            SEEN[x] = 1  # HERE
    """,
    "global-write: a method": """
        SEEN = []
        def p(ctx, x):
            SEEN.append(x)  # HERE
    """,
    "global-write: nonlocal": """
        def make():
            count = 0
            def p(ctx):
                nonlocal count  # HERE
                count += 1
            return p
        p = make()
    """,
    "mutable-default: a list": """
        def p(ctx, seen=[]):  # HERE
            return seen
    """,
    "async: await": """
        async def p(ctx):  # HERE
            return 1
    """,
    "async: a generator": """
        def p(ctx):
            yield 1  # HERE
    """,
    "swallow: bare": """
        def p(ctx):
            try:
                return 1
            except:  # HERE
                return 2
    """,
    "swallow: everything": """
        def p(ctx):
            try:
                return 1
            except (ValueError, BaseException):  # HERE
                return 2
    """,
    "method: wrapped": """
        import functools
        def noted(function):
            @functools.wraps(function)
            def wrapper(*arguments):
                return function(*arguments)
            return wrapper
        class C:
            @noted
            def fee(self): return 1  # HERE
        def p(ctx, x): return C().fee()
    """,
    "undefined: in a method": """
        class C:
            def fee(self): return later()  # HERE
        def p(ctx, x): return C().fee()
    """,
    "finalizer: __del__": """
        class Lock:
            def __del__(self):  # HERE
                pass
        def p(ctx):
            Lock()
    """,
    "local-time: a zone": """
        def p(ctx, when):
            return when.astimezone()  # HERE
    """,
    "query-order: many rows": """
        def p(ctx):
            return ctx.execute("SELECT id FROM t WHERE x > 1")  # HERE
    """,
    "query-order: a constant": """
        QUERY = "SELECT name, count(*) FROM t GROUP BY name"
        def p(ctx):
            return ctx.execute(QUERY)  # HERE
    """,
    "query-order: any row": """
        def p(ctx):
            return ctx.value("SELECT id FROM t LIMIT 1")  # HERE
    """,
    "libm: sine": """
        import math
        def p(ctx, x):
            return math.sin(x)  # HERE
    """,
    "locale: strftime": """
        def p(ctx, when):
            return when.strftime("%B")  # HERE
    """,
    "allow: an unknown rule": """
        def p(ctx):
            return 1  # braidlog: allow(everything) I know what I do  # HERE
    """,
    "allow: no reason": """
        import math
        def p(ctx, x):
            # braidlog: allow(libm)
            return math.sin(x)
    """,
}

GOOD = {
    "allowed modules": """
        import json, math, re
        from datetime import UTC, datetime, timedelta
        from decimal import Decimal
        def p(ctx, x):
            when = datetime.fromtimestamp(ctx.now // 10**6, UTC) + timedelta(days=1)
            text = re.sub("a", "b", json.dumps(x))
            return [text, math.isqrt(4), Decimal(1), when]
    """,
    "sets without an order": """
        def p(ctx, a, b):
            both = set(a) & set(b)
            print_ = [x for x in sorted(both)]
            count = sum(1 for x in both)
            return print_, len(both), 1 in both, count, sorted(x for x in both)
    """,
    "a name of one's own": """
        def p(ctx, id):
            hash = id + 1
            return hash
    """,
    "constants and helpers": """
        RATES = {"a": 1, "b": (2, 3)}
        def even(n):
            return n == 0 or odd(n - 1)
        def odd(n):
            return n != 0 and even(n - 1)
        def p(ctx, n):
            return p(ctx, n - 1) if n else [RATES["a"], even(n)]
    """,
    "nonlocal inside": """
        def p(ctx, xs):
            count = 0
            def add():
                nonlocal count
                count += 1
            for _ in xs:
                add()
            return count
    """,
    "queries of one row": """
        def p(ctx, x):
            ctx.execute("SELECT a, b FROM t ORDER BY a")
            ctx.execute("INSERT INTO t SELECT 1, 2")
            ctx.row("SELECT a FROM t WHERE id = ?", (x,))
            return ctx.value("SELECT coalesce(sum(a), 0) FROM t")
    """,
    "errors": """
        from braidlog.app import Abort
        import apsw
        def p(ctx, x):
            try:
                ctx.execute("INSERT INTO t VALUES (?)", (x,))
            except apsw.ConstraintError:
                raise Abort("twice")
            except BaseException:
                raise
    """,
    "methods of all kinds": """
        import abc, enum, functools
        from dataclasses import dataclass, field
        from typing import NamedTuple
        @dataclass(frozen=True, order=True)
        class Point:
            x: int = 0
            rest: list = field(default_factory=lambda: [1])
            def moved(self): return Point(self.x + 1)
            @property
            def y(self): return self.x
            @classmethod
            def at(cls, x): return cls(x)
            @staticmethod
            def far(): return Point.at(9)
        class Shape(abc.ABC):
            @abc.abstractmethod
            def area(self): ...
            def __init_subclass__(cls): super().__init_subclass__()
        class Square(Shape):
            def area(self): return super().area()
        class Color(enum.Enum):
            RED = 1
            @classmethod
            def _missing_(cls, value): return cls.RED
        class Pair(NamedTuple):
            a: int
            def total(self): return self.a
        @functools.total_ordering
        class Rank:
            def __lt__(self, other): return False
        def p(ctx, x):
            return [Point, Square, Color, Pair, Rank]
    """,
    "what a comment permits": """
        import math
        def p(ctx, x):
            y = math.sin(x)  # braidlog: allow(libm) rounded below
            # braidlog: allow(query-order) the order is not used
            rows = ctx.execute(
                "SELECT a FROM t"
            )
            return round(y, 3), len(rows)
    """,
}


def found(load: Load, text: str) -> list[Finding]:
    return lint(load(textwrap.dedent(text)).p)


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_replayed_is_found(load: Load, name: str) -> None:
    findings = found(load, BAD[name])
    assert [f.rule for f in findings][:1] == [name.split(":")[0]]
    lines = textwrap.dedent(BAD[name]).splitlines()
    here = [n for n, line in enumerate(lines, 1) if line.endswith("# HERE")]
    assert [f.line for f in findings[:1]] == (here or [4])
    assert all(f.instead and f.file.endswith(".py") for f in findings)


@pytest.mark.parametrize("name", GOOD)
def test_what_can_be_replayed_passes(load: Load, name: str) -> None:
    assert found(load, GOOD[name]) == []


def test_every_rule_has_an_example() -> None:
    assert {name.split(":")[0] for name in BAD} == set(RULES)


def test_a_registration_is_refused_with_everything_that_was_found() -> None:
    bank = Application("bank", partitions=1)
    with pytest.raises(DeterminismError) as caught:

        @bank.procedure
        def p(ctx: Context) -> int:
            open("/etc/passwd")  # noqa: SIM115, PTH123
            return id(ctx)

    assert [f.rule for f in caught.value.findings] == ["forbidden", "forbidden"]
    assert "id() [forbidden]; compare values" in caught.value.message
    assert "test_lint.py:" in caught.value.message
    with pytest.raises(UnknownProcedureError, match="procedure 'p' does not exist"):
        bank.find("p")


def test_a_warning_is_shown_and_does_not_refuse() -> None:
    bank = Application("bank", partitions=1)
    with pytest.warns(DeterminismWarning, match=r"query-order.*ORDER BY") as shown:

        @bank.procedure
        def p(ctx: Context) -> int:
            return len(ctx.execute("SELECT a FROM t"))

    assert shown[0].filename == __file__
    assert bank.find("p").name == "p"


def test_effects_and_readers_may_use_the_world() -> None:
    bank = Application("bank", partitions=1)

    @bank.procedure(effects=True)
    def p(ctx: Context) -> str:
        return open("/etc/hostname").read()  # noqa: PTH123

    @bank.procedure(read_only=True)
    def q(ctx: Context) -> int:
        return id(ctx)

    assert bank.find("p").call is p
    assert bank.find("q").call is q
