"""Tests of nodes with sockets run in both loops."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.node.loops import Loops, loops_of


def pytest_asyncio_loop_factories(item: pytest.Item) -> Loops:
    """Return how loops are made."""
    return loops_of(item, Path(__file__).parent)
