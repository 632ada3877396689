"""Every hazard to replay, and the layers that catch it.

`docs/applications.md` has the same table; the last test compares them.
"""

from __future__ import annotations

import pickle
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeAlias

import pytest

from braidlog.app import (
    Application,
    Context,
    DeterminismError,
    EncodingError,
    EnvironmentMismatchError,
    StepBudgetError,
    UnknownProcedureError,
)
from braidlog.app.determinism.codec import encode
from braidlog.app.determinism.guard import guarded
from braidlog.app.determinism.lint import lint
from braidlog.app.execution.answers import answer
from braidlog.app.execution.executor import Executor
from braidlog.app.execution.outcome import Status
from braidlog.app.fingerprint import check
from braidlog.app.state import database, sqlite_partition
from braidlog.app.state.sqlite import SqliteState
from braidlog.app.testing import NotRepeatedError, run_twice
from braidlog.errors import CorruptionError
from unit.app.hazard_app import SCHEMA, make
from unit.app.records import Records

Load = Callable[..., ModuleType]
Layer: TypeAlias = Literal[
    "lint", "guard", "context", "encoding", "outcome", "fingerprint", "content", "order"
]
COVERED: dict[str, set[str]] = {}
APP = "unit.app.hazard_app:make"
NAMES = ["ada", "bo", "cy", "di", "ed", "flo", "gus"]
DOCUMENT = Path(__file__).parents[4] / "docs" / "applications.md"


def hazard(name: str, *layers: Layer) -> Callable[[Any], Any]:
    COVERED.setdefault(name, set()).update(layers)
    return lambda test: test


def rules(load: Load, text: str) -> list[str]:
    return [finding.rule for finding in lint(load(textwrap.dedent(text)).p)]


def refused(load: Load, text: str) -> str:
    with pytest.raises(DeterminismError) as caught:
        guarded(load(textwrap.dedent(text)).p)(None, *[[0.1, 0.2]])
    return caught.value.message


def differs(*call: Any) -> str:
    with pytest.raises(NotRepeatedError) as caught:
        run_twice(APP, [("fine", 1), call, call, call])
    error = pickle.loads(pickle.dumps(caught.value))
    assert (type(error), error.args) == (NotRepeatedError, caught.value.args)
    assert error.procedure == call[0]
    component: str = error.component
    return component


def execute(path: Path, app: Application, *calls: Any, times: bool = False) -> Any:
    records = Records(app)
    state = SqliteState(path, app.partitions)
    executor = Executor(app, state)
    for number, (name, *arguments) in enumerate(calls):
        stamp = 10**9 - number if times else None
        records.command(name, *arguments, timestamp=stamp)
    try:
        return executor.feed(records.after(executor))
    finally:
        executor.rollback()
        state.close()


@hazard("wall clock", "lint", "guard", "context")
def test_wall_clock(load: Load, tmp_path: Path) -> None:
    text = "import time\ndef p(ctx, x): return time.time()\n"
    assert rules(load, text) == ["forbidden"]
    assert "ctx.now" in refused(load, text)
    app = Application("clock", partitions=1)

    @app.procedure
    def now(ctx: Context) -> int:
        return ctx.now

    # Also when the clock of a caller went back.
    outcomes = execute(tmp_path, app, ("now",), ("now",), ("now",), times=True)
    assert [answer(outcome) for outcome in outcomes] == [10**9] * 3


@hazard("randomness", "lint", "guard", "context")
def test_randomness(load: Load) -> None:
    text = "import secrets\ndef p(ctx, x): return secrets.token_hex()\n"
    assert "forbidden" in rules(load, text)
    assert "ctx.random" in refused(load, text)
    run_twice(APP, [("fine", n) for n in range(3)])


@hazard("order of sets", "lint", "outcome")
def test_order_of_sets(load: Load) -> None:
    text = "def p(ctx, x):\n    for name in set(x): ctx.execute(name)\n"
    assert rules(load, text) == ["set-order"]
    assert differs("hidden_order", 1, NAMES) == "result"
    assert differs("hidden_rows", 1, NAMES) == "changes"


@hazard("identity", "lint", "guard", "encoding", "outcome")
def test_identity(load: Load) -> None:
    assert rules(load, "def p(ctx, x): return id(x)\n") == ["forbidden"]
    assert "hash()" in refused(load, "def p(ctx, x): return hash('a')\n")
    assert "repr()" in refused(load, "def p(ctx, x): return repr(object())\n")
    with pytest.raises(EncodingError, match="object cannot be stored in the log"):
        encode([object()])
    assert differs("address", 1) == "result"


@hazard("order of dicts", "lint", "outcome")
def test_order_of_dicts(load: Load) -> None:
    text = "def p(ctx, x):\n    return dict.fromkeys(set(x))\n"
    assert rules(load, text) == ["set-order"]
    assert differs("dict_of_set", 1, NAMES) == "result"


@hazard("sums of floats", "lint", "guard", "fingerprint")
def test_sums_of_floats(load: Load) -> None:
    assert rules(load, "def p(ctx, x): return sum(y / 2 for y in x)\n") == ["float-sum"]
    # The lint does not see what the argument holds.
    assert rules(load, "def p(ctx, x): return sum(x)\n") == []
    assert "math.fsum" in refused(load, "def p(ctx, x): return sum(x)\n")
    with pytest.raises(EnvironmentMismatchError, match=r"sum: .* in the log"):
        check({"sum": "0x1.0p0"}, {"sum": "0x1.f"}, "refuse")


@hazard("float libraries", "lint", "guard", "fingerprint")
def test_float_libraries(load: Load) -> None:
    text = "import math\ndef p(ctx, x): return math.sin(x)\n"
    assert rules(load, text) == ["libm"]
    text = "def p(ctx, x):\n    import numpy\n    return numpy.sum(x)\n"
    assert rules(load, text) == ["import"]
    assert "numpy" in refused(load, text)
    with pytest.raises(EnvironmentMismatchError, match="libm"):
        check({"libm": "aa"}, {"libm": "bb"}, "refuse")


@hazard("NaN and -0.0", "encoding")
def test_nan_and_minus_zero() -> None:
    quiet = encode(float("nan"))
    assert encode(-float("nan")) == encode(float("inf") * 0) == quiet
    assert encode(-0.0) == encode(0.0)


@hazard("order of rows", "lint", "fingerprint")
def test_order_of_rows(load: Load) -> None:
    text = "def p(ctx, x): return ctx.execute('SELECT a FROM t')\n"
    assert rules(load, text) == ["query-order"]
    # The same data and the same SQLite give the same order.
    with pytest.raises(EnvironmentMismatchError, match="sqlite"):
        check({"sqlite": "3.45"}, {"sqlite": "3.46"}, "refuse")


@hazard("concurrency", "lint", "guard")
def test_concurrency(load: Load) -> None:
    assert rules(load, "async def p(ctx, x): return 1\n") == ["async"]
    text = "import weakref\ndef p(ctx, x): return weakref.ref(p)\n"
    assert set(rules(load, text)) == {"forbidden"}
    text = "import threading\ndef p(ctx, x): threading.Thread(target=p).start()\n"
    assert "one thread" in refused(load, text)
    text = "class C:\n    def __del__(self): pass\ndef p(ctx, x): return C()\n"
    assert rules(load, text) == ["finalizer"]


@hazard("limits of resources", "guard", "context")
def test_limits_of_resources(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "def down(n): return down(n)\ndef p(ctx, x): return down(x)\n"
    assert "deep" in refused(load, text)
    for module in (database, sqlite_partition):
        monkeypatch.setattr(module, "STEPS_MAX", 1000)
    (outcome,) = execute(tmp_path, make(), ("runaway", 1))
    assert outcome.status == Status.FAILED
    assert isinstance(outcome.error, StepBudgetError)


@hazard("hidden state", "lint", "guard", "outcome")
def test_hidden_state(load: Load) -> None:
    text = "SEEN = []\ndef p(ctx, x): SEEN.append(x)\n"
    assert rules(load, text) == ["global-write"]
    assert rules(load, "def p(ctx, x=[]): return x\n") == ["mutable-default"]
    with pytest.raises(AttributeError):  # It gets a tuple.
        guarded(load(text).p)(None, 1)
    assert differs("remember", 1) == "result"
    with pytest.raises(NotRepeatedError, match="harmless uses was changed"):
        run_twice("unit.app.hazard_app:make_in_memory", [("harmless",), ("reader",)])


@hazard("environment", "lint", "guard", "outcome")
def test_environment(load: Load) -> None:
    text = "import os\ndef p(ctx, x): return os.environ['TZ']\n"
    assert "forbidden" in rules(load, text)
    assert "os" in refused(load, text)
    assert rules(load, "def p(ctx, x): return x.astimezone()\n") == ["local-time"]
    assert rules(load, "def p(ctx, x): return x.strftime('%B')\n") == ["locale"]


@hazard("changed code", "content", "fingerprint")
def test_changed_code(load: Load, tmp_path: Path) -> None:
    text = (
        "from braidlog.app import Application\n"
        "app = Application('code', partitions=1)\n"
        "def fee(): return 1\n"
        "@app.procedure\ndef p(ctx): return fee()\n"
    )
    before = load(text).app
    after = load(text.replace("return 1", "return 2")).app
    records = Records(before)
    records.command("p")
    state = SqliteState(tmp_path, 1)
    executor = Executor(after, state)
    with pytest.raises(UnknownProcedureError, match="needs the version of 'p'"):
        executor.feed(records.after(executor))
    executor.rollback()
    state.close()
    with pytest.raises(EnvironmentMismatchError, match=r"packages\.apsw"):
        check({"packages": {"apsw": "1"}}, {"packages": {"apsw": "2"}}, "refuse")


@hazard("messages of exceptions", "outcome")
def test_messages_of_exceptions() -> None:
    found = run_twice(APP, [("raise_address", 1), ("fine", -1)])
    assert found.statuses == ["ValueError", "Abort"]


@hazard("encoding", "lint", "guard", "encoding")
def test_encoding(load: Load) -> None:
    text = "import pickle\ndef p(ctx, x): return pickle.dumps(x)\n"
    assert "forbidden" in rules(load, text)
    assert "pickle" in refused(load, text)
    assert encode({"b": 1, "a": 2}) == encode({"a": 2, "b": 1})
    with pytest.raises(EncodingError, match="set cannot be stored"):
        encode({1, 2})


@hazard("order of records", "order")
def test_order_of_records(tmp_path: Path) -> None:
    app = Application("order", partitions=1, schema=SCHEMA)
    records = Records(app)
    state = SqliteState(tmp_path, 1)
    executor = Executor(app, state)
    first, second = records.records
    with pytest.raises(
        CorruptionError, match="the record at 1 is missing: the log continues at 2"
    ):
        executor.feed([second, first])
    state.close()


EXAMPLES = {
    "wall clock": {
        "time.time()": "forbidden",
        "time.monotonic()": "forbidden",
        "datetime.datetime.now()": "forbidden",
        "time.sleep(1)": "forbidden",
    },
    "randomness": {
        "random.random()": "forbidden",
        "secrets.token_hex()": "forbidden",
        "uuid.uuid4()": "forbidden",
        "os.urandom(8)": "forbidden",
        "numpy.random.rand()": "forbidden",
    },
    "order of sets": {
        "[y for y in {*x}]": "set-order",
        "[y for y in frozenset(x)]": "set-order",
    },
    "identity": {"id(x)": "forbidden", "hash(x)": "forbidden"},
    "order of dicts": {
        "dict.fromkeys(set(x))": "set-order",
        "{y: 1 for y in os.listdir('.')}": "forbidden",
        "{y: 1 for y in glob.glob('*')}": "forbidden",
        "dict(os.environ)": "forbidden",
    },
    "sums of floats": {"sum([0.1, x])": "float-sum"},
    "float libraries": {"math.sin(x)": "libm", "numpy.sum(x)": "forbidden"},
    "order of rows": {"ctx.execute('SELECT a FROM t')": "query-order"},
    "concurrency": {
        "threading.Thread(target=x)": "forbidden",
        "asyncio.run(x)": "forbidden",
        "weakref.ref(x)": "forbidden",
        "gc.collect()": "forbidden",
    },
    "hidden state": {
        "functools.lru_cache(x)": "forbidden",
        "SEEN.append(x)": "global-write",
        "SEEN[0]": "",
        "(lambda y=[]: y)()": "mutable-default",
    },
    "environment": {
        "locale.getlocale()": "forbidden",
        "x.astimezone()": "local-time",
        "os.environ['TZ']": "forbidden",
        "open(x)": "forbidden",
        "socket.socket()": "forbidden",
        "zoneinfo.ZoneInfo(x)": "forbidden",
    },
    "encoding": {"pickle.dumps(x)": "forbidden"},
}
IMPORTS = (
    "import asyncio, datetime, functools, gc, glob, locale, math, numpy, os, pickle,"
    " random, secrets, socket, threading, time, uuid, weakref, zoneinfo\nSEEN = [1]\n"
)


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        pytest.param(code, rule, id=f"{name}: {code}")
        for name, each in EXAMPLES.items()
        for code, rule in each.items()
    ],
)
def test_examples_are_seen_in_functions_and_in_methods(
    load: Load, code: str, rule: str
) -> None:
    """Every hazard that source shows, where it was seen to go wrong."""
    plain = f"{IMPORTS}def p(ctx, x): return {code}\n"
    method = (
        f"{IMPORTS}class C:\n    def q(self, ctx, x): return {code}\n"
        "def p(ctx, x): return C().q(ctx, x)\n"
    )
    for text in (plain, method):
        assert set(rules(load, text)) == ({rule} if rule else set())


def test_every_hazard_that_source_shows_has_examples() -> None:
    shown = {name for name, layers in COVERED.items() if "lint" in layers}
    assert shown == EXAMPLES.keys()


def test_the_document_has_the_same_table() -> None:
    section = DOCUMENT.read_text().split("### What catches what")[1]
    section = section.split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \|$", section, re.M)
    found = {name: set(layers.split(", ")) for name, layers in rows if name != "hazard"}
    assert found == COVERED
