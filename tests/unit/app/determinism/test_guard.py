"""What the lint cannot see or was told to permit, the guard refuses at run time."""

from __future__ import annotations

import decimal
import textwrap
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from braidlog.app import DeterminismError
from braidlog.app.determinism.guard import guarded
from braidlog.app.determinism.proxies import DEPTH_MAX

Load = Callable[..., ModuleType]

REFUSED = {
    "time.time": "import time\ndef p(ctx): return time.time()",
    "time.monotonic": "from time import monotonic\ndef p(ctx): return monotonic()",
    "random.Random.random": "from random import random\ndef p(ctx): return random()",
    "os": "import os\ndef p(ctx): return os.environ['HOME']",
    "datetime.datetime.now": (
        "from datetime import datetime\ndef p(ctx): return getattr(datetime, 'now')()"
    ),
    "datetime.date.today": "import datetime\ndef p(ctx): return datetime.date.today()",
    "local time": (
        "import datetime\ndef p(ctx): return datetime.datetime.fromtimestamp(0)"
    ),
    "uuid.uuid4": "import uuid\ndef p(ctx): return getattr(uuid, 'uuid' + '4')()",
    "open()": "def p(ctx): return open('/dev/null')",
    "id()": "def p(ctx): return list(map(id, [1]))",
    "hash()": "def p(ctx): return hash('a')",
    "print()": "def p(ctx): print('a')",
    "eval()": "def p(ctx): return eval('1')",
    "import of random": "def p(ctx):\n    import random\n    return random.random()",
    "import of time": "def p(ctx): return __import__('time').time()",
    "sum() of floats": "def p(ctx, x=(0.1, 1)): return sum(x)",
    "repr() of a object": "def p(ctx): return repr(object())",
    "functools.lru_cache": (
        "import functools\ndef p(ctx): return functools.lru_cache(len)([1])"
    ),
    "setting": "import math\ndef p(ctx): math.pi = 3",
    "calling itself": (
        "def down(n): return n and down(n - 1)\ndef p(ctx): return down(1000)"
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_differ_raises_and_says_what_to_do(load: Load, what: str) -> None:
    with pytest.raises(DeterminismError) as caught:
        guarded(load(REFUSED[what]).p)(None)
    assert what in caught.value.message
    assert "differs at replay; " in caught.value.message
    assert not caught.value.message.endswith("; ")


@pytest.mark.parametrize("what", REFUSED)
def test_methods_are_guarded_as_functions_are(load: Load, what: str) -> None:
    before, rest = REFUSED[what].split("def p(")
    method = textwrap.indent(f"def q(self, {rest}", "    ")
    text = f"{before}class C:\n{method}\ndef p(ctx): return C().q(ctx)"
    with pytest.raises(DeterminismError) as caught:
        guarded(load(text).p)(None)
    assert what in caught.value.message


METHODS = """
    import uuid
    from dataclasses import dataclass, field
    from enum import Enum
    def draw():
        return getattr(uuid, "uuid" + "4")()
    class Base:
        def plain(self): return draw()
        def __init_subclass__(cls): super().__init_subclass__()
    class C(Base):
        def inherited(self): return super().plain()
        @staticmethod
        def static(): return draw()
        @classmethod
        def of_class(cls): return draw()
        @property
        def shown(self): return draw()
        def __eq__(self, other): return draw()
        __hash__ = None
        class Inside:
            def nested(self): return draw()
    @dataclass(frozen=True)
    class D:
        drawn: str = field(default_factory=lambda: str(draw()))
    @dataclass(slots=True)
    class E:
        drawn: str = field(default_factory=draw)
    class F(Enum):
        ONE = 1
        def name_of(self): return draw()
    def local():
        secret = draw
        class G:
            def closed(self): return secret()
        def p(ctx): return G().closed()
        return p
    CALLS = local()
    ONE = C()
"""


@pytest.mark.parametrize(
    "call",
    [
        *("C().plain()", "C().inherited()", "C.static()", "C().static()"),
        *("C.of_class()", "C().shown", "C() == 1", "C.Inside().nested()"),
        *("D()", "E()", "F.ONE.name_of()", "[C() for _ in '1'][0].plain()"),
    ],
)
def test_methods_of_all_kinds_are_guarded(load: Load, call: str) -> None:
    module = load(f"{textwrap.dedent(METHODS)}def p(ctx): return {call}\n")
    with pytest.raises(DeterminismError, match="uuid4"):
        guarded(module.p)(None)
    # Outside of a procedure the class is what it was, also when registered again.
    guarded(module.p)
    assert module.C().plain() != module.C().inherited()
    assert len(module.D().drawn) == 36
    assert all([module.C.static(), module.C.of_class(), module.C().shown])


def test_a_method_reads_what_the_function_around_its_class_has(load: Load) -> None:
    module = load(textwrap.dedent(METHODS))
    with pytest.raises(DeterminismError, match="uuid4"):
        guarded(module.local())(None)


def test_a_class_serves_procedures_that_permit_different_things(load: Load) -> None:
    text = """
        import uuid
        class C:
            def draw(self): return getattr(uuid, "uuid4")()
        def p(ctx): return C().draw()
        def q(ctx):
            # braidlog: allow(forbidden) thrown away
            uuid.uuid4()
            return C().draw() is not None
    """
    module = load(textwrap.dedent(text))
    strict, free = guarded(module.p), guarded(module.q)
    for _ in range(2):
        with pytest.raises(DeterminismError, match="uuid4"):
            strict(None)
        assert free(None) is True


def test_what_it_raises_cannot_be_swallowed(load: Load) -> None:
    text = """
        import time
        def helper():
            return time.time()
        def p(ctx):
            try:
                return helper()
            except Exception:
                return 0
        def q(ctx):
            try:
                return helper()
            except Exception:
                raise ValueError("something else")
    """
    module = load(textwrap.dedent(text))
    for function in (module.p, module.q):
        with pytest.raises(DeterminismError, match=r"time\.time.*ctx\.now"):
            guarded(function)(None)
    # Outside of the guard the module is what it was.
    assert module.helper() > 0


def test_ordinary_code_runs_as_it_is(load: Load) -> None:
    text = """
        import collections, datetime, functools, itertools, json, math, re
        from dataclasses import dataclass, replace
        from datetime import UTC, date
        from decimal import Decimal
        from enum import Enum
        RATES = {"a": 1, "b": [1, 2]}
        class Color(Enum):
            RED = 1
        @dataclass(frozen=True)
        class Point:
            x: int
            def moved(self, by=1):
                return replace(self, x=self.x + by)
        def fact(n):
            return n * fact(n - 1) if n else 1
        def p(ctx, x, *rest, more=2):
            class Local:
                y = 3
            moment = datetime.datetime(2026, 1, 1, tzinfo=UTC)
            assert isinstance(moment, datetime.datetime)
            assert isinstance(moment, date) and isinstance(moment.date(), date)
            import string
            total = sum(itertools.chain([1, 2], RATES["b"]))
            return [x, rest, more, Local().y, moment.isoformat(), total, fact(5),
                    Color.RED.name, Point(1).moved().x, math.floor(2.5),
                    collections.Counter("aab").most_common(1), string.digits[:2],
                    functools.reduce(lambda a, b: a * b, [1, 2, 3]),
                    json.loads("[1]"), bool(re.match("a", "ab")), str(Decimal("1.10"))]
    """
    module = load(textwrap.dedent(text))
    arguments = (None, 1, 2, 3)
    assert guarded(module.p)(*arguments, more=4) == module.p(*arguments, more=4)


def test_constants_cannot_be_changed(load: Load) -> None:
    text = (
        "TABLE = {'a': [1]}\ndef put(table): table['b'] = 2\n"
        "def p(ctx): put(TABLE)\ndef q(ctx): TABLE['a'].append(2)\n"
    )
    module = load(text)
    for function in (module.p, module.q):
        with pytest.raises((TypeError, AttributeError)):
            guarded(function)(None)
    assert module.TABLE == {"a": [1]}


def test_what_runs_is_what_was_registered(load: Load) -> None:
    module = load("RATE = 2\ndef h(x): return x * RATE\ndef p(ctx, x): return h(x)\n")
    call = guarded(module.p)
    vars(module).update(RATE=3, h=None)
    assert call(None, 5) == 10


def test_modules_of_the_program_are_guarded_too(load: Load) -> None:
    rules = (
        "import time\nFEE = 2\ndef fee(): return FEE\ndef late(): return time.time()"
    )
    load(rules, "rules")
    text = "import rules\ndef p(ctx): return rules.fee()\ndef q(ctx): rules.late()\n"
    module = load(text)
    assert guarded(module.p)(None) == 2
    with pytest.raises(DeterminismError, match=r"time\.time"):
        guarded(module.q)(None)


def test_what_a_comment_permits_is_reached(load: Load) -> None:
    text = (
        "import time\ndef p(ctx):\n"
        "    # braidlog: allow(forbidden) measured, and not stored\n"
        "    return time.perf_counter()\n"
        "def q(ctx):\n    return id(ctx)  # braidlog: allow(forbidden) compared below\n"
        "def r(ctx):\n    return time.perf_counter()\n"
    )
    module = load(text)
    assert guarded(module.p)(None) > 0
    assert guarded(module.q)(None) == id(None)
    with pytest.raises(DeterminismError, match=r"time\."):
        guarded(module.r)(None)


def test_decimals_do_not_depend_on_the_thread(load: Load) -> None:
    text = "from decimal import Decimal\ndef p(ctx): return str(Decimal(1) / 3)\n"
    call = guarded(load(text).p)
    with decimal.localcontext() as context:
        context.prec = 3
        assert call(None) == "0." + "3" * 28
        assert str(decimal.Decimal(1) / 3) == "0.333"


def test_depth_is_counted_from_the_procedure(load: Load) -> None:
    text = "def down(n): return n and down(n - 1)\ndef p(ctx, n): return down(n)\n"
    call = guarded(load(text).p)
    results: list[Any] = []

    def deep(levels: int) -> None:
        if levels:
            deep(levels - 1)
        else:
            results.append(call(None, DEPTH_MAX - 1))
            with pytest.raises(DeterminismError):
                call(None, DEPTH_MAX)

    deep(0)
    deep(300)  # The same below a deep stack.
    assert results == [0, 0]


def test_threads_do_not_see_each_other(load: Load) -> None:
    text = "def p(ctx, x):\n try: id(x) if x else 0\n except Exception: pass\n"
    call = guarded(load(text).p)
    failed: list[BaseException] = []

    def fine() -> None:
        try:
            for _ in range(200):
                call(None, 0)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=fine)
    thread.start()
    for _ in range(200):
        with pytest.raises(DeterminismError):
            call(None, 1)
    thread.join()
    assert failed == []
