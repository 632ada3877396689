"""A content hash changes when the code does, and only then."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from braidlog.app.determinism.code_hash import content_hash
from braidlog.errors import InvalidArgumentError
from unit.app import hashed_corpus

Load = Callable[..., ModuleType]

BASE = '''
RATE = 3
def helper(x):
    return x * RATE
def p(ctx, x):
    """Say something."""
    return helper(x) + 1
'''


@pytest.fixture
def hash_of(load: Load) -> Callable[..., bytes]:
    def hash_of(text: str, name: str = "p") -> bytes:
        return content_hash(getattr(load(text), name))

    return hash_of


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Say something.", "Say it otherwise."),
        ("def p(ctx, x):", "# a comment\n\ndef p(ctx: object, x: int) -> int:"),
        ("return helper(x) + 1", "return (helper( x )\n        + 1)"),
        ("RATE = 3", "RATE = 3\nOTHER = 4"),
    ],
)
def test_what_does_not_count(hash_of: Callable[..., bytes], old: str, new: str) -> None:
    assert hash_of(BASE) == hash_of(BASE.replace(old, new))


def test_the_name_does_not_count(hash_of: Callable[..., bytes]) -> None:
    assert hash_of(BASE) == hash_of(BASE.replace("def p(", "def q("), "q")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ 1", "+ 2"),
        ("RATE = 3", "RATE = 4"),
        ("x * RATE", "x * RATE * 1"),
        ("def p(ctx, x):", "def p(ctx, x=1):"),
        ("def p(ctx, x):", "def p(ctx, x=RATE):"),
        ("return helper(x) + 1", "return helper(x) + 1.0"),
        ("return helper(x) + 1", "x: int = 1\n    return helper(x) + 1"),
    ],
)
def test_what_counts(hash_of: Callable[..., bytes], old: str, new: str) -> None:
    assert hash_of(BASE) != hash_of(BASE.replace(old, new))


def test_functions_that_call_each_other(hash_of: Callable[..., bytes]) -> None:
    text = "def q(n):\n    return p(None, n)\ndef p(ctx, n):\n    return q(n)\n"
    assert hash_of(text) == hash_of(text)


def test_a_function_without_source() -> None:
    space: dict[str, Any] = {}
    exec("def p(ctx): pass", space)
    with pytest.raises(InvalidArgumentError, match="define it in a file"):
        content_hash(space["p"])


# Pairs of modules whose procedure ``p`` does something else.
OTHER = {
    "a constant far away": (
        "D = 1\ndef a(): return D\ndef b(): return a()\ndef p(ctx): return b()\n",
        ("D = 1", "D = 2"),
    ),
    "a table": ("T = {'a': [1, 2]}\ndef p(ctx): return T['a']\n", ("1, 2", "1, 3")),
    "the order of a table": (
        "T = {'a': 1, 'b': 2}\ndef p(ctx): return list(T)\n",
        ("'a': 1, 'b': 2", "'b': 2, 'a': 1"),
    ),
    "a method": (
        "class C:\n    def m(self): return 1\ndef p(ctx): return C().m()\n",
        ("return 1", "return 2"),
    ),
    "a base class": (
        "class B:\n    x = 1\nclass C(B): pass\ndef p(ctx): return C.x\n",
        ("x = 1", "x = 2"),
    ),
    "a field's default": (
        (
            "from dataclasses import dataclass\n@dataclass(frozen=True)\n"
            "class C:\n    x: int = 1\ndef p(ctx): return C().x\n"
        ),
        (": int = 1", ": int = 2"),
    ),
    "an instance": (
        (
            "from dataclasses import dataclass\n@dataclass(frozen=True)\n"
            "class C:\n    x: int\nONE = C(1)\ndef p(ctx): return ONE.x\n"
        ),
        ("C(1)", "C(2)"),
    ),
    "a decorator": (
        (
            "def d(f):\n    def w(ctx): return f(ctx) + 1\n    return w\n"
            "@d\ndef p(ctx): return 1\n"
        ),
        ("+ 1", "+ 2"),
    ),
    "what is decorated": (
        (
            "def d(f):\n    def w(ctx): return f(ctx) + 1\n    return w\n"
            "@d\ndef p(ctx): return 1\n"
        ),
        ("return 1", "return 2"),
    ),
    "a closure": (
        "def make(n):\n    def p(ctx): return n\n    return p\np = make(1)\n",
        ("make(1)", "make(2)"),
    ),
    "a lambda": ("h = lambda x: x\ndef p(ctx): return h(1)\n", ("x: x", "x: -x")),
    "a library function": (
        "from math import floor as f\ndef p(ctx, x): return f(x)\n",
        ("floor", "ceil"),
    ),
    "a type of equal value": ("N = 1\ndef p(ctx): return N\n", ("N = 1", "N = True")),
}


@pytest.mark.parametrize("name", OTHER)
def test_what_a_procedure_reaches_counts(
    hash_of: Callable[..., bytes], name: str
) -> None:
    text, (old, new) = OTHER[name]
    assert text.replace(old, new) != text
    assert hash_of(text) == hash_of("# moved\n\n" + text)
    assert hash_of(text) != hash_of(text.replace(old, new, 1))


def test_a_module_of_the_program_counts(load: Load) -> None:
    text = "import rules\ndef p(ctx): return rules.fee()\n"
    hashes = set()
    for rules in ("def fee(): return 1", "def fee(): return 2", "def fee(): return 1"):
        load(rules, "rules")
        hashes.add(content_hash(load(text).p))
    assert len(hashes) == 2


UNHASHABLE = {
    "an object": "x = object()\ndef p(ctx): return x\n",
    "a cache": "import functools\n@functools.cache\ndef h(): pass\n"
    "def p(ctx): return h()\n",
    "a generator": "x = (n for n in [])\ndef p(ctx): return next(x)\n",
    "an instance": "class C: pass\nx = C()\ndef p(ctx): return x\n",
    "a closure over one": "def make(x):\n    def p(ctx): return x\n    return p\n"
    "p = make(object())\n",
    "two lambdas on a line": "h, g = lambda: 1, lambda: 2\ndef p(ctx): return h()\n",
}


@pytest.mark.parametrize("name", UNHASHABLE)
def test_what_cannot_be_hashed_is_refused(load: Load, name: str) -> None:
    function = load(UNHASHABLE[name]).p
    with pytest.raises(InvalidArgumentError, match=r"constant|define it with def"):
        content_hash(function)


def test_code_that_replay_does_not_call_is_hashed_by_type(load: Load) -> None:
    function = load(UNHASHABLE["an object"]).p
    assert len(content_hash(function, strict=False)) == 16


GOLDEN = "992779b6d194e82883d7b65711d332d7"

# Imports the hash without the rest of the package, whose extras may not be there.
ELSEWHERE = """
import json, sys, types
sys.path[:0] = json.loads(sys.argv[1])
for name, path in (("braidlog", sys.argv[2]), ("braidlog.app", sys.argv[3])):
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = [path]
from braidlog.app.determinism.code_hash import content_hash
from unit.app import hashed_corpus
print(content_hash(hashed_corpus.procedure).hex())
"""


def test_the_hash_is_fixed_for_ever() -> None:
    assert content_hash(hashed_corpus.procedure).hex() == GOLDEN


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_the_hash_is_that_of_other_versions(version: str) -> None:
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "-c", ""], check=False).returncode:
        pytest.skip(f"Python {version} is not installed")
    app = Path(sys.modules[content_hash.__module__].__file__ or "").parents[1]
    path = json.dumps([str(app.parents[1]), str(Path(__file__).parents[3])])
    found = subprocess.run(
        [python, "-c", ELSEWHERE, path, str(app.parent), str(app)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert found.stdout.strip() == GOLDEN
