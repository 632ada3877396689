"""Every test of the suite runs on each implementation."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from braidlog.testing.cluster import LocalCluster
from conformance.api import AnyLog, AnyNode, Opener, Reopen, opener_of, params


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three processes for all tests: each begins by deleting all logs."""
    with LocalCluster(3, directory=tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(params=params())
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return opener_of(request, tmp_path)


@pytest.fixture
async def reopen(opener: Opener) -> AsyncIterator[Reopen]:
    """Open the same contents, again and again."""
    opened: list[AnyNode] = []

    async def open_again(**options: Any) -> AnyNode:
        opened.append(await opener.open(**options))
        return opened[-1]

    yield open_again
    for node in opened:
        await node.close()


@pytest.fixture
async def node(reopen: Reopen) -> AnyNode:
    return await reopen()


@pytest.fixture
async def log(node: AnyNode) -> AnyLog:
    return await node.create_log("log")
