"""A client of a cluster in memory, and a log of three streams."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from braidlog.client import AsyncClient, AsyncClusterLog
from unit.client.fake import FakeCluster


@pytest.fixture
async def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[AsyncClient]:
    async with cluster.client() as client:
        yield client


@pytest.fixture
async def log(client: AsyncClient) -> AsyncClusterLog:
    return await client.create_log("log", streams=3)
