"""What a node answers for streams that it does not host."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog import _native
from braidlog.client.retry import Verdict, verdict_of
from braidlog.errors import LogError
from braidlog.logstream.effects import Limits
from braidlog.node.replicas import Replicas
from braidlog.storage.streams import NodeStore
from braidlog.wire.messages import Append, Read


class _Request:
    def __init__(self) -> None:
        self.errors: list[LogError] = []

    def fail(self, error: LogError) -> None:
        self.errors.append(error)


@pytest.mark.parametrize("kind", ["append", "read"])
def test_a_stream_that_is_elsewhere_is_asked_for_elsewhere(kind: str) -> None:
    """A node that was just dropped, or not told yet, must not end an append."""
    store = NodeStore("/n", entropy=1, disk=_native.MemoryDisk())
    peers: Any = None
    replicas = Replicas(1, store, peers, Limits(), lambda: None)
    request: Any = _Request()
    if kind == "append":
        replicas.append(Append(7, 0), [request], [b""])
    else:
        replicas.read(request, Read(7, 1, True, 100, 0), 0.0)
    [error] = request.errors
    assert verdict_of(error) is Verdict.MOVED
    assert error.outcome == "certain"
    store.close()
