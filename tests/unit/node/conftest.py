"""Tests of nodes with sockets run in both loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from unit.node.loops import LOOPS


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return how loops are made, by the name that a test gets."""
    module: Any = item.getparent(pytest.Module)
    sockets = {"serving", "harm"} & vars(module.obj).keys()
    # In the folders below nodes have no poll.
    here = item.path.parent == Path(__file__).parent
    return LOOPS if sockets and here else {"loop": LOOPS["loop"]}
