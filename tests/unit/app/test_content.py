"""A content hash changes when the code does, and only then."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from braidlog.app.content import content_hash
from braidlog.errors import InvalidArgumentError

BASE = '''
RATE = 3
def helper(x):
    return x * RATE
def p(ctx, x):
    """Say something."""
    return helper(x) + 1
'''


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], bytes]:
    count = 0

    def load(text: str, name: str = "p") -> bytes:
        nonlocal count
        count += 1
        path = tmp_path / f"procedures_{count}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("procedures", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["procedures"] = module
        spec.loader.exec_module(module)
        return content_hash(getattr(module, name))

    return load


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Say something.", "Say it otherwise."),
        ("def p(ctx, x):", "# a comment\n\ndef p(ctx: object, x: int) -> int:"),
        ("return helper(x) + 1", "return (helper( x )\n        + 1)"),
        ("RATE = 3", "RATE = 3\nOTHER = 4"),
    ],
)
def test_what_does_not_count(load: Callable[[str], bytes], old: str, new: str) -> None:
    assert load(BASE) == load(BASE.replace(old, new))


def test_the_name_does_not_count(load: Callable[..., bytes]) -> None:
    assert load(BASE) == load(BASE.replace("def p(", "def q("), "q")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ 1", "+ 2"),
        ("RATE = 3", "RATE = 4"),
        ("x * RATE", "x * RATE * 1"),
        ("def p(ctx, x):", "def p(ctx, x=1):"),
    ],
)
def test_what_counts(load: Callable[[str], bytes], old: str, new: str) -> None:
    assert load(BASE) != load(BASE.replace(old, new))


def test_functions_that_call_each_other(load: Callable[[str], bytes]) -> None:
    text = "def q(n):\n    return p(None, n)\ndef p(ctx, n):\n    return q(n)\n"
    assert load(text) == load(text)


def test_a_function_without_source() -> None:
    space: dict[str, Any] = {}
    exec("def p(ctx): pass", space)
    with pytest.raises(InvalidArgumentError, match="define it in a file"):
        content_hash(space["p"])
