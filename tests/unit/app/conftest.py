"""Modules written by a test: lint, guard and hash read sources."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

Load = Callable[..., ModuleType]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Import a text as a module, each time from a file of its own."""
    made: set[str] = set()

    def load(text: str, name: str = "procedures") -> ModuleType:
        made.add(name)
        path = tmp_path / f"{name}_{len(list(tmp_path.iterdir()))}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    yield load
    for name in made:
        del sys.modules[name]
